//! The ports: what crosses between the flow and each adapter.
//!
//! In and out: each adapter is a pair of a stream and a sink, and these are their items; the same in one process, in a
//! cluster (where an adapter is a Hydro sidecar) and in the simulator. Always: plain data that can be written down.

use crate::effect::{Dispatch, Due, Outcome, Output, Prompt, Respond};
use crate::history::Item;
use crate::id::{CallId, Number, OutputId, ThreadId, Ticket, shard_of};
use crate::record::{Arrival, Committed, Origin};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the journal is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToJournal {
    /// Append these together. Answered by [`FromJournal::Committed`] in the same order once they are on stable storage.
    Append(Vec<Arrival>),
    /// Read a thread's records with numbers below `before`. Answered by one [`FromJournal::Recalled`].
    Recall {
        /// Which thread.
        thread: ThreadId,
        /// The number of the first record that is not wanted. The journal holds all those below it, so that what is
        /// recalled and what is committed meet without gap or repeat.
        before: Number,
    },
    /// The thread has left memory: nothing of it is in flight. A hint for the next start; not synced on its own.
    Rest(Rest),
    /// Answer a question about what is durable. Answered by [`FromJournal::Reply`].
    Query(Ticket, Query),
}

/// What a thread that has left memory waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rest {
    /// Which thread.
    pub thread: ThreadId,
    /// The last record applied when it left. If later ones exist, the hint is void.
    pub through: Number,
    /// Its timers: the sleeping calls and when they are due, in milliseconds since the Unix epoch. With [`NEVER`] in its place
    /// a call is named that a tool has taken over, so that the tool can be asked at the next start whether it still knows it.
    pub timers: Vec<(CallId, u64)>,
}

/// In place of the moment at which a timer is due: there is no timer.
pub const NEVER: u64 = u64::MAX;

/// What the journal answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromJournal {
    /// These are on stable storage.
    Committed(Vec<Committed>),
    /// This was not appended: a first record that may not be one, or a thread whose records are damaged.
    Refused(Arrival, crate::effect::Refusal),
    /// A thread's records, oldest first.
    Recalled {
        /// Which thread.
        thread: ThreadId,
        /// Its records; or damage, in words, in which case the thread is refused.
        records: Result<Vec<Committed>, String>,
        /// What it inherits, the oldest ancestor first: each one's records, through the last that the next one inherits.
        ancestry: Vec<(ThreadId, Vec<Committed>)>,
    },
    /// At a start: this thread had something in flight when the last run ended.
    Wake {
        /// Which thread.
        thread: ThreadId,
        /// The number of its last record.
        last: Number,
    },
    /// At a start: this thread rests and has timers.
    Resting(Rest),
    /// The answer to a query.
    Reply(Ticket, Reply),
    /// From the host, beside what the journal says: threads that rest may take so much memory from now on. Until it is said,
    /// they may take none.
    KeepWarm {
        /// How many bytes, by the flow's estimate.
        max_bytes: usize,
    },
}

/// What the model is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToModel {
    /// Answer this prompt.
    Prompt(Prompt),
    /// End this prompt's answer now. One that is unknown or already answered is left alone.
    Cut {
        /// Whose prompt.
        thread: ThreadId,
        /// The prompt's `seen`.
        seen: Number,
    },
    /// Do not answer this prompt: fail it for this reason. Said by an operator.
    Refuse(Prompt, String),
}

/// What the model sends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromModel {
    /// Pieces of completions that are still streaming, each prompt's oldest first: those that the provider sent together are
    /// one item. Not journaled.
    Chunks(Vec<Chunk>),
    /// The prompt's one answer: `Record::Completion` or `Record::Failure`. After a completion that took too much of the model's
    /// window, once more with `Record::Compact`. Boxed, because the pieces of it are many and small.
    Answer(Box<Arrival>),
}

/// A piece of a completion that is still streaming.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chunk {
    /// Whose prompt.
    pub thread: ThreadId,
    /// The prompt's `seen`.
    pub seen: Number,
    /// The piece.
    pub part: Part,
}

/// What a chunk says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// The model was asked.
    Started,
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// What was streamed so far of this prompt is void; it is tried again.
    Void,
}

/// What the tools are asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToTool {
    /// Do this call. Answered by `Record::Accepted` and later `Record::Result`, or by the result at once; or, while it is
    /// not approved, by `Record::Asked` instead. It may be asked again under the same name after a crash.
    Dispatch(Dispatch),
    /// Nobody waits for this call any more.
    Cancel(Dispatch),
    /// Tell the tool what was chosen. Answered by `Record::Responded`, or by a result that says that it could not be told.
    Respond(Respond),
    /// This thread has closed.
    Close(ThreadId),
    /// Do you still know this call? Answered by `Record::Lost` if the tool says that it does not.
    Check(Dispatch),
    /// Do not do this call: answer it with an error result that gives this reason. Said by an operator.
    Refuse(Dispatch, String),
}

