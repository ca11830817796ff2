//! Damage: every byte of a journal is changed in turn, and no thread gets a shorter history for it.

use super::super::inspect::inspect_disk;
use super::fault_disk::FaultDisk;
use super::*;
use slackwater_core::effect::Refusal;
use std::collections::BTreeMap;
use std::ops::Range;

/// A small journal, and of each batch where it lies and what it holds.
struct Small {
    bytes: Vec<u8>,
    batches: Vec<(Range<usize>, Vec<batch::FoundFrame>)>,
    records: BTreeMap<ThreadId, Vec<Committed>>,
}

async fn small() -> Small {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append(vec![message(thread(1), "one"), message(thread(2), "two")]).await.unwrap();
    run.append(vec![message(thread(1), "three")]).await.unwrap();
    run.to.put(ToJournal::Rest(rest(thread(1), 2)));
    run.append(vec![message(thread(2), "four"), message(thread(3), "five")]).await.unwrap();
    run.append(vec![message(thread(2), "six")]).await.unwrap();
    let mut records = BTreeMap::new();
    for number in 1..=3 {
        records.insert(thread(number), run.recall(thread(number)).await.unwrap());
    }
    run.close().await;
    let bytes = disk.image()[&1].clone();
    let mut batches = Vec::new();
    let mut at = format::SEGMENT_HEAD;
    while let Some(found) = batch::find(&bytes, at, batches.len() as u64 + 1) {
        assert!(found.is_whole());
        let end = at + found.end.length as usize;
        batches.push((at..end, found.frames));
        at = end;
    }
    assert_eq!((batches.len(), at), (4, bytes.len()));
    Small { bytes, batches, records }
}

impl Small {
    fn with(&self, change: impl FnOnce(&mut [u8])) -> FaultDisk {
        let mut bytes = self.bytes.clone();
        change(&mut bytes);
        FaultDisk::holding(&BTreeMap::from([(1, bytes)]))
    }

    /// The thread whose record's frame this byte is part of.
    fn thread_at(&self, at: usize) -> Option<ThreadId> {
        self.batches.iter().flat_map(|(_, frames)| frames).find_map(|frame| {
            let end = frame.offset + format::FRAME_HEAD + frame.row.length as usize;
            (frame.row.kind == format::kind::RECORD && (frame.offset..end).contains(&at)).then_some(frame.row.thread)
        })
    }

    /// Of a thread's records, how many lie in batches that a whole batch follows, if these bytes are changed.
    fn least(&self, thread: ThreadId, changed: &Range<usize>) -> usize {
        let hit = |batch: &Range<usize>| batch.start < changed.end && changed.start < batch.end;
        let followed = self.batches.iter().rposition(|(batch, _)| !hit(batch)).unwrap_or(0);
        let before = &self.batches[..followed.max(usize::from(!hit(&self.batches[followed].0)) * (followed + 1))];
        let frames = before.iter().flat_map(|(_, frames)| frames);
        frames.filter(|frame| frame.row.thread == thread && frame.row.kind == format::kind::RECORD).count()
    }

