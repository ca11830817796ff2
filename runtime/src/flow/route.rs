//! Route: which shard of a cluster owns a thread.
//!
//! In: a thread and the number of shards. Out: a shard, counted from 0. Always: the same everywhere and at every start; when
//! a shard is added, only threads that move to it move (rendezvous hashing: Thaler and Ravishankar, 1998).

use crate::id::ThreadId;

/// The shard that owns a thread.
///
/// # Panics
/// When there are no shards.
pub fn shard_of(thread: ThreadId, shards: u32) -> u32 {
    (0..shards).max_by_key(|&shard| weight(thread, shard)).expect("invariant: a cluster has a shard")
}

/// The weight of a shard for a thread: FNV-1a over both, then the finalizer of SplitMix64, since FNV alone mixes its last
/// bytes too little.
fn weight(thread: ThreadId, shard: u32) -> u64 {
    let bytes = thread.as_bytes().iter().copied().chain(shard.to_le_bytes());
    let hash =
        bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn threads() -> impl Iterator<Item = ThreadId> {
        (0..10_000_u128)
            .map(|n| ThreadId::from_bytes(n.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_0c2d_3b1a_5e77).to_be_bytes()))
    }

    #[test]
    fn threads_are_spread_evenly() {
        let mut owned = [0_u32; 5];
        threads().for_each(|thread| owned[shard_of(thread, 5) as usize] += 1);
        assert!(owned.iter().all(|&count| (1_800..2_200).contains(&count)), "{owned:?}");
    }

    #[test]
    fn a_new_shard_takes_threads_and_moves_no_others() {
        for thread in threads() {
            let (before, after) = (shard_of(thread, 4), shard_of(thread, 5));
            assert!(after == before || after == 4);
        }
    }
}
