//! The crash layer: whatever the disk does at whatever moment, what was acknowledged is there.
//!
//! In: workloads of a seed (`SLACKWATER_CRASH_SEED`, from 1 on if it does not say), and a budget in images
//! (`SLACKWATER_CRASH_BUDGET`; without it a short run, as in CI). Out: for
//! each moment at which the journal touches the disk, and each way in which that can go wrong, the disk as it is then left.
//! Always: it opens, or says why it does not where acknowledged bytes were really changed; it holds the acknowledged prefix
//! and nothing that was never sent; it takes more records, and holds those too.

use super::fault_disk::{Cut, Fault, FaultDisk};
use super::*;
use std::collections::BTreeMap;

/// How many images are looked at when the environment does not say.
const BUDGET: usize = 2_500;
/// One of so many moments is looked at then.
const STRIDE: usize = 7;

fn small() -> Options {
    Options { segment_max_bytes: 4096, group_max_bytes: 4096, ..Options::default() }
}

/// What a workload does, one step after another.
#[derive(Clone, Debug)]
enum Step {
    /// Records of these threads, in one tick, of this length.
    Append(Vec<u8>, usize),
    /// A thread comes to rest.
    Rest(u8),
    /// The index is written down.
    Checkpoint,
    /// All threads are packed, and what that leaves behind is removed.
    Pack,
    /// A clean end, and a new start.
    Reopen,
}

/// Choices that follow from a seed (SplitMix64).
struct Choices(u64);

