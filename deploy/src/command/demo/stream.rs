//! The thread's stream of outputs, as the story sees it.
//!
//! In: events of the thread. Out: the one that is waited for. Always: an output that comes again or out of order is a failure
//! of the demo, also when the runtime was started anew in between.

use super::look::{check, within};
use crate::command::Failure;
use crate::command::client::{Client, Events, Told};
use slackwater_core::id::OutputId;

/// The thread's stream, over both lives of the runtime.
#[derive(Default)]
pub(super) struct Stream {
    events: Option<Events>,
    /// The place of the last output.
    last: Option<OutputId>,
    /// What was seen, less what the thread waited for.
    pub(super) kinds: Vec<String>,
}

impl Stream {
    /// Connects, to go on after the last output.
    pub(super) async fn connect(&mut self, client: &Client, thread: &str) -> Result<(), Failure> {
        let last = self.last.map(|last| last.to_string());
        self.events = Some(client.events(thread, last.as_deref()).await.map_err(Failure::because)?);
        Ok(())
    }

    /// Lets go of the connection.
    pub(super) fn disconnect(&mut self) {
        self.events = None;
    }

    /// Waits for an output of this kind; others, and pieces of a completion, are passed over.
    pub(super) async fn next(&mut self, kind: &str) -> Result<Told, Failure> {
        let told = within(&format!("the stream has a {kind}"), self.until(kind)).await??;
        check(told.kind == kind, "the agent failed", &told.data)?;
        Ok(told)
    }

    async fn until(&mut self, kind: &str) -> Result<Told, Failure> {
        let events = self.events.as_mut().expect("invariant: the story connects before it listens");
        loop {
            let told = events.next().await.map_err(Failure::because)?;
            let Some(id) = told.id.as_ref().and_then(|id| id.parse().ok()) else { continue };
            check(self.last < Some(id), "an output came again, or out of order", &told.data)?;
            self.last = Some(id);
            if told.kind != "waiting" {
                self.kinds.push(told.kind.clone());
            }
            if told.kind == kind || told.kind == "failure" {
                return Ok(told);
            }
        }
    }
}
