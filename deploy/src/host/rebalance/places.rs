//! The places of a move: where each shard's directory is before it and afterwards.
//!
//! In: two placements, and the machines. Out: the shards that change, and their homes. Always: what is the same place under two names
//! of machines is one place.

use super::RebalanceError;
use super::home::Home;
use super::script::Attempt;
use crate::host::directory::Manifest;
use crate::host::layout::machine_of;
use crate::host::plan::Machine;
use crate::placement::Placement;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Where the shards are, and where they will be.
pub(super) struct Places {
    pub(super) cluster: PathBuf,
    machines: Vec<Machine>,
    from: Placement,
    pub(super) to: Placement,
    attempt: Attempt,
}

impl Places {
    pub(super) fn new(cluster: &Path, machines: &[Machine], manifest: &Manifest, to: &Placement) -> Self {
        Self {
            cluster: cluster.to_owned(),
            machines: machines.to_vec(),
            from: manifest.placement.clone(),
            to: to.clone(),
            attempt: Attempt { cluster: manifest.cluster.clone(), number: manifest.attempts },
        }
    }

    /// Where the directory of a shard is; nowhere, if it is made.
    pub(super) fn before(&self, shard: u32) -> Option<Home> {
        self.home(&self.from, shard)
    }

    /// Where it will be; nowhere, if the shard is no more.
    pub(super) fn after(&self, shard: u32) -> Option<Home> {
        self.home(&self.to, shard)
    }

    /// Where the directory of a shard is in one of the two placements; nowhere, if it has no such shard.
    fn home(&self, placement: &Placement, shard: u32) -> Option<Home> {
        let machine = machine_of(placement, shard, self.machines.len());
        let home = self.machines.get(machine).map(|machine| Home::of(machine, &self.attempt));
        let home = home.unwrap_or_else(|| Home::Here(self.cluster.clone()));
        Some(home).filter(|_| shard < placement.shard_count())
    }

    /// All places where something may stand aside; what comes from other machines does so here.
    pub(super) fn homes(&self) -> Vec<Home> {
        let here = Home::Here(self.cluster.clone());
        let others = self.machines.iter().map(|machine| Home::of(machine, &self.attempt)).filter(|home| *home != here);
        others.chain([here.clone()]).collect()
    }

    /// The shards that have other virtual shards afterwards, or are elsewhere.
    pub(super) fn changed(&self) -> BTreeSet<u32> {
        let (from, to) = (&self.from, &self.to);
        let differ = from.table.iter().zip(&to.table).filter(|(old, new)| old != new);
        let mut changed: BTreeSet<u32> = differ.flat_map(|(old, new)| [*old, *new]).collect();
        // A shard that is new or gone is so even if it has no virtual shard.
        let all = 0..from.shard_count().max(to.shard_count());
        changed.extend(all.filter(|shard| self.before(*shard) != self.after(*shard)));
        changed
    }

    /// Puts the new directory of a shard in place of the old one, wherever they are.
    pub(super) async fn exchange(&self, shard: u32) -> Result<(), RebalanceError> {
        let (from, to) = (self.before(shard), self.after(shard));
        if let Some(from) = from.filter(|from| to.as_ref() != Some(from)) {
            from.exchange(shard, false).await?;
        }
        match to {
            Some(to) => to.exchange(shard, true).await,
            None => Ok(()),
        }
    }
}
