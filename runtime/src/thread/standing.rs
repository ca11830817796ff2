//! Where a thread stands, for people and programs that ask.
//!
//! In: the thread. Out: its name, size, state and waits. Always: derived, never kept.

use super::{Phase, Thread};
use crate::effect::{Due, Wait};
use crate::id::{Number, ThreadId};
use serde::{Deserialize, Serialize};

/// Where a thread stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Which thread.
    pub thread: ThreadId,
    /// The name under which it was made, if it has one.
    pub name: Option<String>,
    /// What it is doing.
    pub state: State,
    /// What it waits for; empty while nothing has happened to it, and when it is closed.
    pub waits: Vec<Wait>,
    /// The number of its last record.
    pub last: Number,
    /// When that was received, in milliseconds since the Unix epoch.
    pub last_at_ms: u64,
    /// How many items its history holds, as its model sees it: a summary is one item.
    pub items: usize,
    /// How many inputs wait for its model's next turn.
    pub pending: usize,
    /// The thread that made it; nothing for a root.
    pub parent: Option<ThreadId>,
    /// How many children of it are not closed.
    pub children: usize,
    /// How many subscriptions of it are active.
    pub subscriptions: usize,
    /// What its records take in the journal, in bytes. The fold does not know: it says 0, and the journal fills it in.
    pub bytes: u64,
}

/// What a thread is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Its model is asked.
    Thinking,
    /// A tool works for it.
    Working,
    /// It sleeps until a time or until something arrives.
    Sleeping,
    /// It has said all it wanted and waits for an input.
    Idle,
    /// It is closed; nothing more happens to it.
    Closed,
    /// It waits for a person's answer, and nothing else is done for it.
    Asking,
}

impl Thread {
    /// Where the thread stands.
    pub fn standing(&self) -> Standing {
        // A call whose tool was told that nobody waits is not waited for.
        let mut waits: Vec<Wait> = self
            .calls()
            .filter(|(_, call)| call.phase != Phase::Dropped)
            .map(|(id, call)| match &call.phase {
                Phase::Dispatched | Phase::Accepted | Phase::Responding(_) | Phase::Dropped => Wait::Call {
                    call: id,
                    name: call.name.clone(),
                    since_ms: call.since_ms,
                    accepted: call.phase != Phase::Dispatched,
                    due_ms: call.due_ms,
                },
                Phase::Asking(question) => Wait::Question {
                    question: *question,
                    call: id,
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                    asks: self.questions[question].asks.clone(),
                    since_ms: self.questions[question].since_ms,
                },
                Phase::Sleeping(due) => Wait::Timer {
                    call: id,
                    since_ms: call.since_ms,
                    due_ms: match due {
                        Due::At(due_ms) => Some(*due_ms),
                        Due::Wall { .. } => None,
                    },
                },
                Phase::Dozing => Wait::Input { call: Some(id), since_ms: call.since_ms },
            })
            .collect();
        let state = if self.closed.is_some() {
            State::Closed
        } else if self.wants_completion() {
            waits.push(Wait::Model { seen: self.last });
            State::Thinking
        } else if let Some(attempt) = self.compaction.running.filter(|_| self.compaction.holds()) {
            waits.push(Wait::Summary { child: attempt.child, since_ms: attempt.since_ms });
            State::Thinking
        } else if self.open.values().any(|call| !call.is_sleep() && !matches!(call.phase, Phase::Asking(_))) {
            State::Working
        } else if self.open.values().any(|call| !call.is_sleep()) {
            State::Asking
        } else if !self.open.is_empty() {
            State::Sleeping
        } else {
            if self.last > 0 {
                waits.push(Wait::Input { call: None, since_ms: self.idle_since_ms.unwrap_or(self.last_at_ms) });
            }
            State::Idle
        };
        Standing {
            thread: self.id,
            name: self.name.clone(),
            state,
            waits,
            last: self.last,
            last_at_ms: self.last_at_ms,
            items: self.history.len(),
            pending: self.pending.len(),
            parent: self.parent(),
            children: self.living,
            subscriptions: self.subscriptions.values().filter(|subscription| !subscription.ended).count(),
            bytes: 0,
        }
    }
}
