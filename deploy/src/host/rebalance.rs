//! Rebalance: moves threads between the shards of a cluster, while none of them runs.
//!
//! In: a cluster's directory, its machines, and where its threads should be. Out: the same threads there. Always: a crash at any
//! moment loses nothing, and the same call goes on where it was: new journals are written aside and become durable, then the manifest
//! says so, then they take the place of the old ones, then the table changes, and only then the old ones are removed.

mod home;
mod journals;

use super::directory::{self, DirectoryError, Manifest};
use super::layout::machine_of;
use super::plan::Machine;
use crate::journal::JournalError;
use crate::placement::Placement;
use home::{Home, aside};
use journals::{Open, Writer};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use slackwater_core::id::ThreadId;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

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
/// When they are on their way to another place already, or it cannot be written.
pub fn intend(cluster: &Path, mut manifest: Manifest, to: Placement) -> Result<(), RebalanceError> {
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
    let _alone = alone(cluster)?;
    let Some(mut manifest) = Manifest::load(cluster)? else { return Ok(Moved::default()) };
    let Some(to) = manifest.moving_to.clone() else { return Ok(Moved::default()) };
    let places = Places { cluster, machines, from: manifest.placement.clone(), to };
    let (from, to) = (&places.from, &places.to);
    let mut moved = Moved {
        virtual_shards: from.table.iter().zip(&to.table).filter(|(old, new)| old != new).count(),
        ..Moved::default()
    };
    let changed = places.changed();
    if !manifest.copied {
        // What the last move had no time to remove, and what an attempt that was broken off has left.
        for home in places.homes() {
            home.remove_aside().await?;
        }
        copy(&places, &manifest, &changed, &mut moved).await?;
        manifest.copied = true;
        manifest.store(cluster)?;
    }
    for shard in &changed {
        places.exchange(*shard).await?;
    }
    manifest.known.retain(|shard| *shard < to.shard_count());
    manifest.known.extend(changed.iter().filter(|shard| **shard < to.shard_count()));
    manifest.known.sort_unstable();
    manifest.known.dedup();
    manifest.placement = to.clone();
    manifest.moving_to = None;
    manifest.copied = false;
    manifest.store(cluster)?;
    for home in places.homes() {
        if let Err(error) = home.remove_aside().await {
            tracing::warn!(%error, "the old journals of what was moved are left; the next move removes them");
        }
    }
    Ok(moved)
}

/// Sees to it that nobody else moves the threads, for as long as the file is held.
fn alone(cluster: &Path) -> Result<File, RebalanceError> {
    let directory = File::open(cluster).map_err(|source| DirectoryError::Io { path: cluster.to_owned(), source })?;
    match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(directory),
        Err(_) => Err(RebalanceError::Busy { cluster: cluster.display().to_string() }),
    }
}

/// Where the shards are, and where they will be.
struct Places<'a> {
    cluster: &'a Path,
    machines: &'a [Machine],
    from: Placement,
    to: Placement,
}

impl Places<'_> {
    /// Where the directory of a shard is in one of the two placements; nowhere, if it has no such shard.
    fn home(&self, placement: &Placement, shard: u32) -> Option<Home> {
        let machine = machine_of(placement, shard, self.machines.len());
        let home = self.machines.get(machine).map_or_else(|| Home::Here(self.cluster.to_owned()), Home::of);
        Some(home).filter(|_| shard < placement.shard_count())
    }

    /// All places where something may stand aside; what comes from other machines does so here.
    fn homes(&self) -> Vec<Home> {
        let here = Home::Here(self.cluster.to_owned());
        let others = self.machines.iter().map(Home::of).filter(|home| *home != here);
        others.chain([here.clone()]).collect()
    }

    /// The shards that have other virtual shards afterwards, or are elsewhere.
    fn changed(&self) -> BTreeSet<u32> {
        let (from, to) = (&self.from, &self.to);
        let differ = from.table.iter().zip(&to.table).filter(|(old, new)| old != new);
        let mut changed: BTreeSet<u32> = differ.flat_map(|(old, new)| [*old, *new]).collect();
        // A shard that is new or gone is so even if it has no virtual shard.
        let all = 0..from.shard_count().max(to.shard_count());
        changed.extend(all.filter(|shard| self.home(from, *shard) != self.home(to, *shard)));
        changed
    }

    /// Puts the new directory of a shard in place of the old one, wherever they are.
    async fn exchange(&self, shard: u32) -> Result<(), RebalanceError> {
        let (from, to) = (self.home(&self.from, shard), self.home(&self.to, shard));
        if let Some(from) = from.filter(|from| to.as_ref() != Some(from)) {
            from.exchange(shard, false).await?;
        }
        match to {
            Some(to) => to.exchange(shard, true).await,
            None => Ok(()),
        }
    }
}

/// Writes the journals of the changed shards aside, where they will be, from those that there are.
async fn copy(
    places: &Places<'_>,
    manifest: &Manifest,
    changed: &BTreeSet<u32>,
    moved: &mut Moved,
) -> Result<(), RebalanceError> {
    let (cluster, to) = (places.cluster, &places.to);
    let mut writers = BTreeMap::new();
    for shard in changed.iter().filter(|shard| **shard < to.shard_count()) {
        let place = aside(cluster, *shard, "next");
        directory::claim(&place, &manifest.cluster, *shard, false)?;
        writers.insert(*shard, Writer::new(Open::new(*shard, &place)?));
    }
    for shard in changed.iter().filter(|shard| manifest.known.contains(shard)) {
        let Some(home) = places.home(&places.from, *shard) else { continue };
        let place = home.fetch(*shard, cluster).await?;
        directory::claim(&place, &manifest.cluster, *shard, true)?;
        let mut source = Open::when_left(*shard, &place).await?;
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
    for (shard, writer) in writers {
        writer.finish().await?;
        if let Some(home) = places.home(to, shard) {
            home.put(shard, cluster).await?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
