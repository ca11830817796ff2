//! Packing: threads lie together, and nobody can tell from what is answered.

use super::fault_disk::FaultDisk;
use super::*;
use disk::Kind;
use slackwater_core::id::{OutputId, Ticket};
use slackwater_core::port::{Query, Reply};

fn options() -> Options {
    Options { segment_max_bytes: 16 << 10, group_max_bytes: 4096, ..Options::default() }
}

/// Words that compress as prose does.
fn prose(seed: u64, words: usize) -> String {
    let mut state = seed;
    let mut next = |end: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % end
    };
    (0..words)
        .map(|_| format!("{}{} ", ["wait", "build", "report", "branch", "review"][next(5) as usize], next(300)))
        .collect()
}

/// Some threads, each with some records, one tick after another.
async fn fill(run: &mut Run, threads: std::ops::Range<u8>, ticks: std::ops::Range<u64>) {
    for tick in ticks {
        let arrivals =
            threads.clone().map(|n| message(thread(n), &format!("{tick} {}", prose(tick << 8 | u64::from(n), 40))));
        run.append(arrivals.collect()).await.unwrap();
    }
}

async fn all(run: &mut Run, threads: std::ops::Range<u8>) -> Vec<Vec<Committed>> {
    let mut all = Vec::new();
    for n in threads {
        all.push(run.recall(thread(n)).await.unwrap());
    }
    all
}

fn count(disk: &FaultDisk, kind: Kind) -> usize {
    disk.image().keys().filter(|segment| Kind::of(**segment) == kind).count()
}

#[tokio::test]
async fn what_is_packed_is_answered_as_before() {
    let disk = FaultDisk::default();
    let mut run = start_with(disk.clone(), options());
    fill(&mut run, 0..20, 0..10).await;
    (0..15).for_each(|n| run.to.put(ToJournal::Rest(rest(thread(n), 10))));
    fill(&mut run, 90..91, 0..1).await;
    let before = all(&mut run, 0..20).await;
    let ticket = Ticket { gateway: 0, request: 7 };
    let outputs = async |run: &mut Run| {
        let query = Query::Outputs { thread: thread(3), after: OutputId::default(), limit: 4 };
        run.to.put(ToJournal::Query(ticket, query));
        let Some(FromJournal::Reply(_, Reply::Outputs(outputs, false))) = run.next().await else { panic!("outputs") };
        outputs
    };
    let told = outputs(&mut run).await;
    let logs = count(&disk, Kind::Log);
    assert!(logs > 5, "{logs} segments");
    assert!(run.handle.pack().await);
    assert_eq!((count(&disk, Kind::Log), count(&disk, Kind::Pack)), (1, 1), "the log is packed and removed");
    assert_eq!(all(&mut run, 0..20).await, before);
    assert_eq!(outputs(&mut run).await, told);
    let reads = disk.reads();
    assert_eq!(run.recall(thread(3)).await.unwrap(), before[3]);
    assert_eq!(disk.reads() - reads, 1, "a cold wake is one read");
    assert_eq!(run.recall_before(thread(3), 5).await.unwrap(), before[3][..4]);
    let counters = run.handle.counters();
    let bytes: usize = disk.image().values().map(Vec::len).sum();
    let hints: usize = disk
        .image()
        .iter()
        .filter(|(s, _)| matches!(Kind::of(**s), Kind::Checkpoint | Kind::Manifest))
        .map(|(_, b)| b.len())
        .sum();
    assert_eq!((counters.segments, counters.bytes as usize), (2, bytes - hints), "{counters:?}");
    run.close().await;

    // Opened again, they are as they were: who rested rests, with its timers, and the others are woken.
    let mut run = start_with(disk.clone(), options());
    let (wakes, rests) = run.started().await;
    assert_eq!(wakes, (15..20).chain([90]).map(thread).collect::<Vec<_>>());
    assert_eq!(rests, (0..15).map(|n| rest(thread(n), 10)).collect::<Vec<_>>());
    assert_eq!(all(&mut run, 0..20).await, before);

    // They go on, and are packed again: some with all they have, and nothing that is needed is removed.
    fill(&mut run, 0..10, 10..12).await;
    assert!(run.handle.pack().await);
    fill(&mut run, 0..20, 12..40).await;
    let before = all(&mut run, 0..20).await;
    assert!(run.handle.pack().await);
    assert_eq!(all(&mut run, 0..20).await, before);
    assert_eq!(before[0].len(), 40);
    run.close().await;
    let report = inspect::inspect_disk(&disk).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.threads, report.records), (21, 10 * 40 + 10 * 38 + 1));
}

