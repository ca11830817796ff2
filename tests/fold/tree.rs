//! A tree of threads, with the posts between them: how these tests speak of several threads.
//!
//! In: what happens, as short calls. Out: what each thread's model sees, as short text. Always: every invariant holds after
//! every record; a thread that is dropped from memory comes back from its records and its ancestors' as it was.

use crate::story::{call, completion, lines, message, result};
use slackwater_core::effect::{Effect, Outcome, Shown};
use slackwater_core::id::{CallId, InputId, Number, ThreadId};
use slackwater_core::record::{
    Arrival, Block, Committed, Content, Deliver, End, Origin, Proof, Record, SubscriptionEvent,
};
use slackwater_core::thread::{Applied, Thread, invariant};
use std::collections::{BTreeMap, VecDeque};

pub(crate) const ROOT: ThreadId = ThreadId::from_bytes([7; 16]);

/// Threads, the journal under them and what is on its way between them.
#[derive(Clone, Default)]
pub(crate) struct Tree {
    pub(crate) journal: BTreeMap<ThreadId, Vec<Committed>>,
    pub(crate) threads: BTreeMap<ThreadId, Thread>,
    pub(crate) posts: VecDeque<Arrival>,
    pub(crate) told: Vec<(ThreadId, Shown)>,
    pub(crate) asked: Vec<Effect>,
    /// After how many records the process dies, in order.
    pub(crate) crashes: Vec<usize>,
    /// How many records were committed.
    pub(crate) records: usize,
}

impl Tree {
    /// One record is committed and applied. What it sends to other threads waits.
    pub(crate) fn apply(&mut self, thread: ThreadId, record: Record) -> Applied {
        let number = self.journal.get(&thread).map_or(0, Vec::len) as Number + 1;
        let arrival = Arrival { ticket: None, thread, at_ms: 1_000 * number, record };
        let committed = Committed { number, arrival };
        self.records += 1;
        self.journal.entry(thread).or_default().push(committed.clone());
        if number == 1 {
            self.threads.insert(thread, Thread::inheriting(thread, self.ancestry(thread)));
        }
        let folded = self.threads.get_mut(&thread).unwrap();
        let applied = folded.apply(committed);
        invariant::check(folded).unwrap();
        for effect in &applied.effects {
            match effect {
                Effect::Post(arrival) => self.posts.push_back(arrival.clone()),
                Effect::Tell(output) => self.told.push((thread, output.shown.clone())),
                other => self.asked.push(other.clone()),
            }
        }
        if self.crashes.contains(&self.records) {
            self.crash();
        }
        applied
    }

    /// The process dies: what is on its way is lost, and each thread sends again what it owes.
    pub(crate) fn crash(&mut self) {
        self.posts.clear();
        for &id in self.journal.keys() {
            let again = self.fold(id);
            assert!(again == self.threads[&id], "apply_is_deterministic: a replay of {id} gives another thread");
            self.posts.extend(again.owed().into_iter().filter_map(|effect| match effect {
                Effect::Post(arrival) => Some(arrival),
                _ => None,
            }));
        }
    }

    /// The thread that the journal makes.
    pub(crate) fn fold(&self, id: ThreadId) -> Thread {
        let mut thread = Thread::inheriting(id, self.ancestry(id));
        self.journal[&id].iter().for_each(|record| drop(thread.apply(record.clone())));
        thread
    }

    pub(crate) fn ancestry(&self, id: ThreadId) -> Vec<(ThreadId, Vec<Committed>)> {
        let base = |id: ThreadId| self.journal[&id].first().and_then(|first| first.arrival.record.base());
        let mut ancestry = Vec::new();
        let mut next = base(id);
        while let Some((id, through)) = next {
            ancestry.push((id, self.journal[&id][..through as usize].to_vec()));
            next = base(id);
        }
        ancestry.reverse();
        ancestry
    }

