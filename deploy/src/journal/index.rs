//! The index: where each thread's last record is.
//!
//! In: what became durable. Out: a thread's entry, and the threads in order of their ids. Always: it holds nothing that is
//! not on stable storage; an entry with its id is 32 bytes, and the tables' slack is at most an eighth of that again.

use super::format::Location;
use hashbrown::DefaultHashBuilder;
use slackwater_core::id::{Number, ThreadId};
use std::collections::{BTreeMap, BinaryHeap};
use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

/// Its parts are locked one by one, so that who walks all of them does not hold up who looks one up, and growing is done
/// in small steps.
pub(super) const PARTS: usize = 256;

/// Where a thread stands on the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// The frame of its last record, or the block that ends with it.
    pub(super) location: Location,
    /// That record's number, below 2^56, and above it what the constants say.
    number: u64,
}

/// The thread has come to rest since its last record.
const AT_REST: u64 = 1 << 63;
/// The block at the location says so too, so that the log is not needed for it.
const REST_IN_BLOCK: u64 = 1 << 62;
/// How long the block at the location is: the power of two that it does not exceed.
const SIZE_SHIFT: u32 = 56;
const NUMBER: u64 = (1 << SIZE_SHIFT) - 1;

impl Entry {
    /// A thread whose last record is a frame of the log.
    pub(super) fn new(location: Location, last: Number) -> Self {
        Self { location, number: last }
    }

    /// A thread whose last record is the last of a block of this length in bytes.
    pub(super) fn packed(location: Location, last: Number, length: u32, rests: bool) -> Self {
        let size = u64::from(length.max(1).next_power_of_two().trailing_zeros());
        let rest = if rests { AT_REST | REST_IN_BLOCK } else { 0 };
        Self { location, number: last | size << SIZE_SHIFT | rest }
    }

    /// The number of the last record.
    pub(super) fn last(self) -> Number {
        self.number & NUMBER
    }

    /// How many bytes are worth reading at the location, if it is a block's.
    pub(super) fn block_bytes(self) -> usize {
        1 << (self.number >> SIZE_SHIFT & 63).min(31)
    }

    /// Whether a rest hint covers the last record.
    pub(super) fn is_at_rest(self) -> bool {
        self.number & AT_REST != 0
    }

    /// Whether the block at the location says that the thread rests.
    pub(super) fn is_rest_in_block(self) -> bool {
        self.number & REST_IN_BLOCK != 0
    }

    pub(super) fn set_at_rest(&mut self) {
        self.number |= AT_REST;
    }

    /// The entry in numbers, and back.
    pub(super) fn to_bits(self) -> (Location, u64) {
        (self.location, self.number)
    }

    pub(super) fn from_bits(location: Location, number: u64) -> Self {
        Self { location, number }
    }
}

/// All threads of a journal.
#[derive(Debug)]
pub(super) struct Index {
    parts: Vec<Mutex<Table>>,
    hasher: DefaultHashBuilder,
    any_damage: AtomicBool,
    damage: RwLock<BTreeMap<ThreadId, String>>,
}

impl Default for Index {
    fn default() -> Self {
        Self {
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            hasher: DefaultHashBuilder::default(),
            any_damage: AtomicBool::default(),
            damage: RwLock::default(),
        }
    }
}

impl Index {
    pub(super) fn get(&self, thread: &ThreadId) -> Option<Entry> {
        let (part, hash) = self.part(thread);
        lock(part).get(thread, hash)
    }

    pub(super) fn set(&self, thread: ThreadId, entry: Entry) {
        debug_assert!(entry.last() > 0, "a thread has a record");
        let (part, hash) = self.part(&thread);
        lock(part).set(thread, hash, entry, &self.hasher);
    }

    /// Makes room for so many threads.
    pub(super) fn reserve(&self, threads: usize) {
        for part in &self.parts {
            lock(part).reserve(threads / PARTS + threads / PARTS / 32, &self.hasher);
        }
    }

