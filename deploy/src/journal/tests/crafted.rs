//! Segments that no writer writes: every sum matches, and what they say is wrong.

use super::super::batch::Batch;
use super::super::body;
use super::super::format::{
    BATCH_END, BatchEnd, FOOT_MAGIC, FrameHead, HEAD_MAGIC, Location, ROW, Row, SEGMENT_HEAD, SegmentHead, kind,
};
use super::fault_disk::FaultDisk;
use super::*;
use std::collections::BTreeMap;

/// A segment of one batch, filled by hand.
struct Crafted {
    batch: Batch,
}

impl Crafted {
    fn new() -> Self {
        let mut batch = Batch::default();
        batch.begin(Location { segment: 1, offset: SEGMENT_HEAD as u32 });
        Self { batch }
    }

    fn push(&mut self, thread: ThreadId, number: Number, kind: u8, previous: Location) -> Location {
        let head = FrameHead { row: Row { thread, number, kind, length: 0 }, previous, at_ms: 1 };
        self.batch.push(head, |bytes| match kind {
            kind::REST => body::write_timers(&rest(thread, number).timers, bytes),
            _ => body::write_record(&message(thread, "text").record, bytes),
        })
    }

    fn open(self) -> Journal {
        self.open_changed(|_| ()).unwrap()
    }

    fn open_changed(mut self, change: impl FnOnce(&mut [u8])) -> Result<Journal, JournalError> {
        let mut bytes = SegmentHead { version: 1, segment: 1, first: 1 }.write().to_vec();
        bytes.extend_from_slice(self.batch.seal(1));
        change(&mut bytes[SEGMENT_HEAD..]);
        // A batch that follows, so that this one is not the last.
        let mut next = Batch::default();
        next.begin(Location { segment: 1, offset: bytes.len() as u32 });
        let row = Row { thread: thread(7), number: 1, kind: kind::RECORD, length: 0 };
        let head = FrameHead { row, previous: Location::default(), at_ms: 1 };
        next.push(head, |bytes| body::write_record(&message(thread(7), "text").record, bytes));
        bytes.extend_from_slice(next.seal(2));
        Journal::open(FaultDisk::holding(&BTreeMap::from([(1, bytes)])), Options::default())
    }
}

fn refused(journal: &Journal) -> Vec<u8> {
    (1..=7).filter(|&number| journal.shared.index.damage(&thread(number)).is_some()).collect()
}

#[test]
fn a_gap_in_a_thread_refuses_it() {
    let mut crafted = Crafted::new();
    let first = crafted.push(thread(1), 1, kind::RECORD, Location::default());
    crafted.push(thread(1), 3, kind::RECORD, first);
    crafted.push(thread(2), 2, kind::RECORD, Location::default());
    let third = crafted.push(thread(3), 1, kind::RECORD, Location::default());
    crafted.push(thread(3), 2, kind::RECORD, third);
    assert_eq!(refused(&crafted.open()), [1, 2]);
}

#[test]
fn a_chain_that_leads_elsewhere_refuses_the_thread() {
    let mut crafted = Crafted::new();
    let first = crafted.push(thread(1), 1, kind::RECORD, Location::default());
    let second = crafted.push(thread(2), 1, kind::RECORD, Location::default());
    crafted.push(thread(1), 2, kind::RECORD, second);
    crafted.push(thread(2), 2, kind::RECORD, second);
    let journal = crafted.open();
    assert_eq!(refused(&journal), [1]);
    // The reader does not trust what the scan has let pass either.
    for wrong in [index::Entry::new(first, 2), index::Entry::new(second, 1), index::Entry::new(Location::default(), 1)]
    {
        let read = chain::read(source(&journal), thread(1), wrong, Number::MAX, || false);
        assert!(matches!(read, Err(chain::Unread::Damaged(_))), "{wrong:?}");
    }
}

#[test]
fn a_table_that_names_another_thread_than_the_frame_is_not_opened() {
    let mut crafted = Crafted::new();
    crafted.push(thread(1), 1, kind::RECORD, Location::default());
    crafted.push(thread(3), 1, kind::RECORD, Location::default());
    let opened = crafted.open_changed(|bytes| {
        let foot = bytes.len() - BATCH_END;
        let table = foot - 2 * ROW;
        bytes[table + 4] = 2;
        let end = BatchEnd::read(bytes, HEAD_MAGIC).unwrap();
        let end = BatchEnd { table_sum: crc32c::crc32c(&bytes[table..foot]), ..end };
        bytes[..BATCH_END].copy_from_slice(&end.write(HEAD_MAGIC));
        bytes[foot..].copy_from_slice(&end.write(FOOT_MAGIC));
    });
    let words = opened.err().unwrap().to_string();
    assert!(words.contains("2 of the 2 frames of a batch cannot be named"), "{words}");
}

#[test]
fn a_hint_that_a_later_record_made_void_does_not_hold() {
    let mut crafted = Crafted::new();
    let mut journal_of = |through| {
        let first = crafted.push(thread(1), 1, kind::RECORD, Location::default());
        crafted.push(thread(1), 1, kind::REST, Location::default());
        crafted.push(thread(1), 2, kind::RECORD, first);
        crafted.push(thread(1), through, kind::REST, Location::default());
        std::mem::replace(&mut crafted, Crafted::new()).open()
    };
    let void = journal_of(1);
    assert_eq!((void.unsettled, void.resting.len()), (vec![thread(1), thread(7)], 0));
    let holds = journal_of(2);
    assert_eq!((holds.unsettled, holds.resting.iter().collect()), (vec![thread(7)], vec![rest(thread(1), 2)]));
}

#[test]
fn a_frame_of_a_later_kind_refuses_its_thread() {
    let mut crafted = Crafted::new();
    crafted.push(thread(1), 1, 9, Location::default());
    crafted.push(thread(2), 1, kind::RECORD, Location::default());
    assert_eq!(refused(&crafted.open()), [1]);
}
