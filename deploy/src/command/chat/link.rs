//! The link between a chat and a thread: in this process, or over HTTP.
//!
//! In: messages. Out: the thread's events from the first message on, in one form. Always: nothing is shown twice and nothing
//! left out; which runtime answers is said when it is not the one that was asked for.

use crate::command::Failure;
pub(super) use crate::command::client::Told;
use crate::command::client::{Client, Events, running};
use crate::config::{Config, Loaded};
use crate::output;
use serde_json::{Value, json};
use slackwater::gateway::name::{self, Address};
use slackwater::gateway::{Event, GatewayError, Shards, Subscription, outputs};
use slackwater::journal::JournalError;
use slackwater::{Builder, Runtime, RuntimeError};
use slackwater_core::effect::Outcome;
use slackwater_core::id::OutputId;
use slackwater_core::port::{Query, Reply};
use slackwater_core::record::{Compact, CompactWhy, Content, Decision, Message, Origin, Proof, Record, Stop, Verdict};

/// A link to one thread.
pub(super) struct Link {
    address: Address,
    reach: Reach,
}

enum Reach {
    /// A runtime of this process.
    Here { runtime: Box<Runtime>, events: Option<Subscription> },
    /// A runtime elsewhere.
    There { client: Client, events: Option<Box<Events>> },
}

impl Told {
    /// The number of the record it came from; 0 for pieces of a completion that has none yet.
    pub(super) fn number(&self) -> u64 {
        let number = self.id.as_ref().and_then(|id| id.split('.').next()?.parse().ok());
        number.unwrap_or(0)
    }
}

impl Link {
    /// A link to the runtime at a URL.
    pub(super) fn to(url: &str, key: Option<String>, thread: &str) -> Result<Self, Failure> {
        let client = Client::new(url, key).map_err(|problem| Failure::Usage(format!("--url: {problem}")))?;
        Ok(Self { address: address(thread)?, reach: Reach::There { client, events: None } })
    }

