//! A shard for tests of what stands before it: the real fold over records in memory.
//!
//! In: inputs and questions of a gateway, and records that a test says happened. Out: answers and outputs, as a shard gives
//! them. Always: it may be attached to one gateway after another and keeps what it has, as a disk does.

use slackwater::port::{FromAdapter, ToAdapter};
use slackwater_core::effect::{Effect, Outcome, Output, Refusal};
use slackwater_core::id::{CallId, Number, ThreadId, Ticket};
use slackwater_core::port::{Chunk, FromGateway, Part, Query, Reply, ToGateway, View};
use slackwater_core::record::{
    Arrival, Block, Committed, Completion, End, Failure, FailureClass, Origin, Proof, Record, ToolResult, Usage,
};
use slackwater_core::thread::Thread;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use tokio_stream::StreamExt;

/// A shard in memory. A clone is the same shard.
#[derive(Clone, Default)]
pub(crate) struct FakeShard(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    threads: BTreeMap<ThreadId, Kept>,
    gateway: Option<ToAdapter<ToGateway>>,
    /// Inputs that are not "synced" yet, while answers are held back.
    held: Option<Vec<Arrival>>,
    /// All that was committed, for tests that ask what reached the journal.
    records: Vec<Committed>,
    /// Whether live outputs get lost on their way, as when a shard stops after a commit.
    mute: bool,
}

struct Kept {
    thread: Thread,
    outputs: Vec<Output>,
}

impl FakeShard {
    /// Serves a gateway until its ends close.
    pub(crate) fn attach(&self, mut from: FromAdapter<FromGateway>, to: ToAdapter<ToGateway>) {
        self.state().gateway = Some(to);
        let shard = self.clone();
        tokio::spawn(async move {
            while let Some(asked) = from.next().await {
                shard.take(asked);
            }
        });
    }

    /// Holds inputs back, as a slow disk does.
    pub(crate) fn hold(&self) {
        self.state().held.get_or_insert_default();
    }

    /// Takes what was held back, and nothing is held back any more.
    pub(crate) fn release(&self) {
        let held = self.state().held.take().unwrap_or_default();
        held.into_iter().for_each(|arrival| self.arrive(arrival));
    }

    /// How many inputs are held back.
    pub(crate) fn held(&self) -> usize {
        self.state().held.as_ref().map_or(0, Vec::len)
    }

    /// The tickets of the inputs that are held back, in order.
    pub(crate) fn held_tickets(&self) -> Vec<Ticket> {
        self.state().held.iter().flatten().filter_map(|arrival| arrival.ticket).collect()
    }

    /// Whether live outputs get lost.
    pub(crate) fn mute(&self, mute: bool) {
        self.state().mute = mute;
    }

    /// Tells a gateway something out of turn.
    pub(crate) fn tell(&self, told: ToGateway) {
        if let Some(gateway) = &self.state().gateway {
            gateway.put(told);
        }
    }

    /// Sends a piece of a completion.
    pub(crate) fn chunk(&self, thread: ThreadId, seen: Number, part: Part) {
        self.tell(ToGateway::Chunks(vec![Chunk { thread, seen, part }]));
    }

    /// Lets something happen to a thread.
    pub(crate) fn happen(&self, thread: ThreadId, record: Record) {
        self.arrive(Arrival { ticket: None, thread, at_ms: 1_790_000_000_000, record });
    }

    /// The model answers the thread's prompt.
    pub(crate) fn turn(&self, thread: ThreadId, blocks: Vec<Block>) {
        let seen = self.last(thread);
        let usage = Usage { input_tokens: 10, output_tokens: 5, cached_tokens: 2 };
        let completion = Completion { seen, blocks, end: End::Finished, usage, model: "test".into() };
        self.happen(thread, Record::Completion(completion));
    }

    /// The model makes one call, whose name is returned.
    pub(crate) fn call(&self, thread: ThreadId, name: &str, arguments: &str) -> CallId {
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        self.turn(thread, vec![Block::Call { provider_id: "p".into(), name, arguments }]);
        CallId { number: self.last(thread), index: 0 }
    }

    /// The provider fails.
    pub(crate) fn fail(&self, thread: ThreadId, message: &str) {
        let seen = self.last(thread);
        let failure = Failure { seen, class: FailureClass::Fatal, message: message.into(), attempts: 1 };
        self.happen(thread, Record::Failure(failure));
    }

    /// A tool answers.
    pub(crate) fn result(&self, thread: ThreadId, result: ToolResult) {
        self.happen(thread, Record::Result(result));
    }

    /// The number of the thread's last record.
    pub(crate) fn last(&self, thread: ThreadId) -> Number {
        self.state().threads.get(&thread).map_or(0, |kept| kept.thread.last())
    }

