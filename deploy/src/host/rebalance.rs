//! Rebalance: moves threads between the shards of a stopped cluster.
//!
//! In: a cluster's directory and where its threads should be. Out: the same threads there. Always: a crash at any moment loses
//! nothing, and the same call goes on where it was: new journals are written aside and become durable, then the manifest says so,
//! then they take the place of the old ones, then the table changes, and only then the old ones are removed.

use super::directory::{self, DirectoryError, Manifest, shard_directory};
use crate::journal::{FileDisk, Journal, JournalError, JournalHandle, Options};
use crate::placement::Placement;
use crate::port::{FromAdapter, ToAdapter};
use futures::StreamExt as _;
use slackwater_core::id::{CallId, ThreadId, Ticket};
use slackwater_core::port::{FromJournal, Query, Reply, Rest, ToJournal};
use slackwater_core::record::{Arrival, Committed};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// How many threads are asked for at once.
const PAGE_LENGTH: usize = 500;

/// How many records are made durable at once.
const GROUP_RECORDS: usize = 4_096;

/// Why threads cannot be moved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RebalanceError {
    /// The cluster's directory cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// A shard's journal cannot be opened or written.
    #[error("shard {shard}: {source}")]
    Journal {
        /// Which shard.
        shard: u32,
        /// Why.
        source: Arc<JournalError>,
    },
    /// A thread cannot be read.
    #[error("shard {shard}: thread {thread} cannot be read: {what}; repair it first, `slackwater doctor` says how")]
    Damaged {
        /// Which shard.
        shard: u32,
        /// Which thread.
        thread: ThreadId,
        /// Why.
        what: String,
    },
    /// The threads are being moved to another place already.
    #[error(
        "a move to {cells} cells of {shards} shards was broken off; finish it first, with --cells {cells} --shards {shards}"
    )]
    Other {
        /// How many cells.
        cells: u32,
        /// How many shards each has.
        shards: u32,
    },
    /// The shard says something that it should not: a fault of ours.
    #[error("shard {shard}: the journal answered out of turn; this is a fault in slackwater, and nothing was lost")]
    OutOfTurn {
        /// Which shard.
        shard: u32,
    },
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Virtual shards that have another process now.
    pub virtual_shards: usize,
    /// Threads that were written anew, moved or not.
    pub threads: usize,
    /// Their records.
    pub records: usize,
}

/// Moves the threads of a cluster that does not run, or goes on with a move that was broken off.
///
/// # Errors
/// When the cluster's state cannot be read or written. What was there is there.
pub async fn rebalance(cluster: &Path, mut manifest: Manifest, to: Placement) -> Result<Moved, RebalanceError> {
    if let Some(other) = manifest.moving_to.as_ref().filter(|other| **other != to) {
        return Err(RebalanceError::Other { cells: other.cells, shards: other.shards });
    }
    let from = manifest.placement.clone();
    let changed = changed(&from, &to);
    let virtual_shards = from.table.iter().zip(&to.table).filter(|(old, new)| old != new).count();
    let mut moved = Moved { virtual_shards, ..Moved::default() };
    if manifest.moving_to.is_none() {
        // What the last move had no time to remove.
        changed.iter().try_for_each(|shard| remove(&aside(cluster, *shard, "old")))?;
        manifest.moving_to = Some(to.clone());
        manifest.copied = false;
        manifest.store(cluster)?;
    }
    if !manifest.copied {
        copy(cluster, &manifest, &to, &changed, &mut moved).await?;
        manifest.copied = true;
        manifest.store(cluster)?;
    }
    for shard in &changed {
        exchange(cluster, *shard, *shard < to.shard_count())?;
    }
    manifest.known.retain(|shard| *shard < to.shard_count());
    manifest.known.extend(changed.iter().filter(|shard| **shard < to.shard_count()));
    manifest.known.sort_unstable();
    manifest.known.dedup();
    manifest.placement = to;
    manifest.moving_to = None;
    manifest.copied = false;
    manifest.store(cluster)?;
    for shard in changed {
        remove(&aside(cluster, shard, "old"))?;
    }
    Ok(moved)
}

/// The shards that have other virtual shards afterwards.
fn changed(from: &Placement, to: &Placement) -> BTreeSet<u32> {
    let differ = from.table.iter().zip(&to.table).filter(|(old, new)| old != new);
    let mut changed: BTreeSet<u32> = differ.flat_map(|(old, new)| [*old, *new]).collect();
    // A shard that is new or gone is so even if it has no virtual shard.
    let (few, many) = (from.shard_count().min(to.shard_count()), from.shard_count().max(to.shard_count()));
    changed.extend(few..many);
    changed
}

