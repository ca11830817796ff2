//! Placement: which cell and which shard of it a thread is at.
//!
//! In: how many cells and shards, and the table of the virtual shards. Out: a thread's place. Always: a thread's virtual shard
//! never changes; which process has it is said by the table and by nothing else; a tree of threads is at one place.

use serde::{Deserialize, Serialize};
use slackwater_core::id::{ThreadId, virtual_shard_of};

/// How many virtual shards a new cluster has. More than that many processes can never share its threads.
pub const VIRTUAL_SHARDS: u32 = 256;

/// Where the threads of a cluster are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// How many cells there are.
    pub cells: u32,
    /// How many shards each of them has.
    pub shards: u32,
    /// The shard of each virtual shard. Shards are counted over all cells, from 0: those of the first cell, then the next's.
    pub table: Vec<u32>,
}

/// What the locations of one cell are told of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Cell {
    /// The cluster's name: a UUID.
    pub cluster: String,
    /// Which cell this is, counted from 0.
    pub cell: u32,
    /// Where all threads are.
    pub placement: Placement,
    /// Where each cell's gateway is reached by the others, without a path.
    pub gateways: Vec<String>,
    /// Where this cell's gateway listens.
    pub listen: std::net::SocketAddr,
    /// How many toolhosts this cell has.
    pub toolhosts: u32,
}

impl Placement {
    /// A new cluster's: every shard has as many virtual shards as the others, or one more.
    pub fn even(cells: u32, shards: u32, virtual_shards: u32) -> Self {
        Self { cells, shards, table: (0..virtual_shards).map(|number| number % (cells * shards).max(1)).collect() }
    }

    /// How many shards there are in all cells.
    pub fn shard_count(&self) -> u32 {
        self.cells * self.shards
    }

    /// The virtual shard of a thread.
    pub fn virtual_shard_of(&self, thread: ThreadId) -> u32 {
        virtual_shard_of(thread, self.table.len() as u32)
    }

    /// The shard that a thread is at, counted over all cells.
    pub fn shard_of(&self, thread: ThreadId) -> u32 {
        self.table[self.virtual_shard_of(thread) as usize]
    }

    /// The cell that a thread is at.
    pub fn cell_of(&self, thread: ThreadId) -> u32 {
        self.shard_of(thread) / self.shards
    }

    /// The shard that a thread is at, counted in its cell.
    pub fn member_of(&self, thread: ThreadId) -> u32 {
        self.shard_of(thread) % self.shards
    }

    /// What is wrong with it, if something is: a table that sends threads nowhere loses them.
    pub fn fault(&self) -> Option<String> {
        if self.cells == 0 || self.shards == 0 || self.table.is_empty() {
            return Some("a cluster has a cell, a shard and a virtual shard at least".to_owned());
        }
        let nowhere = self.table.iter().position(|shard| *shard >= self.shard_count())?;
        Some(format!(
            "the virtual shard {nowhere} is at shard {}, and there are only {}",
            self.table[nowhere],
            self.shard_count()
        ))
    }

    /// The same threads over another number of cells and shards: every shard gets its even part, and as few virtual shards
    /// move as can be.
    pub fn spread(&self, cells: u32, shards: u32) -> Self {
        let count = (cells * shards).max(1);
        let (part, more) = (self.table.len() as u32 / count, self.table.len() as u32 % count);
        // Which shards have one more is chosen so that least moves: those that have most now.
        let mut owned = vec![0_u32; count as usize];
        for shard in self.table.iter().filter(|shard| **shard < count) {
            owned[*shard as usize] += 1;
        }
        let mut order: Vec<u32> = (0..count).collect();
        order.sort_by_key(|shard| std::cmp::Reverse(owned[*shard as usize]));
        let mut room = vec![part; count as usize];
        order.iter().take(more as usize).for_each(|shard| room[*shard as usize] += 1);

        let mut table = vec![None; self.table.len()];
        for (number, shard) in self.table.iter().enumerate() {
            if let Some(room) = room.get_mut(*shard as usize).filter(|room| **room > 0) {
                *room -= 1;
                table[number] = Some(*shard);
            }
        }
        let mut free = (0..count).flat_map(|shard| std::iter::repeat_n(shard, room[shard as usize] as usize));
        let table = table.into_iter().map(|place| place.or_else(|| free.next()).unwrap_or(0)).collect();
        Self { cells, shards, table }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use proptest::prelude::*;

    fn owned(placement: &Placement) -> Vec<usize> {
        (0..placement.shard_count())
            .map(|shard| placement.table.iter().filter(|place| **place == shard).count())
            .collect()
    }

    proptest! {
        #[test]
        fn a_tree_is_at_one_place(root: [u8; 16], number in 1_u64..1_000, cells in 1_u32..5, shards in 1_u32..5) {
            let root = ThreadId::from_bytes(root);
            let child = root.child(slackwater_core::id::CallId { number, index: 0 });
            let placement = Placement::even(cells, shards, VIRTUAL_SHARDS);
            prop_assert_eq!(placement.fault(), None);
            prop_assert_eq!(placement.shard_of(root), placement.shard_of(child));
            let place = placement.cell_of(root) * shards + placement.member_of(root);
            prop_assert_eq!(place, placement.shard_of(root));
        }

        #[test]
        fn spreading_is_even_and_moves_as_little_as_can_be(
            from in (1_u32..5, 1_u32..5), to in (1_u32..5, 1_u32..5), virtual_shards in 1_u32..300,
        ) {
            let before = Placement::even(from.0, from.1, virtual_shards);
            let after = before.spread(to.0, to.1);
            prop_assert_eq!(after.fault(), None);
            let counts = owned(&after);
            prop_assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
            let moved = before.table.iter().zip(&after.table).filter(|(old, new)| old != new).count();
            // What leaves a shard is what it has over its new part.
            let had = owned(&before);
            let kept: usize = counts.iter().zip(&had).map(|(new, old)| (*new).min(*old)).sum();
            prop_assert_eq!(moved, virtual_shards as usize - kept);
            prop_assert_eq!(after.spread(to.0, to.1), after, "nothing moves twice");
        }
    }

    #[test]
    fn a_table_that_sends_threads_nowhere_is_told() {
        let mut placement = Placement::even(2, 2, 8);
        placement.table[5] = 4;
        assert!(placement.fault().unwrap().contains("virtual shard 5 is at shard 4"));
        assert!(Placement::even(1, 1, 0).fault().is_some());
    }
}