/// What a toolhost says to a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromToolhost {
    /// What tools say: that they took a call over, results of local tools.
    Arrival(Box<Arrival>),
    /// The tools that it has from now on.
    Offer {
        /// Which toolhost of the group, counted from 0.
        toolhost: u32,
        /// The tools, as JSON text.
        tools: String,
    },
}

/// What the timers are asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToTimer {
    /// Send `Record::Fired` when it is due; arming a timer again under the same name replaces it.
    Arm {
        /// Whom to wake.
        thread: ThreadId,
        /// The timer's name.
        call: CallId,
        /// When.
        due: Due,
    },
    /// Forget it.
    Disarm {
        /// Whose.
        thread: ThreadId,
        /// The timer's name.
        call: CallId,
    },
}

/// What a gateway is told by a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToGateway {
    /// What became of a request.
    Answer(Ticket, Outcome),
    /// A numbered output.
    Output(Output),
    /// Pieces of completions that are still streaming, each prompt's oldest first.
    Chunks(Vec<Chunk>),
    /// The answer to a query.
    Reply(Ticket, Reply),
    /// By how much the number of threads in memory has changed. Changes of several shards add up.
    Awake(isize),
}

/// What a gateway asks of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum FromGateway {
    /// Take this input. Answered by [`ToGateway::Answer`] when it has a ticket.
    Submit(Arrival),
    /// Answer a question about what is durable. Answered by [`ToGateway::Reply`].
    Query(Ticket, Query),
    /// Somebody at this gateway begins to listen to a thread, or nobody does any more. Not answered: a question that follows
    /// is about what was told before, and what is told after its answer is heard. Where gateway and shard are one process,
    /// everything is told anyway.
    Listen {
        /// Which thread.
        thread: ThreadId,
        /// Whether somebody listens from now on.
        on: bool,
    },
}

/// A question about what is durable. It changes nothing and does not wake the thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Query {
    /// Where a thread stands.
    Thread(ThreadId),
    /// A thread's outputs after the given one, oldest first, all of them or the first `limit`.
    Outputs {
        /// Which thread.
        thread: ThreadId,
        /// The last output that the asker has; `OutputId::default()` for none.
        after: OutputId,
        /// How many at most.
        limit: usize,
    },
    /// The threads of one shard by id, after the given one.
    Threads {
        /// Which shard, counted from 0.
        shard: u32,
        /// The last thread that the asker has.
        after: Option<ThreadId>,
        /// How many at most.
        limit: usize,
    },
    /// What a thread waits for, and all that may release it.
    Why(ThreadId),
    /// What the model sees of a thread, oldest first.
    View {
        /// Which thread.
        thread: ThreadId,
        /// How many items the asker has.
        after: usize,
        /// How many at most.
        limit: usize,
    },
    /// A thread's records, oldest first.
    Records {
        /// Which thread.
        thread: ThreadId,
        /// The number of the last record that the asker has; 0 for none.
        after: Number,
        /// How many at most.
        limit: usize,
    },
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Reply {
    /// Where the thread stands.
    Thread(crate::thread::Standing),
    /// The outputs, and whether these are all.
    Outputs(Vec<Output>, bool),
    /// The threads.
    Threads(Vec<crate::thread::Standing>),
    /// There is no such thread.
    UnknownThread,
    /// The thread cannot be read, and why.
    Damaged(String),
    /// What the thread waits for.
    Why(Box<crate::thread::Why>),
    /// What the model sees.
    View(View),
    /// The records, and whether these are all.
    Records(Vec<Kept>, bool),
}

/// A part of what the model sees of a thread, less the system text and the tools, which are the same for every thread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct View {
    /// The items, in order.
    pub items: Vec<Arc<Item>>,
    /// The place of the first of them, from 0.
    pub first: usize,
    /// How many there are in all.
    pub total: usize,
    /// How many of all, from the first on, are its ancestors'.
    pub inherited: usize,
    /// How many of all, from the last back, the model has not answered yet.
    pub pending: usize,
}

/// A record, as one who looks at a journal is told of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Its place in its thread.
    pub number: Number,
    /// When it was received, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// The name of its kind.
    pub kind: String,
    /// What it takes in the journal, in bytes.
    pub bytes: u64,
    /// Who sent it, and how that is known.
    pub origin: Origin,
    /// What it says, in a few words.
    pub gist: String,
}