/// Records that lie near each other are read together, and those of others between them cost nothing but their length.
#[tokio::test]
async fn a_recall_reads_seldom_and_much() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    fill(&mut run, 0..4, 0..200).await;
    let reads = disk.reads();
    assert_eq!(run.recall(thread(2)).await.unwrap().len(), 200);
    let (reads, bytes) = (disk.reads() - reads, disk.image()[&1].len());
    eprintln!("200 records among {bytes} bytes of four threads: {reads} reads");
    assert!(reads <= 3 + bytes / (48 << 10), "{reads} reads");
    run.close().await;
}

#[tokio::test]
async fn threads_that_go_on_while_they_are_packed_keep_all_they_have() {
    let disk = MemoryDisk::default();
    let mut run = start_with(disk, Options { pack_after_ms: 1, ..options() });
    for round in 0..30 {
        fill(&mut run, 0..12, round * 10..round * 10 + 10).await;
        // Now and then it is asked for while others are appended.
        let packing = run.handle.pack();
        let (to, from) = (run.to.clone(), &mut run.from);
        let appending = async {
            to.put(ToJournal::Append((0..12).map(|n| message(thread(n), &format!("{round} meanwhile"))).collect()));
            let mut left = 12;
            while left > 0 {
                let Some(FromJournal::Committed(committed)) = from.next().await else { panic!("a commit") };
                left -= committed.len();
            }
        };
        futures::join!(packing, appending);
    }
    for n in 0..12 {
        let records = run.recall(thread(n)).await.unwrap();
        assert_eq!(records.len(), 330);
        assert!(records.iter().enumerate().all(|(place, record)| record.number == place as u64 + 1));
    }
    run.close().await;
}

#[tokio::test]
async fn what_the_disk_holds_is_bounded_by_what_lives() {
    let disk = FaultDisk::default();
    let mut run = start_with(disk.clone(), options());
    let mut raw = 0;
    let mut most: f64 = 0.0;
    for round in 0..40_u64 {
        fill(&mut run, 0..10, round * 4..round * 4 + 4).await;
        raw += 40 * 500;
        assert!(run.handle.pack().await);
        let bytes: usize = disk.image().values().map(Vec::len).sum();
        if round >= 10 {
            most = most.max(bytes as f64 / f64::from(raw));
        }
    }
    eprintln!(
        "at most {most:.3} bytes on the disk a byte of text, with what is superseded; {} packs",
        count(&disk, Kind::Pack)
    );
    assert!(most < 1.0, "{most}");
    assert_eq!(run.recall(thread(4)).await.unwrap().len(), 160);
    let reads = disk.reads();
    run.recall(thread(4)).await.unwrap();
    assert!(disk.reads() - reads <= 8, "{} blocks at the most", disk.reads() - reads);
    run.close().await;
}

#[tokio::test]
async fn a_dictionary_is_learnt_and_kept_in_each_pack() {
    let disk = FaultDisk::default();
    let big = Options { segment_max_bytes: 4 << 20, group_max_bytes: 1 << 20, ..Options::default() };
    let mut run = start_with(disk.clone(), big.clone());
    for tick in 0..40 {
        let text = |n: u8| prose(tick * 256 + u64::from(n), 20);
        run.append((0..230).map(|n| message(thread(n), &format!("{tick} {}", text(n)))).collect()).await.unwrap();
    }
    let before = all(&mut run, 0..230).await;
    let log: usize = disk.image().values().map(Vec::len).sum();
    assert!(run.handle.pack().await);
    let pack = Kind::Pack.segment(1);
    let packed = disk.image()[&pack].len();
    eprintln!("{log} bytes in the log, {packed} in the pack with two copies of its dictionary");
    assert!(packed * 2 < log);
    assert_eq!(all(&mut run, 0..230).await, before);
    run.close().await;
    // Each of its copies is enough.
    let image = disk.image();
    let dictionaries: Vec<usize> = {
        let bytes = &image[&pack];
        let mut at = format::SEGMENT_HEAD;
        let mut places = Vec::new();
        while let Some(found) = batch::find(bytes, at, 0) {
            places.extend(found.frames.iter().filter(|f| f.row.kind == format::kind::DICTIONARY).map(|f| f.offset));
            at += found.end.length as usize;
        }
        places
    };
    assert_eq!(dictionaries.len(), 2);
    for damaged in dictionaries {
        let mut image = image.clone();
        image.get_mut(&pack).unwrap()[damaged + 100] ^= 4;
        image.retain(|segment, _| Kind::of(*segment) != Kind::Checkpoint);
        let journal = Journal::open(FaultDisk::holding(&image), big.clone()).unwrap();
        assert!(journal.damages().iter().all(|damage| damage.effect == DamageEffect::NothingLost));
        let (from, to, handle) = journal.start().unwrap();
        let mut run = Run { from, to, handle };
        run.started().await;
        assert_eq!(all(&mut run, 0..230).await, before);
        run.close().await;
    }
}