    /// A thread is refused, or it has all its records but those of a last write that is torn.
    fn check(&self, journal: &Journal, thread: ThreadId, changed: &Range<usize>) -> bool {
        if journal.shared.index.damage(&thread).is_some() {
            return false;
        }
        let read = |entry| chain::read(source(journal), thread, entry, Number::MAX, || false).unwrap();
        let records = journal.shared.index.get(&thread).map(read).unwrap_or_default();
        let least = self.least(thread, changed);
        assert!(records.len() >= least, "{thread} has {} of {least} records after {changed:?}", records.len());
        assert_eq!(records, self.records[&thread][..records.len()]);
        true
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_is_put_down_to_its_thread() {
    let small = small().await;
    let last = small.batches.last().unwrap().0.start;
    for at in 0..small.bytes.len() {
        for change in [1 << (at % 8), 0xff] {
            let disk = small.with(|bytes| bytes[at] ^= change);
            let report = inspect_disk(&disk).unwrap();
            let journal = Journal::open(disk, Options::default()).unwrap_or_else(|error| panic!("byte {at}: {error}"));
            assert!(!journal.damages().is_empty() || at >= last, "byte {at}: seen");
            assert_eq!(report.damages, journal.damages(), "byte {at}");
            for number in 1..=3 {
                let thread = thread(number);
                let served = small.check(&journal, thread, &(at..at + 1));
                assert_eq!(!served, at < last && small.thread_at(at) == Some(thread), "byte {at}, thread {thread}");
                let named = journal.damages().iter().any(|damage| {
                    damage.effect == DamageEffect::ThreadsRefused && damage.threads.contains(&thread.to_string())
                });
                assert_eq!(!served, named, "byte {at}: the refused are named");
            }
        }
    }
}

#[tokio::test]
async fn a_damaged_range_is_never_a_shorter_history() {
    let small = small().await;
    let (mut refused, mut served) = (0, 0);
    for start in (0..small.bytes.len()).step_by(3) {
        for length in [8, 40, 130, 300] {
            let range = start..(start + length).min(small.bytes.len());
            let disk = small.with(|bytes| bytes[range.clone()].fill(0));
            match Journal::open(disk, Options::default()) {
                Ok(journal) => {
                    (1..=3).for_each(|number| {
                        small.check(&journal, thread(number), &range);
                    });
                    served += 1;
                }
                Err(error @ JournalError::Damaged { .. }) => {
                    let words = error.to_string();
                    assert!(
                        words.contains("/the/disk/0000000001.segment") && words.contains("slackwater doctor /the/disk")
                    );
                    refused += 1;
                }
                Err(error) => panic!("{range:?}: {error}"),
            }
        }
    }
    assert!(refused > 10 && served > 10, "{refused} refused, {served} served");
}

#[tokio::test]
async fn a_damaged_thread_is_refused_and_others_are_served() {
    let small = small().await;
    let frame = small.batches[0].1[0];
    let disk = small.with(|bytes| bytes[frame.offset + format::FRAME_HEAD + 3] ^= 1);
    let mut run = start(disk);
    let (wakes, rests) = run.started().await;
    assert_eq!((wakes, rests), (vec![thread(2), thread(3)], Vec::new()), "a damaged thread is neither woken nor timed");
    let words = run.recall(thread(1)).await.unwrap_err();
    assert!(words.contains("0000000001.segment at byte 64") && words.contains("record 1"), "{words}");
    let arrival = message(thread(1), "more");
    run.to.put(ToJournal::Append(vec![arrival.clone()]));
    assert_eq!(run.next().await, Some(FromJournal::Refused(arrival, Refusal::Damaged)));
    let ticket = slackwater_core::id::Ticket { gateway: 0, request: 1 };
    run.to.put(ToJournal::Query(ticket, slackwater_core::port::Query::Thread(thread(1))));
    assert_eq!(run.next().await, Some(FromJournal::Reply(ticket, slackwater_core::port::Reply::Damaged(words))));
    assert_eq!(run.append(vec![message(thread(2), "more")]).await.unwrap()[0].number, 4);
    run.close().await;
}

#[tokio::test]
async fn doctor_says_what_is_damaged_and_what_to_do() {
    let small = small().await;
    let sound = inspect_disk(&small.with(|_| ())).unwrap();
    assert!(sound.is_sound() && sound.to_string().ends_with("sound\n"), "{sound}");
    assert_eq!((sound.segments, sound.bytes), (1, small.bytes.len() as u64));
    assert_eq!((sound.threads, sound.records, sound.records_by_kind["message"]), (3, 6, 6));
    assert_eq!((sound.unsettled, sound.resting_with_timers), (2, 1));

    let frame = small.batches[1].1[0];
    let last = small.batches[3].0.clone();
    let disk = small.with(|bytes| {
        bytes[frame.offset] ^= 1;
        bytes[last.start + 40..last.end].fill(0);
    });
    let before = disk.image();
    let report = inspect_disk(&disk).unwrap();
    assert_eq!(disk.image(), before, "doctor changes nothing");
    assert_eq!(report.torn_tail.as_ref().unwrap().bytes, last.len() as u64);
    let words = report.to_string();
    let named = format!("DAMAGE    /the/disk/0000000001.segment at byte {}: record 2", frame.offset);
    for part in [named.as_str(), &format!("thread {}", thread(1)), "restore the segment", "torn tail", "NOT sound"] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["damages"][0]["effect"], "threads_refused");
    assert_eq!(json["damages"][0]["threads"][0], thread(1).to_string());
    assert_eq!(json["records_by_kind"]["message"], 3, "of the threads that can be read");
}

#[tokio::test]
async fn damage_found_while_running_refuses_the_thread() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append(vec![message(thread(1), "one"), message(thread(2), "two")]).await.unwrap();
    disk.write_at(1, 64 + format::FRAME_HEAD as u64 + 4, b"!").unwrap();
    run.recall(thread(1)).await.unwrap_err();
    let arrival = message(thread(1), "more");
    run.to.put(ToJournal::Append(vec![arrival.clone()]));
    assert_eq!(run.next().await, Some(FromJournal::Refused(arrival, Refusal::Damaged)));
    assert_eq!(run.recall(thread(2)).await.unwrap().len(), 1);
    run.close().await;
}

