//! What the flow sees: groups, order, refusals, wakes, answers, and the ends of a run.

use super::fault_disk::FaultDisk;
use super::*;
use slackwater_core::effect::{Refusal, Shown};
use slackwater_core::id::{OutputId, Ticket};
use slackwater_core::port::{Query, Reply};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Runs a journal to its end on what was sent before it began, so that all of it waits together. What it answered.
async fn run_on(disk: FaultDisk, items: Vec<ToJournal>) -> Vec<FromJournal> {
    let Journal { disk, options, shared, position, .. } = Journal::open(disk, Options::default()).unwrap();
    let (from, to, Inside { send, receive }) = ends::<FromJournal, ToJournal>();
    items.into_iter().for_each(|item| to.put(item));
    drop(to);
    let (to_reader, reads) = mpsc::channel();
    let reader = Reader { disk: disk.clone(), shared: shared.clone(), send: send.clone() };
    let writer = Writer::new(disk, options, shared, send, to_reader, position);
    let reader = std::thread::spawn(move || reader.run(&reads));
    std::thread::spawn(move || writer.run(receive, tokio::sync::mpsc::unbounded_channel().1, &Notify::new()))
        .join()
        .unwrap()
        .unwrap();
    reader.join().unwrap().unwrap();
    from.collect().await
}

#[tokio::test]
async fn what_waits_together_is_one_sync() {
    let disk = FaultDisk::default();
    drop(Journal::open(disk.clone(), Options::default()).unwrap());
    let appends = |numbers: std::ops::Range<u16>| {
        numbers
            .map(|number| ToJournal::Append(vec![message(thread((number % 100) as u8), &number.to_string())]))
            .collect()
    };
    let before = disk.syncs();
    let answers = run_on(disk.clone(), appends(0..500)).await;
    let [FromJournal::Committed(committed)] = &answers[..] else { panic!("expected one commit, got {answers:?}") };
    assert_eq!(committed.len(), 500);
    for (position, Committed { number, arrival }) in committed.iter().enumerate() {
        assert_eq!(*number, position as u64 / 100 + 1);
        assert_eq!(arrival, &message(thread((position % 100) as u8), &position.to_string()), "journal order");
    }
    assert_eq!(disk.syncs() - before, 2, "one to open it, one for the group");
}

