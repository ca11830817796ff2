//! Why a thread does not go on, for people and programs that ask.
//!
//! In: the thread. Out: where it stands, since when its model is asked, and all from which something may yet come. Always:
//! derived, never kept; the list of children is bounded.

use super::{CHILDREN_LISTED_MAX, Standing, Thread};
use crate::id::{CallId, ThreadId};
use serde::{Deserialize, Serialize};

/// Why a thread does not go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Why {
    /// Where it stands, with what it waits for.
    pub standing: Standing,
    /// Since when its model is asked, in milliseconds since the Unix epoch; nothing while it is not.
    pub asked_ms: Option<u64>,
    /// Its active subscriptions, in the order in which they were made.
    pub subscriptions: Vec<Listening>,
    /// Its children that are not closed, by id, the first [`CHILDREN_LISTED_MAX`] of them; `standing.children` counts all.
    pub children: Vec<Living>,
}

/// A subscription from which events may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The call that subscribed.
    pub call: CallId,
    /// The tool.
    pub name: String,
    /// The call's arguments, JSON as text.
    pub arguments: String,
    /// How many children handle its events.
    pub handling: usize,
    /// How many events wait for such a child.
    pub queued: usize,
    /// How many events wait for their digest.
    pub gathered: usize,
    /// When that is due at the latest, in milliseconds since the Unix epoch.
    pub due_ms: Option<u64>,
}

/// A child from which a report may come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Living {
    /// The child.
    pub thread: ThreadId,
    /// When it was made, in milliseconds since the Unix epoch.
    pub since_ms: u64,
    /// What it does, in a few words.
    pub task: String,
    /// The subscription whose event it handles.
    pub subscription: Option<CallId>,
}

impl Thread {
    /// How many items of its history are its ancestors'.
    pub fn inherited(&self) -> usize {
        self.inherited
    }

    /// Why the thread does not go on.
    pub fn why(&self) -> Why {
        let active = self.subscriptions.iter().filter(|(_, subscription)| !subscription.ended);
        let subscriptions = active.map(|(&call, subscription)| Listening {
            call,
            name: subscription.cause.name.clone(),
            arguments: subscription.cause.arguments.clone(),
            handling: subscription.handling,
            queued: subscription.queue.len(),
            gathered: subscription.gathered.len(),
            due_ms: subscription.due_ms,
        });
        let living = self.children.iter().filter(|(_, child)| !child.closed).take(CHILDREN_LISTED_MAX);
        let children = living.map(|(&thread, child)| Living {
            thread,
            since_ms: child.since_ms,
            task: child.task(),
            subscription: child.subscription,
        });
        Why {
            standing: self.standing(),
            asked_ms: self.asked.filter(|_| self.wants_completion()).map(|(_, at_ms)| at_ms),
            subscriptions: subscriptions.collect(),
            children: children.collect(),
        }
    }
}
