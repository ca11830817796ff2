//! Rebalance: moves threads between the shards of a cluster, while none of them runs.
//!
//! In: a cluster's directory, its machines, and where its threads should be. Out: the same threads there. Always: a crash at any
//! moment loses nothing, and the same call goes on where it was: new journals are written aside and become durable, then the manifest
//! says so, then they take the place of the old ones, then the table changes, and only then the old ones are removed.

mod home;
mod journals;
mod places;
mod script;

use super::directory::{self, DirectoryError, Manifest, shard_directory};
use super::plan::Machine;
use crate::journal::{JournalError, backup};
use crate::placement::Placement;
use futures::{StreamExt as _, TryStreamExt as _};
use home::{Home, aside};
use journals::{Open, Writer};
use places::Places;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use slackwater_core::id::ThreadId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

/// How many connections are made at once: an SSH server refuses when there are too many.
const CONNECTIONS: usize = 4;

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
    /// Another process moves the threads.
    #[error("another process is moving the threads of {cluster} already; wait until it has ended")]
    Busy {
        /// The cluster's directory.
        cluster: String,
    },
    /// A machine does not do what it should.
    #[error("host {machine}: {what}")]
    Machine {
        /// Which machine.
        machine: String,
        /// What it says.
        what: String,
    },
    /// The shard says something that it should not: a fault of ours.
    #[error("shard {shard}: the journal answered out of turn; this is a fault in slackwater, and nothing was lost")]
    OutOfTurn {
        /// Which shard.
        shard: u32,
    },
}

/// What was moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Virtual shards that have another process now.
    pub virtual_shards: usize,
    /// Threads that were written anew, moved or not.
    pub threads: usize,
    /// Their records.
    pub records: usize,
}

/// Writes down where the threads of a cluster should be. Nothing has moved yet.
///
/// # Errors
/// When they are on their way to another place already, or it cannot be read or written.
pub fn intend(cluster: &Path, to: Placement) -> Result<(), RebalanceError> {
    // What was read before may be older than a move that has begun or ended meanwhile.
    let Some(mut manifest) = Manifest::load(cluster)? else { return Ok(()) };
    match &manifest.moving_to {
        Some(goal) if *goal == to => Ok(()),
        Some(other) => Err(RebalanceError::Other { cells: other.cells, shards: other.shards }),
        None => {
            manifest.moving_to = Some(to);
            manifest.copied = false;
            Ok(manifest.store(cluster)?)
        }
    }
}

/// Leaves the threads where they are, if they still can be: until all that moves is at its new place. Says whether.
///
/// # Errors
/// When the manifest cannot be read or written.
pub fn give_up(cluster: &Path) -> Result<bool, RebalanceError> {
    match Manifest::load(cluster)? {
        Some(manifest) if manifest.copied => Ok(false),
        Some(mut manifest) if manifest.moving_to.is_some() => {
            manifest.moving_to = None;
            manifest.store(cluster)?;
            if let Err(error) = home::remove_aside(cluster) {
                tracing::warn!(%error, "what was copied is left; the next move removes it");
            }
            Ok(true)
        }
        _ => Ok(true),
    }
}

/// Moves the threads of a cluster, none of whose locations runs, to where [`intend`] has said, or goes on with a move that was
/// broken off. No machines are this one alone.
///
/// # Errors
/// When the cluster's state cannot be read or written. What was there is there.
pub async fn rebalance(cluster: &Path, machines: &[Machine]) -> Result<Moved, RebalanceError> {
    match Move::begin(cluster, machines).await? {
        Some(on_its_way) => on_its_way.finish().await,
        None => Ok(Moved::default()),
    }
}

/// A move on its way.
pub struct Move {
    places: Places,
    manifest: Manifest,
    changed: BTreeSet<u32>,
    moved: Moved,
    /// The new journals. None, if all is copied.
    writers: BTreeMap<u32, Writer>,
    /// The last record that was copied of each thread.
    copied: BTreeMap<ThreadId, u64>,
    /// Nobody else moves them meanwhile.
    _alone: File,
}

impl Move {
    /// Begins with what [`intend`] has said, or with what is left of it; nothing if there is nothing to move.
    ///
    /// # Errors
    /// When the cluster's state cannot be read, the new journals cannot be made, or somebody else is at it.
    pub async fn begin(cluster: &Path, machines: &[Machine]) -> Result<Option<Self>, RebalanceError> {
        let alone = alone(cluster)?;
        let Some(mut manifest) = Manifest::load(cluster)? else { return Ok(None) };
        let Some(to) = manifest.moving_to.clone() else { return Ok(None) };
        manifest.attempts += 1;
        manifest.store(cluster)?;
        let places = Places::new(cluster, machines, &manifest, &to);
        let changed = places.changed();
        let mut writers = BTreeMap::new();
        // Until all is copied, what stands aside is what the last move had no time to remove, or of an attempt that was broken off.
        few_at_once(places.homes().iter().map(|home| home.begin(!manifest.copied))).await?;
        if !manifest.copied {
            for shard in changed.iter().filter(|shard| **shard < to.shard_count()) {
                let place = aside(cluster, *shard, "next");
                directory::claim(&place, &manifest.cluster, *shard, false)?;
                writers.insert(*shard, Writer::new(Open::new(*shard, &place)?));
            }
        }
        let virtual_shards = manifest.placement.table.iter().zip(&to.table).filter(|(old, new)| old != new).count();
        let moved = Moved { virtual_shards, ..Moved::default() };
        Ok(Some(Self { places, manifest, changed, moved, writers, copied: BTreeMap::new(), _alone: alone }))
    }