#[tokio::test]
async fn a_read_that_waits_behind_an_append_sees_it() {
    let recall = |number| ToJournal::Recall { thread: thread(number), before: Number::MAX };
    let append = |number| ToJournal::Append(vec![message(thread(number), "one")]);
    let items = vec![append(1), recall(1), append(2), recall(2), recall(1), recall(3)];
    let answers = run_on(FaultDisk::default(), items).await;
    let commit = answers.iter().position(|answer| matches!(answer, FromJournal::Committed(_))).unwrap();
    let mut recalled = 0;
    for (position, answer) in answers.iter().enumerate() {
        let FromJournal::Recalled { thread: of, records: Ok(records), .. } = answer else { continue };
        recalled += 1;
        if *of == thread(3) {
            assert_eq!(records, &[], "there is no such thread, and it waits for nobody");
        } else {
            assert_eq!(records.len(), 1);
            assert!(position > commit, "{answers:?}");
        }
    }
    assert_eq!(recalled, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn groups_and_segments_are_bounded_and_order_is_kept() {
    let disk = FaultDisk::default();
    let options = Options { segment_max_bytes: 8192, group_max_bytes: 4096, ..Options::default() };
    let mut run = start_with(disk.clone(), options.clone());
    let long = "long ".repeat(4000);
    let mut arrivals: Vec<_> = (0..100).map(|n| message(thread(n % 7), &format!("{n} {}", "x".repeat(200)))).collect();
    arrivals.insert(50, message(thread(1), &long));
    let committed = run.append(arrivals.clone()).await.unwrap();
    assert!(committed.iter().map(|committed| &committed.arrival).eq(&arrivals));
    run.close().await;
    let image = disk.image();
    assert!(image.len() > 4);
    assert!(image.values().filter(|bytes| bytes.len() > 8192).count() == 1, "only the long record's is longer");
    let mut run = start_with(disk, options);
    assert_eq!(run.started().await.0.len(), 7);
    let records = run.recall(thread(1)).await.unwrap();
    assert!(records.iter().map(|r| &r.arrival).eq(arrivals.iter().filter(|a| a.thread == thread(1))));
    run.close().await;
}

#[tokio::test]
async fn what_is_longer_than_a_segment_has_one_for_itself() {
    let disk = FaultDisk::default();
    let options = Options { segment_max_bytes: 4096, group_max_bytes: 4096, ..Options::default() };
    let mut run = start_with(disk.clone(), options);
    run.append(vec![message(thread(1), &"long ".repeat(4000))]).await.unwrap();
    assert_eq!(disk.image().len(), 1, "the first one is empty and takes it");
    // So many timers do not happen; if they did, they would not hold the end up.
    let timers = (0..5000).map(|index| (CallId { number: 1, index }, 1 << 40)).collect();
    let long = Rest { thread: thread(1), through: 1, timers };
    run.to.put(ToJournal::Rest(long.clone()));
    run.close().await;
    assert_eq!(disk.image().len(), 2);
    let mut run = start(disk);
    assert_eq!(run.started().await, (vec![], vec![long]));
    run.close().await;
}

#[tokio::test]
async fn a_recall_sees_what_was_appended_before_it() {
    let mut run = start(MemoryDisk::default());
    run.to.put(ToJournal::Append(vec![message(thread(1), "one"), message(thread(1), "two")]));
    run.to.put(ToJournal::Recall { thread: thread(1), before: Number::MAX });
    assert_eq!(run.committed().await.unwrap().len(), 2);
    let Some(FromJournal::Recalled { records: Ok(records), .. }) = run.next().await else { panic!("expected records") };
    assert_eq!(records.len(), 2);
    assert_eq!(run.recall_before(thread(1), 2).await.unwrap(), records[..1]);
    assert_eq!(run.recall(thread(9)).await.unwrap(), []);
    run.close().await;
}

#[tokio::test]
async fn a_first_record_that_creates_no_thread_is_refused() {
    let mut run = start(MemoryDisk::default());
    run.to.put(ToJournal::Append(vec![fired(thread(1)), message(thread(2), "one"), fired(thread(2))]));
    assert_eq!(run.next().await, Some(FromJournal::Refused(fired(thread(1)), Refusal::UnknownThread)));
    let committed = run.committed().await.unwrap();
    assert_eq!(
        committed.iter().map(|c| (c.number, c.arrival.thread)).collect::<Vec<_>>(),
        [(1, thread(2)), (2, thread(2))]
    );
    assert_eq!(run.handle.counters().threads, 1);
    run.close().await;
}

#[tokio::test]
async fn only_unsettled_threads_wake_and_timers_come_back() {
    let disk = FaultDisk::default();
    let mut run = start(disk.clone());
    run.append((1..=5).map(|n| message(thread(n), "one")).collect()).await.unwrap();
    run.to.put(ToJournal::Rest(rest(thread(1), 1)));
    run.to.put(ToJournal::Rest(Rest { thread: thread(2), through: 1, timers: Vec::new() }));
    run.to.put(ToJournal::Rest(rest(thread(3), 1)));
    run.to.put(ToJournal::Rest(rest(thread(9), 1)));
    let syncs = disk.syncs();
    run.recall(thread(1)).await.unwrap();
    assert_eq!(disk.syncs(), syncs, "a rest causes no sync of its own");
    run.append(vec![message(thread(3), "two"), message(thread(4), "two")]).await.unwrap();
    // As a kill leaves it: the hints rode along with the last commit.
    let killed = FaultDisk::holding(&disk.image());
    run.to.put(ToJournal::Rest(rest(thread(5), 1)));
    run.close().await;
    for (disk, awake) in [(killed, vec![3, 4, 5]), (disk, vec![3, 4])] {
        let mut run = start(disk);
        let (wakes, rests) = run.started().await;
        assert_eq!(wakes, awake.iter().copied().map(thread).collect::<Vec<_>>());
        let resting = [1, 5].into_iter().filter(|n| !awake.contains(n)).map(|n| rest(thread(n), 1));
        assert_eq!(rests, resting.collect::<Vec<_>>());
        run.close().await;
    }
}

#[tokio::test]
async fn questions_are_answered_from_what_is_durable() {
    let mut run = start(MemoryDisk::default());
    let ticket = Ticket { gateway: 0, request: 7 };
    run.append((0..20).map(|n| message(thread(n / 2), &n.to_string())).collect()).await.unwrap();
    let mut ask = async |query| {
        run.to.put(ToJournal::Query(ticket, query));
        match run.next().await {
            Some(FromJournal::Reply(of, reply)) if of == ticket => reply,
            other => panic!("expected a reply, got {other:?}"),
        }
    };
    let Reply::Thread(standing) = ask(Query::Thread(thread(3))).await else { panic!("expected a standing") };
    assert_eq!((standing.thread, standing.last), (thread(3), 2));
    assert_eq!(ask(Query::Thread(thread(99))).await, Reply::UnknownThread);
    let all = Query::Outputs { thread: thread(3), after: OutputId::default(), limit: 10 };
    let Reply::Outputs(all, true) = ask(all).await else { panic!("expected all outputs") };
    assert!(all.iter().all(|output| matches!(output.shown, Shown::Message(_))) && all.len() == 2, "{all:?}");
    let first = Query::Outputs { thread: thread(3), after: OutputId::default(), limit: 1 };
    assert_eq!(ask(first).await, Reply::Outputs(all[..1].to_vec(), false));
    let rest = Query::Outputs { thread: thread(3), after: all[0].id, limit: 1 };
    assert_eq!(ask(rest).await, Reply::Outputs(all[1..].to_vec(), true));
    let mut seen = Vec::new();
    loop {
        let Reply::Threads(page) = ask(Query::Threads { shard: 0, after: seen.last().copied(), limit: 3 }).await else {
            panic!("expected threads")
        };
        assert!(page.len() <= 3);
        if page.is_empty() {
            break;
        }
        seen.extend(page.iter().map(|standing| standing.thread));
    }
    assert_eq!(seen, (0..10).map(thread).collect::<Vec<_>>());
    run.close().await;
}

#[tokio::test]
async fn one_process_owns_a_directory() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new").join("journal");
    let mut run = start(FileDisk::open(&path).unwrap());
    run.append(vec![message(thread(1), "one")]).await.unwrap();
    let own = format!("process {}", std::process::id());
    for error in [FileDisk::open(&path).err().unwrap(), inspect(&path).err().unwrap()] {
        let words = error.to_string();
        assert!(words.contains(&path.display().to_string()) && words.contains(&own), "{words}");
    }
    let begun = Instant::now();
    run.close().await;
    assert!(begun.elapsed() < Duration::from_secs(30));
    let names = || std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name()).collect::<BTreeSet<_>>();
    let before = names();
    let report = inspect(&path).unwrap();
    assert_eq!((report.threads, report.records, report.records_by_kind["message"]), (1, 1, 1));
    assert!(report.is_sound(), "{report}");
    assert!(report.to_string().contains("records   1, message 1"), "{report}");
    assert_eq!(names(), before, "doctor makes nothing");
    let mut run = start(FileDisk::open(&path).unwrap());
    assert_eq!(run.started().await.0, [thread(1)]);
    assert_eq!(run.append(vec![message(thread(1), "two")]).await.unwrap()[0].number, 2);
    run.close().await;
}

