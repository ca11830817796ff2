//! Tests of the journal as a whole, on a disk that fails on demand.
//!
//! In: a workload. Out: the promises, each a test of its name. Always: the journal runs as it does in a host: its own
//! threads, and a stream and a sink.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod ancestry;
mod bytes;
mod care;
mod checkpoint;
mod crafted;
mod crash;
mod damage;
mod disks;
mod durability;
mod fault_disk;
mod flow;
mod golden;
mod packing;
mod scale;

use super::*;
use crate::port::FromAdapter;
use slackwater_core::id::{CallId, InputId, Number};
use slackwater_core::port::Rest;
use slackwater_core::record::{Arrival, Committed, Content, Message, Origin, Proof, Record};
use std::collections::BTreeMap;
use tokio_stream::StreamExt as _;

fn thread(number: u8) -> ThreadId {
    ThreadId::from_bytes([number; 16])
}

fn message(thread: ThreadId, text: &str) -> Arrival {
    let record = Record::Message(Message {
        id: InputId(text.to_owned()),
        origin: Origin { who: "user".to_owned(), proof: Proof::Loopback },
        content: vec![Content::Text(text.to_owned())],
        thread_name: None,
        metadata: None,
    });
    Arrival { ticket: None, thread, at_ms: 1_800_000_000_000, record }
}

fn fired(thread: ThreadId) -> Arrival {
    Arrival { ticket: None, thread, at_ms: 5, record: Record::Fired(CallId { number: 1, index: 0 }) }
}

fn rest(thread: ThreadId, through: Number) -> Rest {
    Rest { thread, through, timers: vec![(CallId { number: through, index: 0 }, 1_900_000_000_000)] }
}

/// A running journal, driven step by step.
struct Run {
    from: FromAdapter<FromJournal>,
    to: ToAdapter<ToJournal>,
    handle: JournalHandle,
}

fn start(disk: impl Disk + 'static) -> Run {
    start_with(disk, Options::default())
}

fn start_with(disk: impl Disk + 'static, options: Options) -> Run {
    let (from, to, handle) = Journal::open(disk, options).unwrap().start().unwrap();
    Run { from, to, handle }
}

impl Run {
    /// What comes next; nothing when the journal has closed.
    async fn next(&mut self) -> Option<FromJournal> {
        tokio::time::timeout(std::time::Duration::from_secs(60), self.from.next()).await.expect("an answer")
    }

    async fn committed(&mut self) -> Option<Vec<Committed>> {
        match self.next().await? {
            FromJournal::Committed(committed) => Some(committed),
            other => panic!("expected a commit, got {other:?}"),
        }
    }

    /// Appends in one tick and waits; nothing when the journal has closed.
    async fn append(&mut self, arrivals: Vec<Arrival>) -> Option<Vec<Committed>> {
        let count = arrivals.len();
        self.to.put(ToJournal::Append(arrivals));
        let mut all = Vec::new();
        while all.len() < count {
            all.extend(self.committed().await?);
        }
        Some(all)
    }

    async fn recall(&mut self, thread: ThreadId) -> Result<Vec<Committed>, String> {
        self.recall_before(thread, Number::MAX).await
    }

    async fn recall_before(&mut self, thread: ThreadId, before: Number) -> Result<Vec<Committed>, String> {
        self.to.put(ToJournal::Recall { thread, before });
        match self.next().await {
            Some(FromJournal::Recalled { thread: of, records, .. }) if of == thread => records,
            other => panic!("expected the records of {thread}, got {other:?}"),
        }
    }

    /// Passes over the wakes and rests of a start, which come before anything else.
    async fn started(&mut self) -> (Vec<ThreadId>, Vec<Rest>) {
        let nobody = thread(0xee);
        self.to.put(ToJournal::Recall { thread: nobody, before: Number::MAX });
        let (mut wakes, mut rests) = (Vec::new(), Vec::new());
        loop {
            match self.next().await {
                Some(FromJournal::Wake { thread, .. }) => wakes.push(thread),
                Some(FromJournal::Resting(rest)) => rests.push(rest),
                Some(FromJournal::Recalled { thread, records: Ok(records), .. }) if thread == nobody => {
                    assert!(records.is_empty());
                    return (wakes, rests);
                }
                other => panic!("unexpected {other:?}"),
            }
        }
    }

    async fn close(self) {
        self.handle.close().await.unwrap();
    }
}

fn source(journal: &Journal) -> chain::Source<'_> {
    chain::Source { disk: &*journal.disk, dictionaries: &journal.shared.dictionaries }
}

/// What a journal that was opened knows.
#[derive(Debug, PartialEq)]
struct State {
    entries: BTreeMap<ThreadId, index::Entry>,
    records: u64,
    unsettled: Vec<ThreadId>,
    resting: sleepers::Sleepers,
}

fn state(journal: &Journal) -> State {
    let index = &journal.shared.index;
    State {
        entries: (0..index::PARTS).flat_map(|part| index.part_entries(part)).collect(),
        records: journal.shared.counters().records,
        unsettled: journal.unsettled.clone(),
        resting: journal.resting.clone(),
    }
}
