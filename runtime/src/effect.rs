//! The effects: everything that a thread asks of the world, and what its clients are shown.
//!
//! In: nothing; the fold makes them. Out: the closed enum [`Effect`], one output of the flow for each kind of receiver.
//! Always: an effect names the record it follows from, so that one which is repeated after a crash is recognised.

use crate::history::{Answered, History, Item};
use crate::id::{CallId, Number, OutputId, ThreadId};
use crate::record::{Arrival, Asks, Bounds, Decision, End, FailureClass, Origin, Terms, Undelivered, Usage};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Something that a thread asks of the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Effect {
    /// Ask the model.
    Prompt(Prompt),
    /// Stop asking: answer the prompt with what has been said so far.
    Cut {
        /// Whose prompt.
        thread: ThreadId,
        /// The prompt's `seen`.
        seen: Number,
    },
    /// Have a tool do a call.
    Dispatch(Dispatch),
    /// Tell a tool that nobody waits for a call any more. Best effort; never waited for.
    Cancel(Dispatch),
    /// Wake the thread at a time.
    Arm {
        /// Whom.
        thread: ThreadId,
        /// The sleeping call, which is also the timer's name.
        call: CallId,
        /// When.
        due: Due,
    },
    /// Forget a timer.
    Disarm {
        /// Whose.
        thread: ThreadId,
        /// The sleeping call.
        call: CallId,
    },
    /// Tell the clients.
    Tell(Output),
    /// Make this a record of another thread of the same tree: a post, or the receipt for one. A post is repeated after a
    /// crash until its receipt has come.
    Post(Arrival),
    /// Tell a tool what was chosen. Repeated after a crash until the tool has it.
    Respond(Respond),
    /// Tell the tools that a thread has closed. Best effort, once; never waited for.
    Close(ThreadId),
    /// Ask a tool that has taken a call over whether it still knows it: after a start. Answered by `Record::Lost`, or not.
    Check(Dispatch),
}

/// What is sent to the model, less what is the same for every thread of an agent (system text and tools). A prompt is
/// answered by exactly one record: a completion or a failure with the same `seen`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prompt {
    /// Whose prompt.
    pub thread: ThreadId,
    /// The last record that the history holds.
    pub seen: Number,
    /// What the model sees.
    pub history: History,
    /// The terms on which the thread works: the model that is asked, and the tools that it is offered.
    pub terms: Terms,
    /// The thread's bounds as it knows them. Whoever answers and knows others makes those a record first.
    pub bounds: Bounds,
}

/// A call for a tool. `CallId::effect_id` is its name in the world.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Whose call.
    pub thread: ThreadId,
    /// Which.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// The arguments, JSON as text, as the model wrote them. Empty text stands for `{}`.
    pub arguments: String,
    /// Whether a person has approved it. One that is not may have to be: then the question comes back in its place.
    pub approved: bool,
    /// The thread's ancestors: the root first, its parent last.
    pub ancestors: Vec<ThreadId>,
}

/// A person's choice, for the tool that asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Respond {
    /// Whose call.
    pub thread: ThreadId,
    /// Which.
    pub call: CallId,
    /// The tool's name.
    pub name: String,
    /// The question: the number of its record.
    pub question: Number,
    /// Where the tool wants to be told.
    pub url: String,
    /// The place of what was chosen among the choices, from 0.
    pub selected: u32,
}

/// When a timer is due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Due {
    /// At this moment, in milliseconds since the Unix epoch.
    At(u64),
    /// At a time on somebody's wall. Which moment that is depends on the time-zone database and is therefore not the
    /// fold's to say: the timer answers with `Record::Armed`, or with an error result.
    Wall {
        /// `YYYY-MM-DD`.
        date: String,
        /// `HH:MM` or `HH:MM:SS`.
        time: String,
        /// An IANA name such as `Europe/Berlin`.
        timezone: String,
    },
}

/// One numbered thing that clients see of a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Output {
    /// Whose.
    pub thread: ThreadId,
    /// Its name; clients resume after it.
    pub id: OutputId,
    /// When the record was received, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What is shown.
    pub shown: Shown,
}

/// What clients are shown. Everything here follows from records alone; what is shown while a completion streams is a
/// [`crate::port::Chunk`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Shown {
    /// A user's message was taken.
    Message(Arc<Item>),
    /// The model's turn: the item holds text, reasoning and calls.
    Turn {
        /// The turn.
        item: Arc<Item>,
        /// Why it ended.
        end: End,
        /// What it cost.
        usage: Usage,
    },
    /// A call has its answer.
    Result(Arc<Item>),
    /// An event was taken.
    Event(Arc<Item>),
    /// The prompt could not be answered.
    Failure {
        /// What kind.
        class: FailureClass,
        /// What the user is told.
        message: String,
    },
    /// The thread waits; nothing runs until one of these is released.
    Waiting(Vec<Wait>),
    /// The thread was stopped.
    Stopped,
    /// The thread has a child more.
    Spawned {
        /// The child.
        child: ThreadId,
        /// The call that made it, or the subscription whose event it was made for.
        call: CallId,
        /// Whether it was made for an event.
        for_event: bool,
    },
    /// The thread was made by another one.
    Born {
        /// Its ancestors: the root first, its parent last.
        ancestors: Vec<ThreadId>,
    },
    /// A child, or a thread below one that has closed, has reported.
    Report {
        /// Who.
        from: ThreadId,
        /// What, as the model sees it.
        item: Arc<Item>,
    },
    /// The thread has closed; nothing more happens to it.
    Closed {
        /// How many children were told to close.
        children: usize,
        /// How many subscriptions were cancelled.
        subscriptions: usize,
        /// How many inputs the model has not seen.
        unseen: usize,
    },
    /// Something that the thread sent to another was not taken.
    Undelivered {
        /// To whom.
        to: ThreadId,
        /// Why.
        why: Undelivered,
    },
    /// A person is asked something.
    Question {
        /// The question's name.
        question: Number,
        /// The call that cannot go on without it.
        call: CallId,
        /// The tool.
        name: String,
        /// The call's arguments, JSON as text.
        arguments: String,
        /// What is asked.
        asks: Asks,
    },
    /// A person has answered a question.
    Verdict {
        /// Which.
        question: Number,
        /// The call that it was asked for.
        call: CallId,
        /// Who answered.
        origin: Origin,
        /// What.
        answer: Decision,
    },
    /// A tool has something for clients that show views.
    View {
        /// The call that it belongs to.
        call: CallId,
        /// Which kind of view.
        view_type: String,
        /// What it shows: the tool's own JSON as text.
        content: String,
    },
    /// A summary of what is oldest in the history is being made, beside the thread.
    Compacting {
        /// The thread that makes it.
        child: ThreadId,
        /// The last record that it is to cover.
        covers: Number,
        /// How much that is, in bytes of what the model reads.
        bytes: usize,
    },
    /// The summary stands in the history for what it covers; the records stay.
    Compacted {
        /// The last record that it covers.
        covers: Number,
        /// How long the history was, in bytes of what the model reads.
        bytes_before: usize,
        /// How long it is now.
        bytes_after: usize,
        /// What the summary cost.
        usage: Usage,
    },
    /// There is no summary, and the history is as long as it was.
    NotCompacted {
        /// Why.
        why: String,
    },
}

