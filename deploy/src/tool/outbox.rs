//! The outbox: how a tool's answer becomes an arrival.
//!
//! In: a call and what became of it. Out: an arrival, stamped with the time. Always: its origin is this process.

use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::{Arrival, Content, Origin, Proof, Record, ToolResult};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::mpsc;

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

    /// Says how long a call that is begun now may take, if that is said at all.
    pub(super) fn put_deadline(&self, thread: ThreadId, call: CallId, timeout_ms: Option<u64>) {
        if let Some(timeout_ms) = timeout_ms {
            self.put(thread, Record::Deadline { call, due_ms: now_ms().saturating_add(timeout_ms) });
        }
    }
}

/// The result of a call that no tool was asked to do: it tells the model why, and what to do.
pub(super) fn refused(call: CallId, text: impl Into<String>) -> Record {
    error(call, Origin::runtime(), text.into())
}

/// The result of a call that a tool did not do well: it tells the model what went wrong, and what to do.
pub(super) fn failed(call: CallId, who: &str, text: impl Into<String>) -> Record {
    error(call, Origin { who: who.to_owned(), proof: Proof::Process }, text.into())
}

fn error(call: CallId, origin: Origin, text: String) -> Record {
    Record::Result(ToolResult {
        call,
        origin,
        content: vec![Content::Text(text)],
        is_error: true,
        subscription: false,
        display: None,
    })
}

/// The time, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