#[tokio::test]
async fn the_end_of_an_earlier_segment_is_no_torn_tail() {
    let disk = FaultDisk::default();
    let mut run =
        start_with(disk.clone(), Options { segment_max_bytes: 4096, group_max_bytes: 4096, ..Options::default() });
    for number in 0..40 {
        run.append(vec![message(thread(number % 2), &format!("{number} {}", "x".repeat(99)))]).await.unwrap();
    }
    run.close().await;
    let whole = disk.image();
    assert!(whole.len() > 2);
    let length = whole[&1].len();
    for cut in [length - 1, length - 32, length - 33, length - 100, length - 150, length - 1000, 100, 32, 10, 0] {
        let mut image = whole.clone();
        image.get_mut(&1).unwrap().truncate(cut);
        let report = inspect_disk(&FaultDisk::holding(&image)).unwrap();
        assert!(report.torn_tail.is_none() && !report.damages.is_empty(), "cut at {cut}: {report}");
        let opened = Journal::open(FaultDisk::holding(&image), Options::default());
        // The last record's frame is 48 + 128 bytes before the table and the foot of 60.
        assert_eq!(
            opened.is_ok(),
            cut >= length - 60,
            "cut at {cut}: the table names who lost a record, or all are refused"
        );
    }
    let mut image = whole.clone();
    image.remove(&2);
    let words = Journal::open(FaultDisk::holding(&image), Options::default()).err().unwrap().to_string();
    assert!(words.contains("0000000003.segment") && words.contains("is missing"), "{words}");
}

#[tokio::test]
async fn a_place_that_the_disk_has_lost_is_damage_like_any_other() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    let text = "x".repeat(900);
    run.append((0..40).map(|n| message(thread(n), &format!("{n} {text}"))).collect()).await.unwrap();
    run.append(vec![message(thread(50), &"a batch follows".repeat(999))]).await.unwrap();
    // A sector goes bad while the journal runs: who is read there is refused, and nobody else.
    let place = |number| u64::from(run.handle.shared.index.get(&thread(number)).unwrap().location.offset);
    let (at, last) = (place(20), place(50));
    disk.lose(at + 100..at + 200);
    assert!(run.recall(thread(20)).await.unwrap_err().contains("cannot be read"));
    assert_eq!(run.recall(thread(30)).await.unwrap().len(), 1);
    run.close().await;
    let report = inspect_disk(&disk).unwrap();
    assert!(report.to_string().contains("the disk cannot read 4096 bytes"), "{report}");
    let journal = Journal::open(disk.clone(), Options::default()).unwrap();
    let refused: Vec<_> = (0..=50).filter(|&n| journal.shared.index.damage(&thread(n)).is_some()).collect();
    assert!(refused.contains(&20) && refused.len() < 6, "the page is 4 KiB, and so many records: {refused:?}");
    // At the end of the journal it is not taken for a torn write.
    let end = disk.image()[&1].len() as u64;
    disk.lose(last + 10_000..last + 10_001);
    let words = Journal::open(disk.clone(), Options::default()).err().unwrap().to_string();
    assert!(words.contains("the journal's end cannot be read"), "{words}");
    assert_eq!(disk.image()[&1].len() as u64, end, "and nothing is cut");
}

#[tokio::test]
async fn a_missing_segment_or_a_later_version_is_refused() {
    let small = small().await;
    let mut bytes = small.bytes.clone();
    let head = format::SegmentHead { version: 3, segment: 1, first: 1 };
    bytes[..format::SEGMENT_HEAD].copy_from_slice(&head.write());
    let words = Journal::open(FaultDisk::holding(&BTreeMap::from([(1, bytes)])), Options::default()).err().unwrap();
    assert!(matches!(words, JournalError::Version { found: 3, .. }), "{words}");

    let head = format::SegmentHead { version: 1, segment: 2, first: 5 };
    let second = BTreeMap::from([(2, head.write().to_vec())]);
    let words = Journal::open(FaultDisk::holding(&second), Options::default()).err().unwrap().to_string();
    assert!(words.contains("batch 1 should be here and 5 is"), "{words}");
}