impl Choices {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

fn workload(seed: u64) -> Vec<Step> {
    let mut choices = Choices(seed);
    let mut steps = vec![Step::Append(vec![1, 2, 3], 200)];
    for _ in 0..14 {
        steps.push(match choices.below(12) {
            0..=5 => {
                let threads = (0..=choices.below(3)).map(|_| 1 + choices.below(5) as u8).collect();
                Step::Append(threads, choices.below(1_500))
            }
            6..=7 => Step::Rest(1 + choices.below(5) as u8),
            8 => Step::Checkpoint,
            9..=10 => Step::Pack,
            _ => Step::Reopen,
        });
    }
    steps
}

/// What was sent to each thread, and how much of it was acknowledged.
#[derive(Debug, Default)]
struct Story {
    sent: BTreeMap<ThreadId, Vec<Arrival>>,
    acknowledged: BTreeMap<ThreadId, Number>,
}

impl Story {
    fn last(&self, thread: ThreadId) -> Number {
        self.acknowledged.get(&thread).copied().unwrap_or(0)
    }
}

fn try_start(disk: &FaultDisk) -> Option<Run> {
    let (from, to, handle) = Journal::open(disk.clone(), small()).ok()?.start().unwrap();
    Some(Run { from, to, handle })
}

/// Does the steps as far as the disk lets it.
async fn work(disk: &FaultDisk, steps: &[Step]) -> Story {
    let mut story = Story::default();
    let Some(mut run) = try_start(disk) else { return story };
    for (number, step) in steps.iter().enumerate() {
        match step {
            Step::Append(threads, length) => {
                let text = |place: usize| format!("{number}.{place} {}", "word ".repeat(length / 5));
                let arrivals: Vec<_> =
                    threads.iter().enumerate().map(|(place, &n)| message(thread(n), &text(place))).collect();
                for arrival in &arrivals {
                    story.sent.entry(arrival.thread).or_default().push(arrival.clone());
                }
                let Some(committed) = append(&mut run, arrivals).await else { break };
                for Committed { number, arrival } in committed {
                    assert_eq!(story.sent[&arrival.thread][number as usize - 1], arrival, "in the order of sending");
                    story.acknowledged.insert(arrival.thread, number);
                }
            }
            Step::Rest(n) if story.last(thread(*n)) > 0 => {
                run.to.put(ToJournal::Rest(rest(thread(*n), story.last(thread(*n)))));
            }
            Step::Rest(_) => {}
            // Whether they succeed is the disk's affair; nothing depends on it.
            Step::Checkpoint => drop(run.handle.checkpoint().await),
            Step::Pack => drop(run.handle.pack().await),
            Step::Reopen => {
                if run.handle.close().await.is_err() {
                    return story;
                }
                let Some(next) = try_start(disk) else { return story };
                run = next;
            }
        }
    }
    // When the disk has failed, so does this.
    let _ = run.handle.close().await;
    story
}

/// Appends in one tick and waits, whatever the start has to say first; nothing when the journal has closed.
async fn append(run: &mut Run, arrivals: Vec<Arrival>) -> Option<Vec<Committed>> {
    let count = arrivals.len();
    run.to.put(ToJournal::Append(arrivals));
    let mut all = Vec::new();
    while all.len() < count {
        match run.next().await? {
            FromJournal::Committed(committed) => all.extend(committed),
            FromJournal::Wake { .. } | FromJournal::Resting(_) => {}
            other => panic!("expected a commit, got {other:?}"),
        }
    }
    Some(all)
}

/// Opens what is left, compares, goes on, and opens it once more.
async fn check(disk: &FaultDisk, story: &Story, what: &str) {
    same_without_checkpoint(&disk.image(), what);
    let journal = Journal::open(disk.clone(), small()).unwrap_or_else(|error| panic!("{what}: {error}"));
    assert_eq!(journal.damages(), [], "{what}: a failing disk is no damage");
    let mut expected = BTreeMap::new();
    let (from, to, handle) = journal.start().unwrap();
    let mut run = Run { from, to, handle };
    run.started().await;
    for (&thread, sent) in &story.sent {
        let records = run.recall(thread).await.unwrap_or_else(|damage| panic!("{what}: {damage}"));
        let least = story.last(thread);
        assert!(records.len() as u64 >= least, "{what}: {thread} has {} of {least} records", records.len());
        let mut found = compare(&records, sent, what);
        let next = run.append(vec![message(thread, "after")]).await.unwrap();
        assert_eq!(next[0].number, records.len() as u64 + 1, "{what}: without a gap");
        found.push(next[0].arrival.clone());
        expected.insert(thread, found);
    }
    run.close().await;
    let mut run = try_start(disk).unwrap_or_else(|| panic!("{what}: opens again"));
    run.started().await;
    assert!(run.handle.pack().await, "{what}: all can be packed");
    let report = inspect::inspect_disk(disk).unwrap();
    assert!(report.is_sound(), "{what}: {report}");
    same_without_checkpoint(&disk.image(), what);
    for (thread, expected) in &expected {
        let records = run.recall(*thread).await.unwrap_or_else(|damage| panic!("{what}, again: {damage}"));
        assert_eq!(compare(&records, expected, what).len(), expected.len(), "{what}: {thread}, opened again");
    }
    run.close().await;
}

/// The story as it is told by a disk that is opened once more.
async fn shown(disk: &FaultDisk, story: &Story) -> Story {
    let mut run = try_start(disk).expect("a disk that is well again is opened");
    run.started().await;
    let mut shown = Story { sent: story.sent.clone(), ..Story::default() };
    for &thread in story.sent.keys() {
        let records = run.recall(thread).await.unwrap();
        assert!(records.len() as u64 >= story.last(thread), "{thread}");
        shown.acknowledged.insert(thread, records.len() as u64);
    }
    run.close().await;
    shown
}

/// The records are the first of those that were sent.
fn compare(records: &[Committed], sent: &[Arrival], what: &str) -> Vec<Arrival> {
    assert!(records.len() <= sent.len(), "{what}: no record twice");
    for (position, (record, sent)) in records.iter().zip(sent).enumerate() {
        assert_eq!(record.number, position as u64 + 1, "{what}");
        assert_eq!(&record.arrival, sent, "{what}");
    }
    records.iter().map(|record| record.arrival.clone()).collect()
}

/// A checkpoint changes nothing but the time that it takes to open.
fn same_without_checkpoint(image: &BTreeMap<u32, Vec<u8>>, what: &str) {
    let mut without = image.clone();
    without.retain(|segment, _| disk::Kind::of(*segment) != disk::Kind::Checkpoint);
    let [with, without] = [image, &without].map(|image| {
        let journal = Journal::open(FaultDisk::holding(image), small());
        state(&journal.unwrap_or_else(|error| panic!("{what}: {error}")))
    });
    assert_eq!(with, without, "{what}: with the checkpoint and without");
}

fn setting(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |number| number.parse().expect("a number"))
}

