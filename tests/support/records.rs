//! The records on disk, after everything has stopped.
//!
//! In: a directory that nobody uses. Out: every thread with its records, folded again. Always: read by the journal's own
//! recovery, as the next start would.

use slackwater::journal::{FileDisk, Journal, Options, inspect};
use slackwater_core::effect::{Effect, Output};
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::id::{CallId, ThreadId, Ticket};
use slackwater_core::port::{FromJournal, Query, Reply, ToJournal};
use slackwater_core::record::{Block, Committed};
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// A thread as its records make it.
pub struct Folded {
    pub records: Vec<Committed>,
    pub outputs: Vec<Output>,
    pub thread: Thread,
}

/// All threads of a directory.
pub async fn read(directory: &Path) -> BTreeMap<ThreadId, Folded> {
    let report = inspect(directory).unwrap();
    assert!(report.is_sound(), "{report}");
    let journal = Journal::open(FileDisk::open(directory).unwrap(), Options::default()).unwrap();
    let (mut from, to, handle) = journal.start().unwrap();
    let mut next = async |asked| {
        to.put(asked);
        loop {
            let item = futures::StreamExt::next(&mut from).await.unwrap();
            // What a start is told first is of no interest here.
            if matches!(item, FromJournal::Reply(..) | FromJournal::Recalled { .. }) {
                return item;
            }
        }
    };
    let all = Query::Threads { shard: 0, after: None, limit: 1000 };
    let FromJournal::Reply(_, Reply::Threads(standings)) =
        next(ToJournal::Query(Ticket { gateway: 0, request: 1 }, all)).await
    else {
        panic!("a question about threads is answered with them");
    };
    let mut threads = BTreeMap::new();
    for thread in standings.into_iter().map(|standing| standing.thread) {
        let FromJournal::Recalled { records, ancestry, .. } =
            next(ToJournal::Recall { thread, before: u64::MAX }).await
        else {
            panic!("a recall is answered with records");
        };
        threads.insert(thread, Folded::new(thread, ancestry, records.unwrap()));
    }
    handle.close().await.unwrap();
    threads
}

impl Folded {
    fn new(id: ThreadId, ancestry: Vec<(ThreadId, Vec<Committed>)>, records: Vec<Committed>) -> Self {
        let mut thread = Thread::inheriting(id, ancestry);
        let mut outputs = Vec::new();
        for (position, record) in records.iter().enumerate() {
            assert_eq!(record.number, position as u64 + 1, "the numbers of {id} have no gap and no repeat");
            outputs.extend(thread.apply(record.clone()).effects.into_iter().filter_map(|effect| match effect {
                Effect::Tell(output) => Some(output),
                _ => None,
            }));
            invariant::check(&thread).unwrap();
        }
        Self { records, outputs, thread }
    }

    pub fn items(&self) -> Vec<Arc<Item>> {
        self.thread.history().to_vec().into_iter().cloned().collect()
    }

    /// What the model has said, turn by turn.
    pub fn turns(&self) -> Vec<String> {
        let text = |block: &Block| match block {
            Block::Text(text) => Some(text.clone()),
            _ => None,
        };
        let turn = |item: &Arc<Item>| match &**item {
            Item::Assistant { blocks, .. } => Some(blocks.iter().filter_map(text).collect()),
            _ => None,
        };
        self.items().iter().filter_map(turn).collect()
    }

    /// The calls in the history, with their arguments.
    pub fn calls(&self) -> BTreeMap<CallId, String> {
        let mut calls = BTreeMap::new();
        for item in self.items() {
            let Item::Assistant { number, blocks, .. } = &*item else { continue };
            let arguments = blocks.iter().filter_map(|block| match block {
                Block::Call { arguments, .. } => Some(arguments.clone()),
                _ => None,
            });
            calls.extend(
                arguments.enumerate().map(|(index, text)| (CallId { number: *number, index: index as u16 }, text)),
            );
        }
        calls
    }

    /// Each call's answers, as the model sees them.
    pub fn answers(&self) -> BTreeMap<CallId, Vec<AnsweredBy>> {
        let mut answers: BTreeMap<CallId, Vec<AnsweredBy>> = BTreeMap::new();
        for item in self.items() {
            if let Item::Result(answer) = &*item {
                answers.entry(answer.call).or_default().push(answer.by);
            }
        }
        answers
    }
}