/// What a thread is suspended on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// A completion that the model has not ended.
    Model {
        /// The last record the prompt has seen.
        seen: Number,
    },
    /// A tool's result.
    Call {
        /// The call.
        call: CallId,
        /// The tool.
        name: String,
        /// When it was made, in milliseconds since the Unix epoch.
        since_ms: u64,
        /// Whether the tool has said that it took it over.
        accepted: bool,
        /// When it times out, in milliseconds since the Unix epoch; nothing if it may take as long as it wants.
        due_ms: Option<u64>,
    },
    /// A moment, or anything that arrives before.
    Timer {
        /// The sleeping call.
        call: CallId,
        /// When it was made, in milliseconds since the Unix epoch.
        since_ms: u64,
        /// When it is due, in milliseconds since the Unix epoch; unknown until the timer has said.
        due_ms: Option<u64>,
    },
    /// Anything that arrives.
    Input {
        /// The sleeping call, or nothing when the model has simply finished.
        call: Option<CallId>,
        /// Since when, in milliseconds since the Unix epoch.
        since_ms: u64,
    },
    /// A person's answer to a question.
    Question {
        /// The question's name: the number of its record.
        question: Number,
        /// The call that it is asked for.
        call: CallId,
        /// The tool.
        name: String,
        /// The call's arguments, JSON as text.
        arguments: String,
        /// What is asked.
        asks: Asks,
        /// When it was asked, in milliseconds since the Unix epoch.
        since_ms: u64,
    },
    /// A summary, without which the prompt does not fit the model.
    Summary {
        /// The thread that makes it.
        child: ThreadId,
        /// Since when, in milliseconds since the Unix epoch.
        since_ms: u64,
    },
}

/// What became of an input, for its sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is on stable storage and part of the thread.
    Taken(Number),
    /// It was already; the number is the first one's.
    Duplicate(Number),
    /// It changes nothing, and why.
    Refused(Refusal),
    /// An operator of this runtime does not let it in; it was not recorded.
    Declined(Declined),
}

/// Why an operator does not let an input in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Declined {
    /// What its sender is told: what was wrong and what to do.
    pub reason: String,
    /// When it may be sent again, in milliseconds from now; nothing if never.
    pub retry_after_ms: Option<u64>,
}

/// Why an input was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Refusal {
    /// There is no such thread, and this kind of input does not create one.
    UnknownThread,
    /// The thread made no such call.
    NoSuchCall,
    /// The thread has too many inputs that the model has not seen; come back later.
    QueueFull,
    /// The thread's records are damaged on disk.
    Damaged,
    /// The thread is closed.
    Closed,
    /// The thread has no such subscription.
    NoSuchSubscription,
    /// The subscription has ended or was cancelled.
    SubscriptionEnded,
    /// The post is not for this thread.
    Unrelated,
    /// The thread has asked no such question.
    NoSuchQuestion,
    /// The question has its answer.
    QuestionAnswered,
    /// Nobody waits for an answer any more: the call was stopped or has its result, or the tool has asked anew.
    QuestionWithdrawn,
    /// An answer of this kind does not fit the question.
    WrongAnswer,
    /// The question has no such choice.
    NoSuchChoice,
}

impl Refusal {
    /// The same, as the sender of a post is told.
    pub fn undelivered(self) -> Undelivered {
        match self {
            Refusal::Closed => Undelivered::Closed,
            Refusal::QueueFull => Undelivered::QueueFull,
            Refusal::Damaged => Undelivered::Damaged,
            Refusal::UnknownThread => Undelivered::Unknown,
            Refusal::NoSuchCall
            | Refusal::NoSuchSubscription
            | Refusal::SubscriptionEnded
            | Refusal::Unrelated
            | Refusal::NoSuchQuestion
            | Refusal::QuestionAnswered
            | Refusal::QuestionWithdrawn
            | Refusal::WrongAnswer
            | Refusal::NoSuchChoice => Undelivered::Unrelated,
        }
    }
}

impl Answered {
    /// The text of what it says, pieces that are no text left out.
    pub fn text(&self) -> String {
        self.content
            .iter()
            .filter_map(|piece| match piece {
                crate::record::Content::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect::<Vec<_>>()
            .join("\n")
    }
}
