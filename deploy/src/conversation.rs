//! A conversation: a thread as a Rust program talks to it.
//!
//! In: text. Out: what the model says. Always: what was sent is durable when `send` returns (if the runtime has a
//! directory); every turn is received once and in order.

use crate::gateway::name::Address;
use crate::gateway::{Event, Shards, SubmitError, Subscription};
use slackwater_core::effect::{Outcome, Refusal, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::{Number, OutputId, ThreadId};
use slackwater_core::record::{Block, Content, Decision, Message, Origin, Proof, Record, Verdict};

/// Why a conversation does not go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConversationError {
    /// The message was not taken, or nobody knows.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// The message or answer changes nothing.
    #[error("it was refused: {0:?}")]
    Refused(Refusal),
    /// An operator of this runtime does not let the message in.
    #[error("the message was not let in: {0}")]
    Declined(String),
    /// The model could not answer; what was sent stays, and the next message tries again.
    #[error("the model could not answer: {0}")]
    Model(String),
    /// The runtime has stopped.
    #[error("the conversation has ended: {0}")]
    Ended(String),
}

/// A conversation with one thread.
pub struct Conversation {
    shards: Shards,
    address: Address,
    outputs: Option<Subscription>,
    /// The last output that came before this conversation's first message.
    after: OutputId,
}

impl Conversation {
    pub(crate) fn new(shards: Shards, address: Address) -> Self {
        Self { shards, address, outputs: None, after: OutputId::default() }
    }

    /// The thread's id.
    pub fn thread(&self) -> ThreadId {
        self.address.thread
    }

    /// Sends a message; returns its number once it is durable.
    ///
    /// # Errors
    /// When it was not taken, or nobody knows.
    pub async fn send(&mut self, text: impl Into<String>) -> Result<Number, ConversationError> {
        let record = Record::Message(Message {
            id: Shards::fresh_id(),
            origin: Origin { who: "program".to_owned(), proof: Proof::Process },
            content: vec![Content::Text(text.into())],
            thread_name: self.address.name.clone(),
            metadata: None,
        });
        match self.shards.submit(self.address.thread, record).await? {
            Outcome::Taken(number) | Outcome::Duplicate(number) => {
                if self.outputs.is_none() {
                    self.after = OutputId { number: number - 1, index: u16::MAX };
                }
                Ok(number)
            }
            Outcome::Refused(why) => Err(ConversationError::Refused(why)),
            Outcome::Declined(declined) => Err(ConversationError::Declined(declined.reason)),
        }
    }

    /// Answers a question that the thread has asked a person ([`Shown::Question`], [`slackwater_core::effect::Wait::Question`]);
    /// returns the answer's number once it is durable.
    ///
    /// # Errors
    /// When it was not taken, or nobody knows; when the question is not open any more, or the answer is none to it.
    pub async fn answer(&mut self, question: Number, answer: Decision) -> Result<Number, ConversationError> {
        let origin = Origin { who: "program".to_owned(), proof: Proof::Process };
        let verdict = Verdict { id: Shards::fresh_id(), origin, question, answer };
        match self.shards.submit(self.address.thread, Record::Answered(verdict)).await? {
            Outcome::Taken(number) | Outcome::Duplicate(number) => Ok(number),
            Outcome::Refused(why) => Err(ConversationError::Refused(why)),
            Outcome::Declined(declined) => Err(ConversationError::Declined(declined.reason)),
        }
    }

    /// Waits for the model's next turn that makes no calls, and returns its text.
    ///
    /// # Errors
    /// When the model could not answer, or the runtime stops.
    pub async fn receive(&mut self) -> Result<String, ConversationError> {
        loop {
            match self.next().await? {
                Event::Output(output) => match output.shown {
                    Shown::Turn { item, .. } => {
                        if let Some(text) = final_text(&item) {
                            return Ok(text);
                        }
                    }
                    Shown::Failure { message, .. } => return Err(ConversationError::Model(message)),
                    _ => {}
                },
                Event::Chunk(_) => {}
                Event::End(reason) => return Err(ConversationError::Ended(reason)),
            }
        }
    }

    /// The thread's next output or piece of a completion, from this conversation's first message on; from the thread's
    /// beginning, if none was sent.
    ///
    /// # Errors
    /// When too many listen already.
    pub async fn next(&mut self) -> Result<Event, ConversationError> {
        let outputs = match &mut self.outputs {
            Some(outputs) => outputs,
            None => self.outputs.insert(self.shards.subscribe(self.address.thread, self.after)?),
        };
        Ok(outputs.next().await.unwrap_or_else(|| Event::End("the stream has ended".to_owned())))
    }
}

/// The text of a turn after which the thread waits for the user.
fn final_text(item: &Item) -> Option<String> {
    let Item::Assistant { blocks, cut: false, .. } = item else {
        return None;
    };
    let mut text = String::new();
    for block in blocks {
        match block {
            Block::Text(piece) => text.push_str(piece),
            Block::Reasoning { .. } => {}
            Block::Call { .. } => return None,
        }
    }
    Some(text)
}