#[tokio::test]
async fn a_path_that_is_no_directory_is_named() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let words = FileDisk::open(file.path().join("journal")).err().unwrap().to_string();
    assert!(words.contains(&file.path().display().to_string()), "{words}");
    let nowhere = file.path().with_extension("nowhere");
    let words = inspect(&nowhere).err().unwrap().to_string();
    assert!(words.contains(&nowhere.display().to_string()), "{words}");
    assert!(!nowhere.exists());
}

#[tokio::test]
async fn when_the_flow_lets_go_the_journal_ends() {
    let disk = FaultDisk::default();
    let Run { mut from, to, handle } = start(disk.clone());
    to.put(ToJournal::Append(vec![message(thread(1), "one")]));
    drop(to);
    assert!(matches!(from.next().await, Some(FromJournal::Committed(_))));
    assert_eq!(from.next().await, None);
    handle.close().await.unwrap();
    let mut run = start(disk);
    assert_eq!(run.started().await.0, [thread(1)]);
    run.close().await;
}

#[test]
fn options_are_read_and_checked() {
    let options: Options = serde_json::from_str(r#"{"segment_max_bytes": 8192}"#).unwrap();
    assert_eq!(options, Options { segment_max_bytes: 8192, ..Options::default() });
    assert!(serde_json::from_str::<Options>(r#"{"segment_max": 8192}"#).is_err());
    let words =
        Journal::open(MemoryDisk::default(), Options { segment_max_bytes: 1, ..options }).err().unwrap().to_string();
    assert!(words.contains("segment_max_bytes") && words.contains("4096"), "{words}");
}
