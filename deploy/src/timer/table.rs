//! A table of timers by name, in 28 bytes each and little slack.
//!
//! In: a timer's name and when it is due. Out: when it was due; and all that are due before a moment. Always: each lies at
//! the first free place from where its hash points, so the tables may be fifteen sixteenths full; they grow by a sixteenth.

use hashbrown::DefaultHashBuilder;
use slackwater_core::id::{CallId, ThreadId};
use std::collections::BTreeMap;
use std::hash::BuildHasher as _;

/// It grows and shrinks part by part.
const PARTS: usize = 64;
/// No timer is due later: this is in the year 10889.
const DUE_MAX_MS: u64 = (1 << 48) - 2;
/// A part is not made smaller than this.
const PLACES_MIN: usize = 16;

/// A timer: whose, of which call, when.
#[derive(Clone, Copy, Debug)]
struct Timer {
    thread: ThreadId,
    number: u32,
    /// When it is due, in 48 bits, and in the lowest 16 bits the call's index; in two halves, so that nothing is padded.
    due: [u32; 2],
}

/// What stands at a free place.
const FREE: Timer = Timer { thread: ThreadId::from_bytes([0; 16]), number: 0, due: [u32::MAX; 2] };

impl Timer {
    fn new(thread: ThreadId, number: u32, index: u16, due_ms: u64) -> Self {
        let due = due_ms << 16 | u64::from(index);
        Self { thread, number, due: [(due >> 32) as u32, due as u32] }
    }

    fn is_free(&self) -> bool {
        self.due == FREE.due
    }

    fn due(&self) -> u64 {
        u64::from(self.due[0]) << 32 | u64::from(self.due[1])
    }

    fn due_ms(&self) -> u64 {
        self.due() >> 16
    }

    fn call(&self) -> CallId {
        CallId { number: self.number.into(), index: self.due() as u16 }
    }

    fn is(&self, thread: ThreadId, call: CallId) -> bool {
        !self.is_free() && self.thread == thread && self.call() == call
    }
}

/// All timers by name.
#[derive(Debug)]
pub(super) struct Table {
    parts: Vec<Part>,
    hasher: DefaultHashBuilder,
    /// Those of calls whose number is too high for a place: of threads with four billion records.
    high: BTreeMap<(ThreadId, CallId), u64>,
}

#[derive(Debug, Default)]
struct Part {
    places: Vec<Timer>,
    used: usize,
}

impl Default for Table {
    fn default() -> Self {
        let parts = (0..PARTS).map(|_| Part::default()).collect();
        Self { parts, hasher: DefaultHashBuilder::default(), high: BTreeMap::new() }
    }
}

impl Table {
    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.used == 0) && self.high.is_empty()
    }

    /// Puts a timer in. When it was due before, if it was there.
    pub(super) fn insert(&mut self, thread: ThreadId, call: CallId, due_ms: u64) -> Option<u64> {
        let due_ms = due_ms.min(DUE_MAX_MS);
        let Ok(number) = u32::try_from(call.number) else { return self.high.insert((thread, call), due_ms) };
        let hash = hash_of(&self.hasher, thread, call);
        let part = &mut self.parts[hash as usize % PARTS];
        if (part.used + 1) * 16 > part.places.len() * 15 {
            part.resize(part.used * 17 / 15 + PLACES_MIN, &self.hasher);
        }
        let place = part.place(thread, call, hash);
        let before = std::mem::replace(&mut part.places[place], Timer::new(thread, number, call.index, due_ms));
        part.used += usize::from(before.is_free());
        (!before.is_free()).then(|| before.due_ms())
    }

    /// Takes a timer out. When it was due.
    pub(super) fn remove(&mut self, thread: ThreadId, call: CallId) -> Option<u64> {
        let hash = hash_of(&self.hasher, thread, call);
        let part = &mut self.parts[hash as usize % PARTS];
        if part.used == 0 || u32::try_from(call.number).is_err() {
            return self.high.remove(&(thread, call));
        }
        let place = part.place(thread, call, hash);
        let due_ms = Some(part.places[place]).filter(|found| !found.is_free())?.due_ms();
        part.free(place, &self.hasher);
        if part.used * 2 < part.places.len() && part.places.len() > 4 * PLACES_MIN {
            part.resize(part.used * 17 / 15 + PLACES_MIN, &self.hasher);
        }
        Some(due_ms)
    }

    /// The timers that are due before a moment, in no order.
    pub(super) fn due_before(&self, ms: u64) -> impl Iterator<Item = (u64, ThreadId, CallId)> + '_ {
        let places = self.parts.iter().flat_map(|part| &part.places);
        let due = places.filter(move |timer| !timer.is_free() && timer.due_ms() < ms);
        let high = self.high.iter().filter(move |(_, due_ms)| **due_ms < ms);
        due.map(|timer| (timer.due_ms(), timer.thread, timer.call()))
            .chain(high.map(|(&(thread, call), &due_ms)| (due_ms, thread, call)))
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.places.capacity() * size_of::<Timer>()).sum()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.used).sum::<usize>() + self.high.len()
    }
}

