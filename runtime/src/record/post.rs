//! Posts: what threads of one tree send each other.
//!
//! In: what a thread has for another. Out: a record of that one, and a receipt for its sender. Always: a post's name says who
//! sent it; what a child inherits is named and not copied.

use super::{Arrival, Content, Record, Terms, Usage};
use crate::id::{Number, PostId, ThreadId};
use serde::{Deserialize, Serialize};

/// Something that one thread sends to another of the same tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Post {
    /// Its name, which says who sent it.
    pub id: PostId,
    /// What it is.
    pub body: PostBody,
}

/// What one thread sends to another of the same tree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PostBody {
    /// To a child: come into being.
    Birth(Box<Birth>),
    /// To a child: the parent's model says something.
    Message(String),
    /// To an ancestor: a report.
    Report {
        /// The child of the receiver in whose subtree the sender is.
        branch: ThreadId,
        /// What it says.
        text: String,
    },
    /// To a child: close, with all below.
    Close,
    /// To the parent: the sender has closed.
    Closed,
    /// To a child: stop, with all below.
    Stop,
    /// To a child: come into being, summarize, and close.
    Summarize {
        /// What it is made of: it inherits the parent's history.
        birth: Box<Birth>,
        /// The last record of the parent that the summary covers.
        covers: Number,
        /// How many of the oldest items of that history those are; the others are not inherited.
        items: u64,
    },
    /// To the parent: the summary it wanted.
    Summary {
        /// The last record that it covers.
        covers: Number,
        /// What it says.
        text: String,
        /// What it cost.
        usage: Usage,
    },
    /// To the parent: there is no summary.
    SummaryFailed {
        /// Why, in words.
        why: String,
        /// Whether what was to be summarized did not fit the model.
        overflow: bool,
    },
}

/// What a child is made of. Its parent's records are named and not copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Birth {
    /// Its ancestors: the root first, its parent last.
    pub ancestors: Vec<ThreadId>,
    /// The last record of the parent that it inherits; no call was open after it.
    pub through: Number,
    /// Whether it inherits nothing.
    pub fresh: bool,
    /// The `spawn_thread` call that made it; the runtime's own for a child that was made for an event.
    pub spawn: Cause,
    /// The event that it was made for, and the call that subscribed to it.
    pub event: Option<(Cause, Vec<Content>)>,
    /// The terms on which it works, if they are not those of every agent.
    pub terms: Option<Terms>,
}

/// The call that gave rise to something.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cause {
    /// The tool's name.
    pub name: String,
    /// The provider's id of the call.
    pub provider_id: String,
    /// The arguments, JSON as text.
    pub arguments: String,
}

/// What became of a post.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Which.
    pub post: PostId,
    /// Nothing when its receiver has it on stable storage; or why it does not take it.
    pub refused: Option<Undelivered>,
}

/// Why a post was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Undelivered {
    /// The receiver is closed.
    Closed,
    /// There is no such thread.
    Unknown,
    /// The receiver has too many inputs that its model has not seen.
    QueueFull,
    /// The receiver's records, or those that it inherits, are damaged on disk.
    Damaged,
    /// The receiver is no relative of the sender, or came into being already.
    Unrelated,
}

impl Post {
    /// What its sender is told of it.
    pub fn receipt(&self, at_ms: u64, refused: Option<Undelivered>) -> Arrival {
        let record = Record::Delivered(Receipt { post: self.id, refused });
        Arrival { ticket: None, thread: self.id.from, at_ms, record }
    }
}
