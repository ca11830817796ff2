//! The index: where each thread's last record is.
//!
//! In: what became durable. Out: a thread's entry, and the threads in order of their ids. Always: it holds nothing that is
//! not on stable storage; an entry is 16 bytes, so that with its id and the table's slack a thread costs 38 to 75, and 69 at a million threads.

use super::format::Location;
use hashbrown::HashMap;
use slackwater_core::id::{Number, ThreadId};
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Its parts are locked one by one, so that who walks all of them does not hold up who looks one up, and growing is done
/// in small steps.
const PARTS: usize = 16;

/// Where a thread stands on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The frame of its last record.
    pub(super) location: Location,
    /// That record's number; the highest bit says that a rest hint covers it.
    number: u64,
}

const AT_REST: u64 = 1 << 63;

impl Entry {
    pub(super) fn new(location: Location, last: Number) -> Self {
        Self { location, number: last }
    }

    /// The number of the last record.
    pub(super) fn last(self) -> Number {
        self.number & !AT_REST
    }

    /// Whether a rest hint covers the last record. Known only of what was read at the opening.
    pub(super) fn is_at_rest(self) -> bool {
        self.number & AT_REST != 0
    }

    pub(super) fn set_at_rest(&mut self) {
        self.number |= AT_REST;
    }
}

/// All threads of a journal.
#[derive(Debug, Default)]
pub(super) struct Index {
    parts: [Mutex<HashMap<ThreadId, Entry>>; PARTS],
    any_damage: AtomicBool,
    damage: RwLock<BTreeMap<ThreadId, String>>,
}

impl Index {
    pub(super) fn get(&self, thread: &ThreadId) -> Option<Entry> {
        self.part(thread).get(thread).copied()
    }

    pub(super) fn set(&self, thread: ThreadId, entry: Entry) {
        self.part(&thread).insert(thread, entry);
    }

    /// A thread's entry to be changed, made if it is new.
    pub(super) fn change(&mut self, thread: ThreadId) -> &mut Entry {
        let part = self.parts[part_of(&thread)].get_mut().unwrap_or_else(PoisonError::into_inner);
        part.entry(thread).or_default()
    }

    /// How many threads there are.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| lock(part).len()).sum()
    }

    /// The first threads by id after the given one.
    pub(super) fn page(&self, after: Option<ThreadId>, limit: usize) -> Vec<ThreadId> {
        let mut lowest = BinaryHeap::new();
        for part in &self.parts {
            for &thread in lock(part).keys().filter(|&&thread| after.is_none_or(|after| thread > after)) {
                if lowest.len() < limit {
                    lowest.push(thread);
                } else if lowest.peek().is_some_and(|highest| thread < *highest) {
                    lowest.pop();
                    lowest.push(thread);
                }
            }
        }
        lowest.into_sorted_vec()
    }

    /// The threads whose last record no rest hint covers, by id.
    pub(super) fn unsettled(&self) -> Vec<ThreadId> {
        let mut threads = Vec::new();
        for part in &self.parts {
            threads.extend(lock(part).iter().filter(|(_, entry)| !entry.is_at_rest()).map(|(&thread, _)| thread));
        }
        threads.sort_unstable();
        threads
    }

    /// Notes that a thread's records are damaged. The first words are kept.
    pub(super) fn set_damaged(&self, thread: ThreadId, what: String) {
        self.damage.write().unwrap_or_else(PoisonError::into_inner).entry(thread).or_insert(what);
        self.any_damage.store(true, Ordering::Release);
    }

    /// What is wrong with a thread's records, if anything is known to be.
    pub(super) fn damage(&self, thread: &ThreadId) -> Option<String> {
        if !self.any_damage.load(Ordering::Acquire) {
            return None;
        }
        self.damage.read().unwrap_or_else(PoisonError::into_inner).get(thread).cloned()
    }

    fn part(&self, thread: &ThreadId) -> MutexGuard<'_, HashMap<ThreadId, Entry>> {
        lock(&self.parts[part_of(thread)])
    }
}

fn part_of(thread: &ThreadId) -> usize {
    thread.as_bytes().iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)) as usize % PARTS
}

fn lock(part: &Mutex<HashMap<ThreadId, Entry>>) -> MutexGuard<'_, HashMap<ThreadId, Entry>> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_costs_what_the_budget_says() {
        assert_eq!(size_of::<(ThreadId, Entry)>(), 32);
        // 62,500 fill the tables as 1,000,000 do; 58,000 are the worst case, when they have just doubled.
        for (threads, most) in [(62_500_u64, 70), (58_000, 76)] {
            let mut index = Index::default();
            for thread in 0..threads {
                let name = u128::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
                *index.change(ThreadId::from_bytes(name.to_le_bytes())) = Entry::new(Location::default(), 1);
            }
            let bytes: usize = index.parts.iter().map(|part| lock(part).allocation_size()).sum();
            let each = bytes as u64 / threads;
            assert!((32..=most).contains(&each), "{each} bytes a thread at {threads}");
        }
    }

    #[test]
    fn pages_follow_the_order_of_ids() {
        let index = Index::default();
        for byte in (0..200_u8).rev() {
            index.set(ThreadId::from_bytes([byte; 16]), Entry::default());
        }
        let first = index.page(None, 30);
        assert_eq!(first, (0..30).map(|byte| ThreadId::from_bytes([byte; 16])).collect::<Vec<_>>());
        let next = index.page(first.last().copied(), 200);
        assert_eq!(next, (30..200).map(|byte| ThreadId::from_bytes([byte; 16])).collect::<Vec<_>>());
        assert!(index.page(None, 0).is_empty());
    }
}