    /// All outputs of a thread.
    pub(crate) fn outputs(&self, thread: ThreadId) -> Vec<Output> {
        self.state().threads.get(&thread).map_or_else(Vec::new, |kept| kept.outputs.clone())
    }

    /// All that was committed.
    pub(crate) fn records(&self) -> Vec<Committed> {
        self.state().records.clone()
    }

    fn take(&self, asked: FromGateway) {
        match asked {
            FromGateway::Submit(arrival) => {
                if let Some(held) = &mut self.state().held {
                    held.push(arrival);
                    return;
                }
                self.arrive(arrival);
            }
            FromGateway::Query(ticket, query) => {
                let reply = self.reply(query);
                self.tell(ToGateway::Reply(ticket, reply));
            }
            // It tells everything.
            FromGateway::Listen { .. } => {}
        }
    }

    fn arrive(&self, arrival: Arrival) {
        let mut state = self.state();
        let (id, ticket) = (arrival.thread, arrival.ticket);
        let mut told = Vec::new();
        let outcome = if !state.threads.contains_key(&id) && !arrival.record.creates_thread() {
            Outcome::Refused(Refusal::UnknownThread)
        } else {
            let kept = state.threads.entry(id).or_insert_with(|| Kept { thread: Thread::new(id), outputs: Vec::new() });
            let committed = Committed { number: kept.thread.last() + 1, arrival };
            let applied = kept.thread.apply(committed.clone());
            for effect in applied.effects {
                if let Effect::Tell(output) = effect {
                    kept.outputs.push(output.clone());
                    told.push(ToGateway::Output(output));
                }
            }
            state.records.push(committed);
            applied.outcome
        };
        let mute = state.mute;
        if let Some(gateway) = &state.gateway {
            if let Some(ticket) = ticket {
                gateway.put(ToGateway::Answer(ticket, outcome));
            }
            told.into_iter().filter(|_| !mute).for_each(|item| gateway.put(item));
        }
    }

    fn reply(&self, query: Query) -> Reply {
        let state = self.state();
        match query {
            Query::Thread(id) => {
                state.threads.get(&id).map_or(Reply::UnknownThread, |kept| Reply::Thread(kept.thread.standing()))
            }
            Query::Outputs { thread, after, limit } => match state.threads.get(&thread) {
                None => Reply::UnknownThread,
                Some(kept) => {
                    let rest: Vec<_> = kept.outputs.iter().filter(|output| output.id > after).cloned().collect();
                    let all = rest.len() <= limit;
                    Reply::Outputs(rest.into_iter().take(limit).collect(), all)
                }
            },
            Query::Threads { shard: 0, after, limit } => {
                let later = state.threads.iter().filter(|(id, _)| after.is_none_or(|after| **id > after));
                Reply::Threads(later.take(limit).map(|(_, kept)| kept.thread.standing()).collect())
            }
            Query::Threads { .. } => Reply::Threads(Vec::new()),
            Query::Why(id) => {
                state.threads.get(&id).map_or(Reply::UnknownThread, |kept| Reply::Why(Box::new(kept.thread.why())))
            }
            Query::View { thread, after, limit } => match state.threads.get(&thread) {
                None => Reply::UnknownThread,
                Some(kept) => {
                    let view = kept.thread.view();
                    let items: Vec<_> = view.to_vec().into_iter().skip(after).take(limit).cloned().collect();
                    let pending = view.len() - kept.thread.history().len();
                    Reply::View(View { items, first: after, total: view.len(), inherited: 0, pending })
                }
            },
            Query::Records { thread, .. } if !state.threads.contains_key(&thread) => Reply::UnknownThread,
            Query::Records { thread, after, limit } => {
                let of_thread = state.records.iter().filter(|record| record.arrival.thread == thread);
                let later: Vec<_> = of_thread.filter(|record| record.number > after).collect();
                let page = later.iter().take(limit).map(|record| slackwater_core::port::Kept {
                    number: record.number,
                    at_ms: record.arrival.at_ms,
                    kind: "record".into(),
                    bytes: 1,
                    origin: Origin::runtime(),
                    gist: String::new(),
                });
                Reply::Records(page.collect(), later.len() <= limit)
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("invariant: no test panics while it holds the shard")
    }
}

/// A result in text, as a tool sends it.
pub(crate) fn text_result(call: CallId, text: &str) -> ToolResult {
    ToolResult {
        call,
        origin: Origin { who: "tool".into(), proof: Proof::Capability },
        content: vec![slackwater_core::record::Content::Text(text.into())],
        is_error: false,
        subscription: false,
        display: None,
    }
}