    /// Copies what there is by now, while the shards run, so that less is left for when they do not. Of shards on other machines
    /// nothing.
    ///
    /// # Errors
    /// When a shard's state cannot be read, or a new journal not be written.
    pub async fn ahead(&mut self) -> Result<(), RebalanceError> {
        for shard in self.sources() {
            let Some(Home::Here(cluster)) = self.places.before(shard) else { continue };
            self.manifest.check(&cluster, shard)?;
            let (from, to) = (shard_directory(&cluster, shard), aside(&cluster, shard, "from"));
            let made = tokio::task::spawn_blocking({
                let to = to.clone();
                move || backup(&from, &to)
            });
            match made.await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(RebalanceError::Journal { shard, source: Arc::new(error) }),
                Err(_) => return Err(RebalanceError::OutOfTurn { shard }),
            }
            self.copy(Open::new(shard, &to)?, false).await?;
        }
        Ok(())
    }

    /// Moves what is left to be moved. No location of the cluster runs.
    ///
    /// # Errors
    /// When the cluster's state cannot be read or written. What was there is there.
    pub async fn finish(mut self) -> Result<Moved, RebalanceError> {
        let cluster = self.places.cluster.clone();
        if !self.manifest.copied {
            self.copy_all().await?;
            self.manifest.copied = true;
            self.manifest.store(&cluster)?;
        }
        let count = self.places.to.shard_count();
        few_at_once(self.changed.iter().map(|shard| self.places.exchange(*shard))).await?;
        let manifest = &mut self.manifest;
        manifest.known.retain(|shard| *shard < count);
        manifest.known.extend(self.changed.iter().filter(|shard| **shard < count));
        manifest.known.sort_unstable();
        manifest.known.dedup();
        manifest.placement = self.places.to.clone();
        manifest.moving_to = None;
        manifest.copied = false;
        manifest.store(&cluster)?;
        let homes = self.places.homes();
        if let Err(error) = few_at_once(homes.iter().map(Home::end)).await {
            tracing::warn!(%error, "the old journals of what was moved are left; the next move removes them");
        }
        self.moved.threads = self.copied.len();
        Ok(self.moved)
    }

    /// Copies all that the new journals do not have yet, and puts them aside where they will be.
    async fn copy_all(&mut self) -> Result<(), RebalanceError> {
        let cluster = self.places.cluster.clone();
        let sources: Vec<_> =
            self.sources().into_iter().filter_map(|shard| Some((shard, self.places.before(shard)?))).collect();
        let fetched = sources.iter().map(async |(shard, home)| Ok((*shard, home.fetch(*shard, &cluster).await?)));
        for (shard, place) in few_at_once(fetched).await? {
            directory::claim(&place, &self.manifest.cluster, shard, true)?;
            self.copy(Open::when_left(shard, &place).await?, true).await?;
        }
        let writers = std::mem::take(&mut self.writers);
        let homes: Vec<_> = writers.keys().filter_map(|shard| Some((*shard, self.places.after(*shard)?))).collect();
        for writer in writers.into_values() {
            writer.finish().await?;
        }
        few_at_once(homes.iter().map(|(shard, home)| home.put(*shard, &cluster))).await?;
        Ok(())
    }

    /// The shards that have something to be copied.
    fn sources(&self) -> Vec<u32> {
        self.changed.iter().copied().filter(|shard| self.manifest.known.contains(shard)).collect()
    }

    /// Copies what the new journals do not have yet; at last also what the next start is told of each thread.
    async fn copy(&mut self, mut source: Open, is_last: bool) -> Result<(), RebalanceError> {
        for (thread, through) in source.threads().await? {
            let copied = self.copied.insert(thread, through).unwrap_or(0);
            let mut records = Vec::new();
            if copied != through {
                records = source.records(thread).await?;
                records.retain(|record| record.number > copied);
            }
            self.moved.records += records.len();
            let rest = if is_last { source.rest(thread, through) } else { None };
            let Some(writer) = self.writers.get_mut(&self.places.to.shard_of(thread)) else {
                return Err(RebalanceError::OutOfTurn { shard: source.shard });
            };
            writer.write(records, rest).await?;
        }
        source.close().await
    }
}

/// Does several things on machines at once, where each waits for a connection most of the time.
async fn few_at_once<T, F: Future<Output = Result<T, RebalanceError>>>(
    all: impl Iterator<Item = F>,
) -> Result<Vec<T>, RebalanceError> {
    futures::stream::iter(all).buffered(CONNECTIONS).try_collect().await
}

/// Sees to it that nobody else moves the threads, for as long as the file is held.
fn alone(cluster: &Path) -> Result<File, RebalanceError> {
    let directory = File::open(cluster).map_err(|source| DirectoryError::Io { path: cluster.to_owned(), source })?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(_) => Err(RebalanceError::Busy { cluster: cluster.display().to_string() }),
    }
}

#[cfg(test)]
mod tests;
