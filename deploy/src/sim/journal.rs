//! The simulated journal: what is on stable storage, and what a crash may take.
//!
//! In: batches, hints that a thread rests. Out: committed records; after a crash what a start begins with. Always: what was
//! synced stays; of what was not, a crash keeps a beginning, all or nothing.

use slackwater_core::effect::Refusal;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::{FromJournal, Rest};
use slackwater_core::record::{Arrival, Committed};
use std::collections::BTreeMap;

#[derive(Debug, Default)]
pub(super) struct Journal {
    records: BTreeMap<ThreadId, Vec<Committed>>,
    rests: BTreeMap<ThreadId, Rest>,
    /// What was written and not synced.
    tail: Vec<Arrival>,
    /// Hints that were written and not synced, before the tail.
    rests_unsynced: Vec<Rest>,
}

impl Journal {
    pub(super) fn append(&mut self, batch: Vec<Arrival>) {
        self.tail.extend(batch);
    }

    pub(super) fn rest(&mut self, rest: Rest) {
        self.rests_unsynced.push(rest);
    }

    /// Makes all that was written durable: what is committed, and what was refused.
    pub(super) fn sync(&mut self) -> (Vec<Committed>, Vec<Arrival>) {
        self.rests.extend(self.rests_unsynced.drain(..).map(|rest| (rest.thread, rest)));
        let mut refused = Vec::new();
        let mut committed = Vec::new();
        for arrival in std::mem::take(&mut self.tail) {
            if !self.records.contains_key(&arrival.thread) && !arrival.record.creates_thread() {
                refused.push(arrival);
                continue;
            }
            let records = self.records.entry(arrival.thread).or_default();
            let number = records.len() as Number + 1;
            // Who waits for an answer is not written down.
            records.push(Committed { number, arrival: Arrival { ticket: None, ..arrival.clone() } });
            committed.push(Committed { number, arrival });
        }
        (committed, refused)
    }

    /// The process dies. Of what was not synced so many records have reached the disk; returns these.
    pub(super) fn crash(&mut self, kept: usize) -> Vec<Committed> {
        if kept == 0 {
            self.rests_unsynced.clear();
        }
        self.tail.truncate(kept);
        self.sync().0
    }

    /// What a start begins with.
    pub(super) fn start(&self) -> Vec<FromJournal> {
        let begin = |(&thread, records): (&ThreadId, &Vec<Committed>)| {
            let last = records.len() as Number;
            match self.rests.get(&thread) {
                Some(rest) if rest.through == last => {
                    (!rest.timers.is_empty()).then(|| FromJournal::Resting(rest.clone()))
                }
                _ => Some(FromJournal::Wake { thread, last }),
            }
        };
        self.records.iter().filter_map(begin).collect()
    }

    pub(super) fn recall(&self, thread: ThreadId, before: Number) -> FromJournal {
        let records = self.records(thread).iter().take_while(|record| record.number < before).cloned().collect();
        FromJournal::Recalled { thread, records: Ok(records), ancestry: self.ancestry(thread) }
    }

    /// What a child inherits: its ancestors' records, the root's first, each as far as the next one saw them.
    pub(super) fn ancestry(&self, thread: ThreadId) -> Vec<(ThreadId, Vec<Committed>)> {
        let base = |thread| self.records(thread).first().and_then(|first| first.arrival.record.base());
        let mut ancestry: Vec<_> = std::iter::successors(base(thread), |&(parent, _)| base(parent))
            .map(|(parent, through)| (parent, self.records(parent)[..through as usize].to_vec()))
            .collect();
        ancestry.reverse();
        ancestry
    }

    pub(super) fn records(&self, thread: ThreadId) -> &[Committed] {
        self.records.get(&thread).map_or(&[], Vec::as_slice)
    }
}

/// Why the journal refuses a first record that may not be one.
pub(super) const REFUSED: Refusal = Refusal::UnknownThread;
