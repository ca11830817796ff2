//! The pace: how fast the events of one subscription may come.
//!
//! In: the subscription of an event, and the time. Out: nothing, or after how long to come back. Always: in every minute at
//! most so many events of one subscription pass; a subscription that is silent costs nothing.
//!
//! The generic cell rate algorithm (ITU-T I.371): each event moves the moment until which the pace is used up; one that
//! would move it further than a minute from now comes too early.

use slackwater_core::id::{CallId, ThreadId};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

const MINUTE_MS: u64 = 60_000;

/// So many entries are kept before those of silent subscriptions are looked for.
const ENTRIES_MIN: usize = 1_024;

/// How fast events may come, and how fast they came.
#[derive(Debug)]
pub(super) struct Pace {
    /// How many a minute; 0 for as many as come.
    per_minute: u32,
    used: Mutex<Used>,
}

#[derive(Debug, Default)]
struct Used {
    /// Until when the pace of each subscription is used up, in milliseconds since the Unix epoch.
    until_ms: HashMap<(ThreadId, CallId), f64>,
    /// With so many entries the silent ones are looked for again.
    look_at: usize,
}

impl Pace {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute, used: Mutex::default() }
    }

    /// Lets an event of a subscription pass.
    ///
    /// # Errors
    /// After how many seconds it may come again.
    pub(super) fn pass(&self, thread: ThreadId, call: CallId, now_ms: u64) -> Result<(), u32> {
        if self.per_minute == 0 {
            return Ok(());
        }
        let (now, minute) = (now_ms as f64, MINUTE_MS as f64);
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if used.until_ms.len() >= used.look_at.max(ENTRIES_MIN) {
            used.until_ms.retain(|_, until| *until > now);
            used.look_at = 2 * used.until_ms.len();
        }
        let until = used.until_ms.entry((thread, call)).or_insert(now);
        let next = until.max(now) + minute / f64::from(self.per_minute);
        // Half a millisecond is what adding up so many parts of a minute may be wrong by.
        let early_ms = next - now - minute - 0.5;
        if early_ms > 0.0 {
            return Err((early_ms / 1_000.0).ceil() as u32);
        }
        *until = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREAD: ThreadId = ThreadId::from_bytes([1; 16]);
    const NOW_MS: u64 = 1_700_000_000_000;

    fn call(number: u64) -> CallId {
        CallId { number, index: 0 }
    }

    #[test]
    fn so_many_pass_in_a_minute_and_then_one_for_each_part_of_it() {
        let pace = Pace::new(60);
        assert!((0..60).all(|_| pace.pass(THREAD, call(1), NOW_MS).is_ok()));
        assert_eq!(pace.pass(THREAD, call(1), NOW_MS), Err(1));
        assert_eq!(pace.pass(THREAD, call(2), NOW_MS), Ok(()), "another subscription has a pace of its own");
        assert_eq!(pace.pass(THREAD, call(1), NOW_MS + 1_000), Ok(()));
        assert_eq!(pace.pass(THREAD, call(1), NOW_MS + 1_000), Err(1));
        assert!((0..60).all(|_| pace.pass(THREAD, call(1), NOW_MS + 61_001).is_ok()), "silence gives it back");
        assert!((0..1_000).all(|_| Pace::new(0).pass(THREAD, call(1), NOW_MS).is_ok()));
    }

    #[test]
    fn silent_subscriptions_are_forgotten() {
        let pace = Pace::new(600);
        for number in 0..100_000 {
            assert_eq!(pace.pass(THREAD, call(number), NOW_MS + 1_000 * number), Ok(()));
        }
        let kept = pace.used.lock().unwrap_or_else(PoisonError::into_inner).until_ms.len();
        assert!(kept <= ENTRIES_MIN, "{kept} entries");
    }
}
