//! The pause between two attempts.
//!
//! In: how often it has failed. Out: how long to wait. Always: at most the given bound, at least half of what doubling says;
//! the rest is chance, so that many who failed together do not come back together.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// The pause after this many failures in a row (from 1).
pub(super) fn after(failures: u32, first_ms: u64, max_ms: u64) -> Duration {
    let doubled = first_ms.saturating_mul(1 << failures.saturating_sub(1).min(32)).min(max_ms);
    // A hasher with fresh random keys is a random number without another dependency.
    let chance = RandomState::new().build_hasher().finish();
    Duration::from_millis(doubled / 2 + chance % (doubled - doubled / 2 + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_bound() {
        for (failures, least_ms, most_ms) in [(1, 250, 500), (2, 500, 1_000), (5, 4_000, 8_000), (90, 15_000, 30_000)] {
            for _ in 0..100 {
                let pause = after(failures, 500, 30_000).as_millis();
                assert!((least_ms..=most_ms).contains(&pause), "{failures}: {pause}");
            }
        }
        assert_eq!(after(3, 0, 0), Duration::ZERO);
    }
}