#[tokio::test]
async fn a_damaged_block_is_put_down_to_its_thread() {
    let disk = FaultDisk::default();
    let mut run = start_with(disk.clone(), options());
    fill(&mut run, 1..4, 0..3).await;
    assert!(run.handle.pack().await);
    fill(&mut run, 3..4, 3..4).await;
    let before = all(&mut run, 1..4).await;
    run.close().await;
    let whole = disk.image();
    let pack = Kind::Pack.segment(1);
    let (mut refused, mut served) = (0, 0);
    for at in 0..whole[&pack].len() {
        let mut image = whole.clone();
        image.get_mut(&pack).unwrap()[at] ^= 1 << (at % 8);
        // What is opened from a checkpoint reads no packs, so the damage is found when it is met.
        for with_checkpoint in [true, false] {
            let mut image = image.clone();
            image.retain(|segment, _| with_checkpoint || Kind::of(*segment) != Kind::Checkpoint);
            let journal = Journal::open(FaultDisk::holding(&image), options())
                .unwrap_or_else(|error| panic!("byte {at}: {error}"));
            assert!(with_checkpoint || !journal.damages().is_empty(), "byte {at}: seen");
            let mut damaged = Vec::new();
            for n in 1..4 {
                let entry = journal.shared.index.get(&thread(n)).unwrap();
                let known = journal.shared.index.damage(&thread(n));
                match chain::read(source(&journal), thread(n), entry, Number::MAX, || false) {
                    Ok(records) if known.is_none() => assert_eq!(records, before[usize::from(n) - 1], "byte {at}"),
                    Ok(_) => panic!("byte {at}: refused, and whole: {known:?}"),
                    Err(_) => {
                        assert!(with_checkpoint || known.unwrap().contains("0000000001.pack at byte"), "byte {at}");
                        damaged.push(n);
                    }
                }
            }
            assert!(damaged.len() <= 1, "byte {at}: {damaged:?}");
            refused += damaged.len();
            served += 3 - damaged.len();
        }
    }
    assert!(refused > 300 && served > refused, "{refused} refused, {served} served");
}

#[tokio::test]
async fn records_in_memory_cost_little_more_than_their_text() {
    let mut run = start(MemoryDisk::default());
    let mut raw = 0;
    for tick in 0..40_u64 {
        let arrivals: Vec<_> = (0..200).map(|n| message(thread(n), &prose(tick << 8 | u64::from(n), 120))).collect();
        raw += arrivals.iter().map(|arrival| text_of(&arrival.record)).sum::<usize>();
        run.append(arrivals).await.unwrap();
    }
    let unpacked = run.handle.counters().bytes as f64 / raw as f64;
    assert!(run.handle.pack().await);
    let packed = run.handle.counters().bytes as f64 / raw as f64;
    eprintln!("in memory: {unpacked:.3} bytes a byte of text, packed {packed:.3}");
    assert!(unpacked <= 1.15 && packed < 0.6, "{unpacked} and {packed}");
    run.close().await;
}

fn text_of(record: &Record) -> usize {
    match record {
        Record::Message(Message { id, content, .. }) => {
            id.0.len()
                + content
                    .iter()
                    .map(|content| matches!(content, Content::Text(_)).then(|| id.0.len()).unwrap_or(0))
                    .sum::<usize>()
        }
        _ => 0,
    }
}