    /// The first of what is on its way arrives.
    pub(crate) fn deliver_one(&mut self) -> Option<Applied> {
        let Arrival { thread, record, .. } = self.posts.pop_front()?;
        Some(self.apply(thread, record))
    }

    /// All that is on its way arrives, and what that sends.
    pub(crate) fn deliver(&mut self) {
        for _ in 0..10_000 {
            if self.deliver_one().is_none() {
                return;
            }
        }
        panic!("posts go round for ever");
    }

    pub(crate) fn message(&mut self, thread: ThreadId, text: &str) -> Outcome {
        self.apply(thread, message(text, text)).outcome
    }

    /// The model answers the thread's prompt.
    pub(crate) fn turn(&mut self, thread: ThreadId, blocks: Vec<Block>) -> Applied {
        let seen = self.threads[&thread].prompt().expect("the thread wants an answer").seen;
        self.apply(thread, completion(seen, blocks, End::Finished))
    }

    /// The thread makes a child, which does not know of it yet.
    pub(crate) fn spawn(&mut self, thread: ThreadId, instructions: &str, path: &[ThreadId]) -> ThreadId {
        self.turn(thread, vec![spawn(instructions, path, false)]);
        self.spawned(thread)
    }

    /// The child that the thread has made last.
    pub(crate) fn spawned(&self, thread: ThreadId) -> ThreadId {
        let children = self.told.iter().rev().filter_map(|(by, shown)| match shown {
            Shown::Spawned { child, .. } if *by == thread => Some(*child),
            _ => None,
        });
        children.into_iter().next().expect("it has made a child")
    }

    pub(crate) fn view(&self, thread: ThreadId) -> Vec<String> {
        lines(&self.threads[&thread].view())
    }

    /// What the thread's model reads last.
    pub(crate) fn reads(&self, thread: ThreadId) -> String {
        self.view(thread).pop().unwrap_or_default()
    }

    /// The thread calls a tool, which subscribes it to something.
    pub(crate) fn subscribe(&mut self, thread: ThreadId) -> CallId {
        self.turn(thread, vec![call("watch", r#"{"what":"pulls"}"#)]);
        let call = CallId { number: self.last(thread), index: 0 };
        let tool = Origin { who: "tool:watch".into(), proof: Proof::Capability };
        let Record::Result(mut watching) = result(call, "watching", false, tool) else { unreachable!() };
        watching.subscription = true;
        self.apply(thread, Record::Result(watching));
        call
    }

    pub(crate) fn event(
        &mut self,
        thread: ThreadId,
        of: CallId,
        id: &str,
        how: Option<Deliver>,
        last: bool,
    ) -> Outcome {
        let event = SubscriptionEvent {
            subscription: of,
            id: InputId(id.into()),
            origin: Origin { who: "tool:watch".into(), proof: Proof::Capability },
            content: vec![Content::Text(format!("event {id}"))],
            associative: false,
            last,
            deliver: how,
        };
        self.apply(thread, Record::Event(event)).outcome
    }

    pub(crate) fn last(&self, thread: ThreadId) -> Number {
        self.journal[&thread].len() as Number
    }

    /// How often a line stands in what a model sees.
    pub(crate) fn count(&self, thread: ThreadId, words: &str) -> usize {
        self.view(thread).iter().filter(|line| line.contains(words)).count()
    }
}

pub(crate) fn spawn(instructions: &str, path: &[ThreadId], fresh: bool) -> Block {
    let path: Vec<String> = path.iter().map(|id| format!("\"{id}\"")).collect();
    call(
        "spawn_thread",
        &format!(r#"{{"instructions":"{instructions}","child_of":[{}],"fresh_context":{fresh}}}"#, path.join(",")),
    )
}

pub(crate) fn report(text: &str) -> Block {
    call("report_to_parent", &format!(r#"{{"report":"{text}"}}"#))
}

pub(crate) fn close(thread: ThreadId) -> Block {
    call("close_thread", &format!(r#"{{"thread_id":"{thread}"}}"#))
}