/// Writes the journals of the changed shards aside, from those that there are.
async fn copy(
    cluster: &Path,
    manifest: &Manifest,
    to: &Placement,
    changed: &BTreeSet<u32>,
    moved: &mut Moved,
) -> Result<(), RebalanceError> {
    let mut writers = BTreeMap::new();
    for shard in changed.iter().filter(|shard| **shard < to.shard_count()) {
        let place = aside(cluster, *shard, "next");
        // What an attempt that was broken off has left is not whole.
        remove(&place)?;
        directory::claim(&place, &manifest.cluster, *shard, false)?;
        writers.insert(*shard, Writer::new(Open::new(*shard, &place)?));
    }
    for shard in changed.iter().filter(|shard| manifest.known.contains(shard)) {
        manifest.check(cluster, *shard)?;
        let mut source = Open::new(*shard, &shard_directory(cluster, *shard))?;
        let mut after = None;
        loop {
            let page = source.threads(after).await?;
            let Some(last) = page.last() else { break };
            after = Some(*last);
            for thread in page {
                let records = source.records(thread).await?;
                moved.threads += 1;
                moved.records += records.len();
                let rest = source.rest(thread, &records);
                let writer = writers.get_mut(&to.shard_of(thread));
                writer.ok_or(RebalanceError::OutOfTurn { shard: *shard })?.write(records, rest).await?;
            }
        }
        source.close().await?;
    }
    for writer in writers.into_values() {
        writer.finish().await?;
    }
    Ok(())
}

/// Puts the new journal of a shard in place of the old one; a shard that does not stay has no new one.
fn exchange(cluster: &Path, shard: u32, stays: bool) -> Result<(), DirectoryError> {
    let (place, next) = (shard_directory(cluster, shard), aside(cluster, shard, "next"));
    // Where there is no new one any more, it is in its place already.
    if place.is_dir() && (!stays || next.is_dir()) {
        rename(&place, &aside(cluster, shard, "old"))?;
    }
    if next.is_dir() { rename(&next, &place) } else { Ok(()) }
}

fn aside(cluster: &Path, shard: u32, what: &str) -> PathBuf {
    cluster.join(format!("shard-{shard}.{what}"))
}

fn rename(from: &Path, to: &Path) -> Result<(), DirectoryError> {
    let renamed = std::fs::rename(from, to).and_then(|()| match to.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    renamed.map_err(|source| DirectoryError::Io { path: from.to_owned(), source })
}

fn remove(path: &Path) -> Result<(), DirectoryError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DirectoryError::Io { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

/// A shard's journal that is open here.
struct Open {
    shard: u32,
    from: FromAdapter<FromJournal>,
    to: ToAdapter<ToJournal>,
    handle: JournalHandle,
    /// The threads that have something in flight, and the timers of those that rest: what the next start is told.
    awake: BTreeSet<ThreadId>,
    timers: BTreeMap<ThreadId, Vec<(CallId, u64)>>,
}

impl Open {
    fn new(shard: u32, place: &Path) -> Result<Self, RebalanceError> {
        let failed = |error: JournalError| RebalanceError::Journal { shard, source: Arc::new(error) };
        let journal = FileDisk::open(place).and_then(|disk| Journal::open(disk, Options::default())).map_err(failed)?;
        let (from, to, handle) = journal.start().map_err(failed)?;
        Ok(Self { shard, from, to, handle, awake: BTreeSet::new(), timers: BTreeMap::new() })
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

    /// A page of its threads.
    async fn threads(&mut self, after: Option<ThreadId>) -> Result<Vec<ThreadId>, RebalanceError> {
        let ticket = Ticket { gateway: 0, request: 0 };
        let query = Query::Threads { shard: self.shard, after, limit: PAGE_LENGTH };
        self.to.put(ToJournal::Query(ticket, query));
        match self.next().await? {
            FromJournal::Reply(_, Reply::Threads(page)) => {
                Ok(page.into_iter().map(|standing| standing.thread).collect())
            }
            _ => Err(RebalanceError::OutOfTurn { shard: self.shard }),
        }
    }

    async fn records(&mut self, thread: ThreadId) -> Result<Vec<Committed>, RebalanceError> {
        self.to.put(ToJournal::Recall { thread, before: u64::MAX });
        match self.next().await? {
            FromJournal::Recalled { records, .. } => {
                records.map_err(|what| RebalanceError::Damaged { shard: self.shard, thread, what })
            }
            _ => Err(RebalanceError::OutOfTurn { shard: self.shard }),
        }
    }

    /// What the next start should know of a thread that rests.
    fn rest(&self, thread: ThreadId, records: &[Committed]) -> Option<Rest> {
        let through = records.last().filter(|_| !self.awake.contains(&thread))?.number;
        Some(Rest { thread, through, timers: self.timers.get(&thread).cloned().unwrap_or_default() })
    }

    async fn close(self) -> Result<(), RebalanceError> {
        let shard = self.shard;
        self.handle.close().await.map_err(|source| RebalanceError::Journal { shard, source })
    }
}

/// A journal that is being written.
struct Writer {
    journal: Open,
    arrivals: Vec<Arrival>,
    numbers: Vec<u64>,
    rests: Vec<Rest>,
}

impl Writer {
    fn new(journal: Open) -> Self {
        Self { journal, arrivals: Vec::new(), numbers: Vec::new(), rests: Vec::new() }
    }

    async fn write(&mut self, records: Vec<Committed>, rest: Option<Rest>) -> Result<(), RebalanceError> {
        self.numbers.extend(records.iter().map(|record| record.number));
        self.arrivals.extend(records.into_iter().map(|record| record.arrival));
        self.rests.extend(rest);
        if self.arrivals.len() >= GROUP_RECORDS { self.flush().await } else { Ok(()) }
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

    async fn finish(mut self) -> Result<(), RebalanceError> {
        self.flush().await?;
        self.journal.close().await
    }
}

#[cfg(test)]
mod tests;
