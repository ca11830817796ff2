//! The outbox: how a tool's answer becomes an arrival.
//!
//! In: a call and what became of it. Out: an arrival, stamped with the time. Always: its origin is this process.

use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::{Arrival, Content, Origin, Proof, Record, ToolResult};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

/// Who answers when no tool could.
pub(super) const RUNTIME: &str = "slackwater";

/// Where arrivals go. A clone is the same.
#[derive(Clone, Debug)]
pub(super) struct Outbox(mpsc::UnboundedSender<Arrival>);

impl Outbox {
    /// An outbox that puts arrivals there.
    pub(super) fn new(send: mpsc::UnboundedSender<Arrival>) -> Self {
        Self(send)
    }

    /// Sends a record to its thread.
    pub(super) fn put(&self, thread: ThreadId, record: Record) {
        // A closed end is a flow that has stopped; at its next start it asks again.
        let _ = self.0.send(Arrival { ticket: None, thread, at_ms: now_ms(), record });
    }
}

/// The result that tells the model what went wrong and what to do.
pub(super) fn failed(call: CallId, who: &str, text: impl Into<String>) -> Record {
    Record::Result(ToolResult {
        call,
        origin: Origin { who: who.to_owned(), proof: Proof::Process },
        content: vec![Content::Text(text.into())],
        is_error: true,
        subscription: false,
        display: None,
    })
}

/// The time, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