    /// How many threads there are.
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| lock(part).used).sum()
    }

    /// The entries of one part, as they are at this moment.
    pub(super) fn part_entries(&self, part: usize) -> Vec<(ThreadId, Entry)> {
        lock(&self.parts[part]).entries().collect()
    }

    /// The first threads by id after the given one.
    pub(super) fn page(&self, after: Option<ThreadId>, limit: usize) -> Vec<ThreadId> {
        let mut lowest = BinaryHeap::new();
        for part in &self.parts {
            for (thread, _) in lock(part).entries().filter(|(thread, _)| after.is_none_or(|after| *thread > after)) {
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
            threads.extend(lock(part).entries().filter(|(_, entry)| !entry.is_at_rest()).map(|(thread, _)| thread));
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
        if !self.is_any_damaged() {
            return None;
        }
        self.damage.read().unwrap_or_else(PoisonError::into_inner).get(thread).cloned()
    }

    /// Whether any thread's records are known to be damaged.
    pub(super) fn is_any_damaged(&self) -> bool {
        self.any_damage.load(Ordering::Acquire)
    }

    fn part(&self, thread: &ThreadId) -> (&Mutex<Table>, u64) {
        let hash = self.hasher.hash_one(thread);
        (&self.parts[hash as usize % PARTS], hash)
    }
}

fn lock(part: &Mutex<Table>) -> MutexGuard<'_, Table> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A part: a table with open addressing, in which each lies at the first free place from where its hash points. Nothing is
/// ever removed, so it may be fifteen sixteenths full and grow by a sixteenth: even then who is there is found after nine
/// places on average, who is not after 130, and these lie one after another.
#[derive(Debug, Default)]
struct Table {
    /// An entry whose number is 0 is free.
    slots: Vec<(ThreadId, Entry)>,
    used: usize,
}

impl Table {
    /// The place of a thread, or the free one where it would be.
    fn place(&self, thread: &ThreadId, hash: u64) -> usize {
        let mut place = ((u128::from(hash) * self.slots.len() as u128) >> 64) as usize;
        while self.slots[place].1 != Entry::default() && self.slots[place].0 != *thread {
            place = if place + 1 == self.slots.len() { 0 } else { place + 1 };
        }
        place
    }

    fn get(&self, thread: &ThreadId, hash: u64) -> Option<Entry> {
        if self.slots.is_empty() {
            return None;
        }
        Some(self.slots[self.place(thread, hash)].1).filter(|entry| *entry != Entry::default())
    }

    fn set(&mut self, thread: ThreadId, hash: u64, entry: Entry, hasher: &DefaultHashBuilder) {
        if (self.used + 1) * 16 > self.slots.len() * 15 {
            self.reserve(self.used + self.used / 16 + 4, hasher);
        }
        let place = self.place(&thread, hash);
        self.used += usize::from(self.slots[place].1 == Entry::default());
        self.slots[place] = (thread, entry);
    }

    fn reserve(&mut self, threads: usize, hasher: &DefaultHashBuilder) {
        let length = threads * 16 / 15 + 1;
        if length <= self.slots.len() {
            return;
        }
        let old = std::mem::replace(&mut self.slots, vec![(ThreadId::from_bytes([0; 16]), Entry::default()); length]);
        for (thread, entry) in old.into_iter().filter(|(_, entry)| *entry != Entry::default()) {
            let place = self.place(&thread, hasher.hash_one(thread));
            self.slots[place] = (thread, entry);
        }
    }

    fn entries(&self) -> impl Iterator<Item = (ThreadId, Entry)> + '_ {
        self.slots.iter().copied().filter(|(_, entry)| *entry != Entry::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(thread: u64) -> ThreadId {
        ThreadId::from_bytes(u128::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835).to_le_bytes())
    }

    #[test]
    fn a_thread_costs_what_the_budget_says() {
        assert_eq!(size_of::<(ThreadId, Entry)>(), 32);
        let index = Index::default();
        let mut worst = 0;
        for thread in 0..200_000_u64 {
            index.set(name(thread), Entry::new(Location::default(), thread + 1));
            if thread % 10_000 == 9_999 {
                let bytes: usize = index.parts.iter().map(|part| lock(part).slots.capacity() * 32).sum();
                worst = worst.max(bytes as u64 / (thread + 1));
            }
        }
        assert!((32..=39).contains(&worst), "{worst} bytes a thread");
        assert_eq!(index.len(), 200_000);
        for thread in 0..200_000_u64 {
            assert_eq!(index.get(&name(thread)).map(Entry::last), Some(thread + 1));
        }
        assert_eq!(index.get(&name(200_000)), None);
    }

    #[test]
    fn an_entry_keeps_its_parts_apart() {
        let location = Location { segment: 3, offset: 9 };
        let mut entry = Entry::packed(location, 77, 5_000, false);
        assert_eq!((entry.last(), entry.block_bytes(), entry.is_at_rest()), (77, 8_192, false));
        entry.set_at_rest();
        assert_eq!((entry.last(), entry.is_at_rest(), entry.is_rest_in_block()), (77, true, false));
        let (location, bits) = entry.to_bits();
        assert_eq!(Entry::from_bits(location, bits), entry);
        assert!(Entry::packed(location, 1, u32::MAX / 2, true).is_rest_in_block());
        assert_eq!(Entry::packed(location, NUMBER, 1 << 31, true).block_bytes(), 1 << 31);
    }

    #[test]
    fn pages_follow_the_order_of_ids() {
        let index = Index::default();
        for byte in (0..200_u8).rev() {
            index.set(ThreadId::from_bytes([byte; 16]), Entry::new(Location::default(), 1));
        }
        let first = index.page(None, 30);
        assert_eq!(first, (0..30).map(|byte| ThreadId::from_bytes([byte; 16])).collect::<Vec<_>>());
        let next = index.page(first.last().copied(), 200);
        assert_eq!(next, (30..200).map(|byte| ThreadId::from_bytes([byte; 16])).collect::<Vec<_>>());
        assert!(index.page(None, 0).is_empty());
    }
}
