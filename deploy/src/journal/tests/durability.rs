//! Promises 1 and 13: what is acknowledged is durable, and a failure stops everything.

use super::fault_disk::{Cut, FaultDisk};
use super::*;
use std::collections::BTreeMap;

fn small() -> Options {
    Options { segment_max_bytes: 4096, group_max_bytes: 4096, ..Options::default() }
}

type Sent = BTreeMap<ThreadId, Vec<Arrival>>;
type Acknowledged = BTreeMap<ThreadId, Number>;

/// Ticks of one to three records for three threads over several segments, with rests between.
fn workload() -> Vec<(Vec<Arrival>, Option<ThreadId>)> {
    (0..12_u8)
        .map(|tick| {
            let arrivals = (0..=tick % 3).map(|n| {
                message(
                    thread(1 + (tick + n) % 3),
                    &format!("{tick}.{n} {}", "word ".repeat(40 + 30 * usize::from(tick))),
                )
            });
            (arrivals.collect(), (tick % 4 == 3).then(|| thread(1 + tick % 3)))
        })
        .collect()
}

/// Runs the workload as far as the disk lets it. What was sent, and how far it was acknowledged.
async fn work(disk: FaultDisk) -> (Sent, Acknowledged) {
    let (mut sent, mut acknowledged) = (Sent::new(), Acknowledged::new());
    let Ok(journal) = Journal::open(disk, small()) else { return (sent, acknowledged) };
    let (from, to, handle) = journal.start().unwrap();
    let mut run = Run { from, to, handle };
    for (arrivals, rests) in workload() {
        for arrival in &arrivals {
            sent.entry(arrival.thread).or_default().push(arrival.clone());
        }
        let Some(committed) = run.append(arrivals).await else {
            run.handle.close().await.unwrap_err();
            return (sent, acknowledged);
        };
        for Committed { number, arrival } in committed {
            assert_eq!(sent[&arrival.thread][number as usize - 1], arrival, "numbers follow the order of sending");
            acknowledged.insert(arrival.thread, number);
        }
        if let Some(rests) = rests {
            run.to.put(ToJournal::Rest(rest(rests, acknowledged[&rests])));
        }
    }
    let _ = run.handle.close().await;
    (sent, acknowledged)
}

/// Opens what a power cut left, and compares.
async fn check(disk: FaultDisk, sent: &Sent, acknowledged: &Acknowledged, story: &str) {
    let journal = Journal::open(disk, small()).unwrap_or_else(|error| panic!("{story}: {error}"));
    assert_eq!(journal.damages(), [], "{story}: a power cut is no damage");
    let (from, to, handle) = journal.start().unwrap();
    let mut run = Run { from, to, handle };
    run.started().await;
    for (&thread, sent) in sent {
        let records = run.recall(thread).await.unwrap();
        let least = acknowledged.get(&thread).copied().unwrap_or(0);
        assert!(records.len() as u64 >= least, "{story}: {thread} has {} of {least} records", records.len());
        for (position, (record, sent)) in records.iter().zip(sent).enumerate() {
            assert_eq!(record.number, position as u64 + 1, "{story}");
            assert_eq!(&record.arrival, sent, "{story}");
        }
        assert!(records.len() <= sent.len(), "{story}: no record twice");
        let next = run.append(vec![message(thread, "after")]).await.unwrap();
        assert_eq!(next[0].number, records.len() as u64 + 1, "{story}: without a gap");
    }
    run.close().await;
}

#[tokio::test]
async fn acknowledged_is_durable() {
    let whole = FaultDisk::default();
    let (sent, acknowledged) = work(whole.clone()).await;
    assert!(whole.image().len() > 2, "the workload fills more than one segment");
    assert_eq!(sent.iter().map(|(&t, s)| (t, s.len() as u64)).collect::<Acknowledged>(), acknowledged);
    let cuts = [Cut::Lost, Cut::Kept].into_iter().chain((1..=6).map(Cut::Torn));
    let mut runs = 0;
    for point in 0..=whole.points() {
        let disk = FaultDisk::default().off_at(point);
        let (sent, acknowledged) = work(disk.clone()).await;
        for cut in cuts.clone() {
            let story = format!("power off at operation {point}, unsynced bytes {cut:?}");
            check(disk.after(cut), &sent, &acknowledged, &story).await;
            runs += 1;
        }
        // And the power fails a second time, while the journal is being opened.
        for again in 0..6 {
            let disk = disk.after(Cut::Torn(point as u64)).off_at(again);
            let _ = Journal::open(disk.clone(), small());
            let story = format!("power off at operation {point} and again at {again} of the opening");
            check(disk.after(Cut::Torn(again as u64)), &sent, &acknowledged, &story).await;
            runs += 1;
        }
    }
    assert!(runs > 500, "{runs} runs");
}