    /// A link to a runtime that is started here; or to the one that runs on the directory already.
    pub(super) async fn here(
        loaded: &Loaded,
        thread: &str,
        build: impl Fn(&Config) -> Result<Builder, Failure>,
    ) -> Result<Self, Failure> {
        let address = address(thread)?;
        let mut config = loaded.config.clone();
        let mut started = build(&config)?.start().await;
        if matches!(&started, Err(RuntimeError::Gateway(GatewayError::Listen { .. })))
            && !loaded.says("gateway", "listen")
        {
            // Nobody said that it must be this address, and nobody but tools has to find a chat.
            config.gateway.listen.set_port(0);
            started = build(&config)?.start().await;
        }
        match started {
            Ok(runtime) => {
                for trouble in runtime.troubles() {
                    output::note(format!("note: the tools of {} cannot be used yet: {}", trouble.server, trouble.why));
                }
                Ok(Self { address, reach: Reach::Here { runtime: Box::new(runtime), events: None } })
            }
            Err(RuntimeError::Journal(error)) if matches!(*error, JournalError::Owned { .. }) => {
                let client =
                    running(&config.directory, std::env::var("SLACKWATER_KEY").ok()).await.ok_or_else(|| {
                        Failure::Failed(format!("{error}; to talk to it, say where it listens with --url"))
                    })?;
                output::note(format!(
                    "note: a runtime runs on {} already; talking to it at {}",
                    config.directory.display(),
                    client.url()
                ));
                Ok(Self { address, reach: Reach::There { client, events: None } })
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the runtime is this process.
    pub(super) fn is_here(&self) -> bool {
        matches!(self.reach, Reach::Here { .. })
    }

    /// What the thread is called.
    pub(super) fn name(&self) -> &str {
        self.address.name.as_deref().unwrap_or("of this id")
    }

    /// The thread's id.
    pub(super) fn thread(&self) -> String {
        self.address.thread.to_string()
    }

    /// Where the thread stands, if there is one; its events are shown from here on.
    pub(super) async fn resume(&mut self) -> Result<Option<Value>, Failure> {
        let thread = self.address.thread;
        let standing = match &self.reach {
            Reach::Here { runtime, .. } => {
                match runtime.shards().query(Query::Thread(thread)).await.map_err(Failure::because)? {
                    Reply::Thread(standing) => Some(outputs::standing(&standing)),
                    Reply::Damaged(reason) => return Err(Failure::Failed(reason)),
                    _ => None,
                }
            }
            Reach::There { client, .. } => match client.get(&format!("/v1/threads/{thread}")).await {
                Ok(standing) => Some(standing),
                Err(crate::command::client::ClientError::Problem { status: 404, .. }) => None,
                Err(error) => return Err(Failure::because(error)),
            },
        };
        if let Some(last) = standing.as_ref().and_then(|standing| standing["last"].as_u64()) {
            self.follow(last).await?;
        }
        Ok(standing)
    }

    /// Sends a message; its number, once it is durable.
    pub(super) async fn send(&mut self, text: &str) -> Result<u64, Failure> {
        let id = Shards::fresh_id();
        let number = match &self.reach {
            Reach::Here { runtime, .. } => {
                let record = Record::Message(Message {
                    id,
                    origin: origin(),
                    content: vec![Content::Text(text.to_owned())],
                    thread_name: self.address.name.clone(),
                    metadata: None,
                });
                match runtime.shards().submit(self.address.thread, record).await.map_err(Failure::because)? {
                    Outcome::Taken(number) | Outcome::Duplicate(number) => number,
                    Outcome::Refused(why) => return Err(Failure::Failed(format!("the message was refused: {why:?}"))),
                    Outcome::Declined(declined) => return Err(Failure::Failed(declined.reason)),
                }
            }
            Reach::There { client, .. } => {
                let taken = client.send(&self.path(), &id.0, text).await.map_err(Failure::because)?;
                taken["number"].as_u64().unwrap_or_default()
            }
        };
        self.follow(number.saturating_sub(1)).await?;
        Ok(number)
    }

    /// Stops what the thread is doing, perhaps with all below it.
    pub(super) async fn stop(&mut self, subtree: bool) -> Result<(), Failure> {
        match &self.reach {
            Reach::Here { runtime, .. } => {
                let stop = Stop { id: Shards::fresh_id(), origin: origin() };
                let record = if subtree { Record::StopAll(stop) } else { Record::Stop(stop) };
                runtime.shards().submit(self.address.thread, record).await.map_err(Failure::because)?;
            }
            Reach::There { client, .. } => {
                client.stop(&self.path(), subtree).await.map_err(Failure::because)?;
            }
        }
        Ok(())
    }

    /// Answers a question of the thread; the answer's number, once it is durable.
    pub(super) async fn answer(&mut self, question: u64, answer: Decision) -> Result<u64, Failure> {
        let id = Shards::fresh_id();
        match &self.reach {
            Reach::Here { runtime, .. } => {
                let record = Record::Answered(Verdict { id, origin: origin(), question, answer });
                match runtime.shards().submit(self.address.thread, record).await.map_err(Failure::because)? {
                    Outcome::Taken(number) | Outcome::Duplicate(number) => Ok(number),
                    Outcome::Refused(why) => Err(Failure::Failed(format!("the answer was refused: {why:?}"))),
                    Outcome::Declined(declined) => {
                        Err(Failure::Failed(format!("the answer was not let in: {}", declined.reason)))
                    }
                }
            }
            Reach::There { client, .. } => {
                let mut said = match answer {
                    Decision::Approve => json!({"approve": true}),
                    Decision::Deny { reason } => json!({"approve": false, "reason": reason}),
                    Decision::Choose { index } => json!({"choice": index}),
                };
                said["question"] = json!(question);
                said["id"] = json!(id.0);
                let taken = client.answer(&self.path(), &said).await.map_err(Failure::because)?;
                Ok(taken["number"].as_u64().unwrap_or_default())
            }
        }
    }

    /// Has the thread's history summarized.
    pub(super) async fn compact(&mut self) -> Result<(), Failure> {
        match &self.reach {
            Reach::Here { runtime, .. } => {
                let why = CompactWhy::ByHand;
                let compact = Record::Compact(Compact { id: Shards::fresh_id(), origin: origin(), why });
                let outcome = runtime.shards().submit(self.address.thread, compact).await.map_err(Failure::because)?;
                if let Outcome::Refused(why) = outcome {
                    return Err(Failure::Failed(format!("there is nothing to compact: {why:?}")));
                }
            }
            Reach::There { client, .. } => {
                client.compact(&self.path()).await.map_err(Failure::because)?;
            }
        }
        Ok(())
    }

    /// The next event; never, while nothing was said. It may be dropped and called again without loss.
    pub(super) async fn next(&mut self) -> Result<Told, Failure> {
        match &mut self.reach {
            Reach::Here { events: Some(events), .. } => {
                let ended = || Event::End("the stream has ended".to_owned());
                let (id, (kind, data)) = match events.next().await.unwrap_or_else(ended) {
                    Event::Output(output) => (Some(output.id.to_string()), outputs::output(&output)),
                    Event::Chunk(chunk) => (None, outputs::chunk(&chunk)),
                    Event::End(reason) => return Err(Failure::Failed(reason)),
                };
                Ok(Told { id, kind: kind.to_owned(), data })
            }
            Reach::There { events: Some(events), .. } => events.next().await.map_err(Failure::because),
            Reach::Here { events: None, .. } | Reach::There { events: None, .. } => std::future::pending().await,
        }
    }

    /// Ends it; a runtime of this process is stopped.
    pub(super) async fn close(self) {
        if let Reach::Here { runtime, events } = self.reach {
            drop(events);
            if let Err(error) = runtime.stop().await {
                output::note(error);
            }
        }
    }

    /// Has events shown that come after a record, unless they are shown already.
    async fn follow(&mut self, number: u64) -> Result<(), Failure> {
        let after = OutputId { number, index: u16::MAX };
        let path = self.path();
        match &mut self.reach {
            Reach::Here { runtime, events: events @ None } => {
                let subscribed = runtime.shards().subscribe(self.address.thread, after);
                *events = Some(subscribed.map_err(Failure::because)?);
            }
            Reach::There { client, events: events @ None } => {
                let opened = client.events(&path, Some(&after.to_string())).await;
                *events = Some(Box::new(opened.map_err(Failure::because)?));
            }
            Reach::Here { .. } | Reach::There { .. } => {}
        }
        Ok(())
    }

    /// The thread as it stands in a path. By its name, so that a thread that is made has it.
    fn path(&self) -> String {
        self.address.name.clone().unwrap_or_else(|| self.address.thread.to_string())
    }
}

fn address(thread: &str) -> Result<Address, Failure> {
    name::address(thread).map_err(|error| Failure::Usage(format!("--thread: {thread:?} addresses no thread: {error}")))
}

fn origin() -> Origin {
    Origin { who: "chat".to_owned(), proof: Proof::Process }
}
