//! The threads that rest and have not left memory yet: the next input needs no recall.
//!
//! In: a thread comes to rest; something happens to it again; what the host allows. Out: the threads that have to leave.
//! Always: they take at most as many bytes as the host allows, none by default; who has rested longest leaves first, and
//! nobody stays for long. It is told by the records' own times how long that is, because a flow has no clock.

use crate::id::ThreadId;
use crate::record::{Block, Content, PostBody, Record};
use std::collections::BTreeMap;

/// How long a thread stays while others go on, in milliseconds by the records' times. Longer than most tools take.
pub const STAY_MAX_MS: u64 = 10_000;

/// What a record costs in memory beside its text: items, identifiers, places in lists.
const RECORD_BYTES: usize = 400;

/// The place of a thread among those that rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place(u64);

/// The threads that rest in memory, who has rested longest first.
#[derive(Clone, Debug, Default)]
pub struct Warm {
    max_bytes: usize,
    bytes: usize,
    next: u64,
    resting: BTreeMap<Place, Resting>,
}

#[derive(Clone, Debug)]
struct Resting {
    thread: ThreadId,
    bytes: usize,
    at_ms: u64,
}

impl Warm {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.resting.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.resting.is_empty()
    }

    /// The host allows so many bytes from now on.
    pub fn allow(&mut self, max_bytes: usize) {
        self.max_bytes = max_bytes;
    }

    /// A thread of this size comes to rest; its last record has this time.
    pub fn rests(&mut self, thread: ThreadId, bytes: usize, at_ms: u64) -> Place {
        let place = Place(self.next);
        self.next += 1;
        self.bytes += bytes;
        self.resting.insert(place, Resting { thread, bytes, at_ms });
        place
    }

    /// Something happens to the thread at this place: it rests no longer.
    pub fn wakes(&mut self, place: Place) {
        if let Some(resting) = self.resting.remove(&place) {
            self.bytes -= resting.bytes;
        }
    }

    /// The next one that has to leave, now that a record has this time.
    pub fn leaves(&mut self, now_ms: u64) -> Option<ThreadId> {
        let first = self.resting.first_entry()?;
        if self.bytes <= self.max_bytes && now_ms.saturating_sub(first.get().at_ms) <= STAY_MAX_MS {
            return None;
        }
        let Resting { thread, bytes, .. } = first.remove();
        self.bytes -= bytes;
        Some(thread)
    }
}

/// About how many bytes of memory a thread takes for this record.
pub fn bytes_of(record: &Record) -> usize {
    let contents = |contents: &[Content]| contents.iter().map(Content::byte_length).sum::<usize>();
    let text = match record {
        Record::Message(message) => contents(&message.content),
        Record::Completion(completion) => completion.blocks.iter().map(bytes_of_block).sum(),
        Record::Result(result) => contents(&result.content) + result.display.as_ref().map_or(0, String::len),
        Record::Event(event) => contents(&event.content),
        Record::Post(post) => match &post.body {
            PostBody::Birth(birth) => {
                birth.spawn.arguments.len() + birth.event.as_ref().map_or(0, |(_, content)| contents(content))
            }
            PostBody::Message(text) | PostBody::Report { text, .. } | PostBody::Summary { text, .. } => text.len(),
            PostBody::SummaryFailed { why, .. } => why.len(),
            PostBody::Summarize { .. } | PostBody::Close | PostBody::Closed | PostBody::Stop => 0,
        },
        _ => 0,
    };
    RECORD_BYTES + text
}

fn bytes_of_block(block: &Block) -> usize {
    match block {
        Block::Text(text) => text.len(),
        Block::Reasoning { text, sealed } => text.len() + sealed.as_ref().map_or(0, |sealed| sealed.json.len()),
        // The call keeps its own copy while it is open, and for as long as its late result is welcome.
        Block::Call { provider_id, name, arguments } => 2 * (provider_id.len() + name.len() + arguments.len()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(byte: u8) -> ThreadId {
        ThreadId::from_bytes([byte; 16])
    }

    fn all_that_leave(warm: &mut Warm, now_ms: u64) -> Vec<ThreadId> {
        std::iter::from_fn(|| warm.leaves(now_ms)).collect()
    }

    #[test]
    fn who_has_rested_longest_leaves_first_until_the_rest_fits() {
        let mut warm = Warm::default();
        warm.allow(250);
        let places: Vec<_> = (1..=4).map(|byte| warm.rests(thread(byte), 100, 0)).collect();
        warm.wakes(places[0]);
        warm.rests(thread(1), 100, 0);
        assert_eq!(all_that_leave(&mut warm, 0), [thread(2), thread(3)]);
        assert_eq!(warm.len(), 2);
        warm.allow(0);
        assert_eq!(all_that_leave(&mut warm, 0), [thread(4), thread(1)]);
        assert!(warm.is_empty() && warm.bytes == 0);
    }

    #[test]
    fn nobody_stays_for_long_even_if_there_is_room() {
        let mut warm = Warm::default();
        warm.allow(usize::MAX);
        warm.rests(thread(1), 100, 5_000);
        warm.rests(thread(2), 100, 5_001);
        assert_eq!(all_that_leave(&mut warm, 5_000 + STAY_MAX_MS), []);
        assert_eq!(all_that_leave(&mut warm, 5_001 + STAY_MAX_MS), [thread(1)]);
    }

    #[test]
    fn one_that_is_larger_than_all_that_is_allowed_leaves_at_once() {
        let mut warm = Warm::default();
        warm.allow(99);
        let place = warm.rests(thread(1), 100, 0);
        assert_eq!(all_that_leave(&mut warm, 0), [thread(1)]);
        // Whoever still has the place changes nothing.
        warm.wakes(place);
        assert_eq!(warm.bytes, 0);
    }
}
