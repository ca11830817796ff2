//! The journals between which threads are moved: read thread by thread, and written anew.
//!
//! In: a shard's directory. Out: its threads with all their records, or the same there. Always: a record keeps its number, and a thread
//! that rests keeps its timers; what is written is durable when the writer has finished.

use super::RebalanceError;
use crate::journal::{FileDisk, Journal, JournalError, JournalHandle, Options};
use crate::port::{FromAdapter, ToAdapter};
use futures::StreamExt as _;
use slackwater_core::id::{CallId, ThreadId, Ticket};
use slackwater_core::port::{FromJournal, Query, Rest, ToJournal};
use slackwater_core::record::{Arrival, Committed};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many records are made durable at once.
const GROUP_RECORDS: usize = 4_096;

/// How long the process may take to end that had a journal before, and how often it is looked whether it has.
const LEAVE_MAX: Duration = Duration::from_secs(10);
const LEAVE_LOOK: Duration = Duration::from_millis(50);

/// A shard's journal that is open here.
pub(super) struct Open {
    pub(super) shard: u32,
    from: FromAdapter<FromJournal>,
    to: ToAdapter<ToJournal>,
    handle: JournalHandle,
    /// The threads that have something in flight, and the timers of those that rest: what the next start is told.
    pub(super) awake: BTreeSet<ThreadId>,
    pub(super) timers: BTreeMap<ThreadId, Vec<(CallId, u64)>>,
}

impl Open {
    pub(super) fn new(shard: u32, place: &Path) -> Result<Self, RebalanceError> {
        let failed = |error: JournalError| RebalanceError::Journal { shard, source: Arc::new(error) };
        let journal = FileDisk::open(place).and_then(|disk| Journal::open(disk, Options::default())).map_err(failed)?;
        let (from, to, handle) = journal.start().map_err(failed)?;
        Ok(Self { shard, from, to, handle, awake: BTreeSet::new(), timers: BTreeMap::new() })
    }

    /// Opens a journal whose process may be ending at this moment.
    pub(super) async fn when_left(shard: u32, place: &Path) -> Result<Self, RebalanceError> {
        let begun = Instant::now();
        loop {
            match Self::new(shard, place) {
                Err(RebalanceError::Journal { source, .. })
                    if matches!(*source, JournalError::Owned { .. }) && begun.elapsed() < LEAVE_MAX =>
                {
                    tokio::time::sleep(LEAVE_LOOK).await;
                }
                opened => return opened,
            }
        }
    }

    /// The next answer. What the start is told comes before all answers.
    async fn next(&mut self) -> Result<FromJournal, RebalanceError> {
        let failed = self.handle.failed();
        tokio::pin!(failed);
        loop {
            let told = tokio::select! {
                told = self.from.next() => told,
                source = &mut failed => return Err(RebalanceError::Journal { shard: self.shard, source }),
            };
            match told.ok_or(RebalanceError::OutOfTurn { shard: self.shard })? {
                FromJournal::Wake { thread, .. } => _ = self.awake.insert(thread),
                FromJournal::Resting(rest) => _ = self.timers.insert(rest.thread, rest.timers),
                told => return Ok(told),
            }
        }
    }

    /// Its threads, each with the number of its last record. What the start is told has been heard then.
    pub(super) async fn threads(&mut self) -> Result<Vec<(ThreadId, u64)>, RebalanceError> {
        let query = Query::Threads { shard: self.shard, after: None, limit: 1 };
        self.to.put(ToJournal::Query(Ticket { gateway: 0, request: 0 }, query));
        match self.next().await? {
            FromJournal::Reply(..) => Ok(self.handle.threads()),
            _ => Err(RebalanceError::OutOfTurn { shard: self.shard }),
        }
    }

    pub(super) async fn records(&mut self, thread: ThreadId) -> Result<Vec<Committed>, RebalanceError> {
        self.to.put(ToJournal::Recall { thread, before: u64::MAX });
        match self.next().await? {
            FromJournal::Recalled { records, .. } => {
                records.map_err(|what| RebalanceError::Damaged { shard: self.shard, thread, what })
            }
            _ => Err(RebalanceError::OutOfTurn { shard: self.shard }),
        }
    }

    /// What the next start should know of a thread that rests.
    pub(super) fn rest(&self, thread: ThreadId, through: u64) -> Option<Rest> {
        let timers = || self.timers.get(&thread).cloned().unwrap_or_default();
        (!self.awake.contains(&thread)).then(|| Rest { thread, through, timers: timers() })
    }

    pub(super) async fn close(self) -> Result<(), RebalanceError> {
        let shard = self.shard;
        self.handle.close().await.map_err(|source| RebalanceError::Journal { shard, source })
    }
}

/// A journal that is being written.
pub(super) struct Writer {
    journal: Open,
    arrivals: Vec<Arrival>,
    numbers: Vec<u64>,
    rests: Vec<Rest>,
}

impl Writer {
    pub(super) fn new(journal: Open) -> Self {
        Self { journal, arrivals: Vec::new(), numbers: Vec::new(), rests: Vec::new() }
    }

    pub(super) async fn write(&mut self, records: Vec<Committed>, rest: Option<Rest>) -> Result<(), RebalanceError> {
        self.numbers.extend(records.iter().map(|record| record.number));
        self.arrivals.extend(records.into_iter().map(|record| record.arrival));
        self.rests.extend(rest);
        if self.arrivals.len().max(self.rests.len()) >= GROUP_RECORDS { self.flush().await } else { Ok(()) }
    }

    /// Makes durable what was written, each record under the number that it had.
    async fn flush(&mut self) -> Result<(), RebalanceError> {
        let shard = self.journal.shard;
        let numbers = std::mem::take(&mut self.numbers);
        self.journal.to.put(ToJournal::Append(std::mem::take(&mut self.arrivals)));
        let mut written = 0;
        while written < numbers.len() {
            match self.journal.next().await? {
                FromJournal::Committed(records) => {
                    for record in records {
                        if numbers.get(written) != Some(&record.number) {
                            return Err(RebalanceError::OutOfTurn { shard });
                        }
                        written += 1;
                    }
                }
                _ => return Err(RebalanceError::OutOfTurn { shard }),
            }
        }
        self.rests.drain(..).for_each(|rest| self.journal.to.put(ToJournal::Rest(rest)));
        Ok(())
    }

    pub(super) async fn finish(mut self) -> Result<(), RebalanceError> {
        self.flush().await?;
        self.journal.close().await
    }
}