impl Query {
    /// The one thread that it is about, if it is.
    pub fn thread(&self) -> Option<ThreadId> {
        match self {
            Query::Thread(thread)
            | Query::Why(thread)
            | Query::Outputs { thread, .. }
            | Query::View { thread, .. }
            | Query::Records { thread, .. } => Some(*thread),
            Query::Threads { .. } => None,
        }
    }
}

impl ToJournal {
    /// A question, with the ticket of who asks.
    pub fn query((ticket, query): (Ticket, Query)) -> Self {
        ToJournal::Query(ticket, query)
    }
}

impl ToGateway {
    /// Whether it is for the gateway with this number: its own answers, and what clients are shown, who may be anywhere.
    pub fn is_for(&self, gateway: u32) -> bool {
        match self {
            ToGateway::Answer(ticket, _) | ToGateway::Reply(ticket, _) => ticket.gateway == gateway,
            ToGateway::Output(_) | ToGateway::Chunks(_) | ToGateway::Awake(_) => true,
        }
    }
}

impl FromGateway {
    /// Whether it is an input.
    pub fn is_submit(&self) -> bool {
        matches!(self, FromGateway::Submit(_))
    }

    /// The input, if it is one.
    pub fn into_submit(self) -> Option<Arrival> {
        match self {
            FromGateway::Submit(arrival) => Some(arrival),
            FromGateway::Query(..) | FromGateway::Listen { .. } => None,
        }
    }

    /// The input, if it is one, to be changed.
    pub fn arrival(&mut self) -> Option<&mut Arrival> {
        match self {
            FromGateway::Submit(arrival) => Some(arrival),
            FromGateway::Query(..) | FromGateway::Listen { .. } => None,
        }
    }

    /// The shard that it is for, where this says which one a thread is at.
    pub fn shard_by(&self, at: impl FnOnce(ThreadId) -> u32) -> u32 {
        let thread = match self {
            FromGateway::Submit(arrival) => Some(arrival.thread),
            FromGateway::Listen { thread, .. } => Some(*thread),
            FromGateway::Query(_, Query::Threads { shard, .. }) => return *shard,
            FromGateway::Query(_, query) => query.thread(),
        };
        thread.map_or(0, at)
    }

    /// The question, if it is one.
    pub fn into_query(self) -> Option<(Ticket, Query)> {
        match self {
            FromGateway::Submit(_) | FromGateway::Listen { .. } => None,
            FromGateway::Query(ticket, query) => Some((ticket, query)),
        }
    }
}

impl ToTool {
    /// Whose call it is about, or which thread has closed.
    pub fn thread(&self) -> ThreadId {
        match self {
            ToTool::Dispatch(dispatch)
            | ToTool::Cancel(dispatch)
            | ToTool::Check(dispatch)
            | ToTool::Refuse(dispatch, _) => dispatch.thread,
            ToTool::Respond(respond) => respond.thread,
            ToTool::Close(thread) => *thread,
        }
    }

    /// The toolhost that it is for, of so many. What is said of a call goes where the call went.
    pub fn toolhost(&self, toolhosts: u32) -> u32 {
        shard_of(self.thread(), toolhosts)
    }
}

impl FromToolhost {
    /// Whether it is to become a record.
    pub fn is_arrival(&self) -> bool {
        matches!(self, FromToolhost::Arrival(_))
    }

    /// The record that it is to become, if it is.
    pub fn into_arrival(self) -> Option<Arrival> {
        match self {
            FromToolhost::Arrival(arrival) => Some(*arrival),
            FromToolhost::Offer { .. } => None,
        }
    }
}

impl FromModel {
    /// Whether it is a prompt's answer.
    pub fn is_answer(&self) -> bool {
        matches!(self, FromModel::Answer(_))
    }

    /// The prompt's answer, if it is one.
    pub fn into_answer(self) -> Option<Arrival> {
        match self {
            FromModel::Answer(arrival) => Some(*arrival),
            FromModel::Chunks(_) => None,
        }
    }

    /// The prompt's answer, if it is one, to be changed.
    pub fn arrival(&mut self) -> Option<&mut Arrival> {
        match self {
            FromModel::Answer(arrival) => Some(arrival),
            FromModel::Chunks(_) => None,
        }
    }

    /// The pieces of completions, if it is any.
    pub fn into_chunks(self) -> Option<Vec<Chunk>> {
        match self {
            FromModel::Answer(_) => None,
            FromModel::Chunks(chunks) => Some(chunks),
        }
    }
}