#[tokio::test]
async fn a_failed_sync_stops_the_shard() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append(vec![message(thread(1), "one")]).await.unwrap();
    let failed = run.handle.failed();
    let syncs = disk.syncs();
    disk.fail_syncs(true);
    run.to.put(ToJournal::Append(vec![message(thread(1), "two")]));
    run.to.put(ToJournal::Append(vec![message(thread(1), "three")]));
    assert_eq!(run.next().await, None, "nothing more is acknowledged, and the stream ends");
    let words = failed.await.to_string();
    assert!(words.contains("/the/disk/0000000001.segment") && words.contains("sync"), "{words}");
    run.to.put(ToJournal::Append(vec![message(thread(1), "four")]));
    run.handle.close().await.unwrap_err();
    assert_eq!(disk.syncs(), syncs + 1, "a failed sync is not tried again");

    // The cache still shows the bytes that the sync did not write. What is opened and shown must be durable all the same.
    disk.fail_syncs(false);
    let mut run = start(disk.clone());
    assert_eq!(run.started().await.0, [thread(1)]);
    let shown = run.recall(thread(1)).await.unwrap();
    run.close().await;
    let mut run = start(disk.after(Cut::Lost));
    run.started().await;
    assert_eq!(run.recall(thread(1)).await.unwrap(), shown);
    run.close().await;
}

#[tokio::test]
async fn a_full_disk_is_named_and_nothing_is_acknowledged() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append(vec![message(thread(1), "one")]).await.unwrap();
    disk.fail_writes();
    assert_eq!(run.append(vec![message(thread(1), "two")]).await, None);
    let words = run.handle.failed().await.to_string();
    assert!(words.contains("cannot write /the/disk/0000000001.segment"), "{words}");
    assert!(words.contains("space"), "{words}");
    run.handle.close().await.unwrap_err();
    let mut run = start(disk.after(Cut::Kept));
    run.started().await;
    assert_eq!(run.recall(thread(1)).await.unwrap().len(), 1);
    run.close().await;
}

#[tokio::test]
async fn a_torn_tail_is_cut_at_every_length() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append(vec![message(thread(1), "one"), message(thread(2), "two")]).await.unwrap();
    let before = disk.image()[&1].len();
    run.append(vec![message(thread(1), "three"), message(thread(3), "four")]).await.unwrap();
    run.close().await;
    let whole = disk.image()[&1].clone();
    let mut kept = 0;
    for length in 0..whole.len() {
        let disk = FaultDisk::holding(&BTreeMap::from([(1, whole[..length].to_vec())]));
        let journal = Journal::open(disk.clone(), Options::default()).unwrap();
        assert_eq!(journal.damages(), [], "cut at {length}");
        let threads = journal.shared.index.len();
        match (length, journal.torn_tail()) {
            (0..=32, None) => assert_eq!(threads, 0),
            (_, Some(torn)) => {
                assert_eq!(torn.offset + torn.bytes, length as u64);
                assert_eq!(threads, if length >= before { 2 } else { 0 }, "cut at {length}");
                assert_eq!(disk.image()[&1].len() as u64, torn.offset);
            }
            // Only the table or the foot is missing: the records are whole, and the batch is made whole again.
            (_, None) if length == before => assert_eq!(threads, 2),
            (_, None) => {
                assert_eq!(threads, if length > before { 3 } else { 2 }, "cut at {length}");
                kept += 1;
            }
        }
        assert!(Journal::open(disk, Options::default()).unwrap().torn_tail().is_none(), "cut at {length}: only once");
    }
    assert!(kept > 0);
}