fn hash_of(hasher: &DefaultHashBuilder, thread: ThreadId, call: CallId) -> u64 {
    hasher.hash_one((thread, call.number, call.index))
}

impl Part {
    fn home(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.places.len() as u128) >> 64) as usize
    }

    fn after(&self, place: usize) -> usize {
        if place + 1 == self.places.len() { 0 } else { place + 1 }
    }

    /// The place of a timer, or the free one where it would be.
    fn place(&self, thread: ThreadId, call: CallId, hash: u64) -> usize {
        let mut place = self.home(hash);
        while !self.places[place].is_free() && !self.places[place].is(thread, call) {
            place = self.after(place);
        }
        place
    }

    /// Frees a place, and moves up those that lie after it only because it was taken.
    fn free(&mut self, mut hole: usize, hasher: &DefaultHashBuilder) {
        let mut place = self.after(hole);
        while !self.places[place].is_free() {
            let timer = self.places[place];
            let home = self.home(hash_of(hasher, timer.thread, timer.call()));
            let length = self.places.len();
            // How far it lies from its home, and how far the hole is from there.
            if (place + length - home) % length >= (place + length - hole) % length {
                self.places[hole] = timer;
                hole = place;
            }
            place = self.after(place);
        }
        self.places[hole] = FREE;
        self.used -= 1;
    }

    fn resize(&mut self, length: usize, hasher: &DefaultHashBuilder) {
        let old = std::mem::replace(&mut self.places, vec![FREE; length]);
        for timer in old.into_iter().filter(|timer| !timer.is_free()) {
            let place = self.place(timer.thread, timer.call(), hash_of(hasher, timer.thread, timer.call()));
            self.places[place] = timer;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn name(number: u64) -> (ThreadId, CallId) {
        let thread = u128::from(number / 3).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        (ThreadId::from_bytes(thread.to_le_bytes()), CallId { number: number % 3 + 1, index: (number % 5) as u16 })
    }

    /// The same, but some have a number that no place holds.
    fn any_name(number: u64) -> (ThreadId, CallId) {
        let (thread, call) = name(number);
        (
            thread,
            CallId { number: call.number + if number.is_multiple_of(7) { u64::from(u32::MAX) } else { 0 }, ..call },
        )
    }

    #[test]
    fn it_does_what_a_map_does() {
        let (mut table, mut map) = (Table::default(), BTreeMap::new());
        let mut state = 1_u64;
        for step in 0..200_000_u64 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // First it grows, then it shrinks to nothing.
            let (thread, call) = any_name((state >> 33) % 20_000);
            let puts_in = (state >> 20) % 10 < if step < 100_000 { 8 } else { 1 };
            match puts_in {
                true => assert_eq!(table.insert(thread, call, step), map.insert((thread, call), step)),
                false => assert_eq!(table.remove(thread, call), map.remove(&(thread, call))),
            }
            assert_eq!(table.is_empty(), map.is_empty());
        }
        let mut due: Vec<_> = table.due_before(190_000).collect();
        let mut expected: Vec<_> =
            map.iter().filter(|(_, due)| **due < 190_000).map(|((thread, call), due)| (*due, *thread, *call)).collect();
        due.sort();
        expected.sort();
        assert_eq!(due, expected);
        assert!(!due.is_empty() && table.len() == map.len());
    }

    #[test]
    fn a_timer_costs_what_the_budget_says() {
        assert_eq!(size_of::<Timer>(), 28);
        let mut table = Table::default();
        let mut worst = 0;
        for number in 0..200_000 {
            let (thread, call) = name(number);
            table.insert(thread, call, number);
            if number % 10_000 == 9_999 {
                worst = worst.max(table.bytes() as u64 / (number + 1));
            }
        }
        assert!((28..=35).contains(&worst), "{worst} bytes a timer");
        for number in 0..200_000 {
            table.remove(name(number).0, name(number).1);
        }
        assert!(table.is_empty() && table.bytes() < 200_000, "{} bytes of nothing", table.bytes());
        table.insert(name(1).0, name(1).1, u64::MAX);
        assert_eq!(table.remove(name(1).0, name(1).1), Some(DUE_MAX_MS));
    }
}