#[tokio::test]
async fn whatever_the_disk_does_what_was_acknowledged_is_there() {
    let (budget, first) = (setting("SLACKWATER_CRASH_BUDGET", BUDGET), setting("SLACKWATER_CRASH_SEED", 1) as u64);
    // A short run looks at some moments of many workloads, a long one at all of each.
    let stride = if budget > BUDGET { 1 } else { STRIDE };
    let (mut images, mut points) = (0, 0);
    for seed in first.. {
        let steps = workload(seed);
        let whole = FaultDisk::default();
        let story = work(&whole, &steps).await;
        assert!(story.sent.iter().all(|(&thread, sent)| story.last(thread) == sent.len() as u64), "seed {seed}");
        let mut kinds = [0; 3];
        for point in (seed as usize % stride..whole.points()).step_by(stride) {
            points += 1;
            for fault in [Fault::Power(point), Fault::Once(point), Fault::Full(point)] {
                let disk = FaultDisk::default().with(fault);
                let story = work(&disk, &steps).await;
                let seed_of_cut = seed << 32 | point as u64;
                let cuts = match fault {
                    Fault::Power(_) => vec![
                        Cut::Lost,
                        Cut::Kept,
                        Cut::Torn(seed_of_cut),
                        Cut::Torn(!seed_of_cut),
                        Cut::Reordered(seed_of_cut),
                        Cut::Reordered(!seed_of_cut),
                    ],
                    _ => vec![Cut::Kept, Cut::Lost, Cut::Reordered(seed_of_cut)],
                };
                for cut in cuts {
                    let what = format!("seed {seed}, {fault:?}, unsynced {cut:?}, steps {steps:?}");
                    check(&disk.after(cut), &story, &what).await;
                    images += 1;
                }
                if !matches!(fault, Fault::Power(_)) {
                    // The same disk, whose cache shows what it has lost, is opened when the fault is over. What it shows then
                    // is as good as acknowledged: it must be there when the power fails afterwards.
                    let what = format!("seed {seed}, {fault:?}, opened as it is, steps {steps:?}");
                    let shown = shown(&disk.clone().well(), &story).await;
                    check(&disk.after(Cut::Lost), &shown, &what).await;
                    images += 1;
                }
                kinds[match fault {
                    Fault::Power(_) => 0,
                    Fault::Once(_) => 1,
                    Fault::Full(_) => 2,
                }] += 1;
                // And the power fails a second time, while the journal is being opened.
                let again = FaultDisk::after(&disk, Cut::Torn(seed_of_cut)).off_at(point % 7);
                let _ = Journal::open(again.clone(), small());
                let what = format!("seed {seed}, {fault:?}, and again at {} of the opening", point % 7);
                check(&again.after(Cut::Torn(seed_of_cut)), &story, &what).await;
                images += 1;
            }
            if images >= budget {
                eprintln!(
                    "{images} images of {points} moments in the workloads {first} to {seed}; the last one by fault: {kinds:?}"
                );
                assert!(points >= budget / 40, "{points} moments");
                return;
            }
        }
    }
}

/// A bit that flips is named, or nothing is lost by it; and what cannot be read to its length is not taken for an end.
#[tokio::test]
async fn flipped_bits_and_short_reads_are_never_a_shorter_history() {
    let (mut refused, mut whole, mut failed) = (0, 0, 0);
    for seed in 1..=4 {
        let disk = FaultDisk::default();
        let story = work(&disk, &workload(seed)).await;
        let mut choices = Choices(seed);
        let image = disk.image();
        for _ in 0..100 {
            let mut image = image.clone();
            let segment = *image.keys().nth(choices.below(image.len())).unwrap();
            let kind = disk::Kind::of;
            let is_last = image.keys().all(|&other| other <= segment || kind(other) != kind(segment));
            let bytes = image.get_mut(&segment).unwrap();
            let at = choices.below(bytes.len());
            bytes[at] ^= 1 << choices.below(8);
            let Ok(journal) = Journal::open(FaultDisk::holding(&image), small()) else {
                failed += 1;
                continue;
            };
            let (from, to, handle) = journal.start().unwrap();
            let mut run = Run { from, to, handle };
            run.started().await;
            for (&thread, sent) in &story.sent {
                match run.recall(thread).await {
                    Ok(records) => {
                        compare(&records, sent, "a flipped bit");
                        // The last batch, torn, is not told from one that was never whole.
                        assert!(is_last || records.len() == sent.len(), "segment {segment}, byte {at}: {thread}");
                        whole += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
            run.close().await;
        }
        for one_of in 1..20 {
            let disk = FaultDisk::holding(&image);
            disk.read_short(one_of);
            if let Ok(journal) = Journal::open(disk.clone(), small()) {
                let (from, to, handle) = journal.start().unwrap();
                let mut run = Run { from, to, handle };
                for &thread in story.sent.keys() {
                    run.to.put(ToJournal::Recall { thread, before: Number::MAX });
                }
                while let Ok(Some(_)) = tokio::time::timeout(std::time::Duration::from_millis(2), run.from.next()).await
                {
                }
                let _ = run.handle.close().await;
            }
            // The same disk, when it reads again.
            check(&disk.after(Cut::Lost), &story, &format!("one of {one_of} reads was short")).await;
        }
    }
    eprintln!("flipped bits: {whole} threads whole, {refused} refused, {failed} journals not opened");
    assert!(whole > 100 && refused > 20, "{whole} whole, {refused} refused, {failed} not opened");
}
