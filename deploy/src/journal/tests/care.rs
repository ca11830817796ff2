//! Backups, threads as text, and repairs.

use super::*;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

fn options() -> Options {
    Options { segment_max_bytes: 16 << 10, group_max_bytes: 4096, ..Options::default() }
}

fn text(n: u64) -> String {
    format!("{n} {}", "the build waits for a review ".repeat(8))
}

/// A journal on a directory: threads 1 to 12 with records, some packed, some at rest, and a child of the first.
async fn filled(path: &Path) -> BTreeMap<ThreadId, Vec<Committed>> {
    let mut run = start_with(FileDisk::open(path).unwrap(), options());
    for n in 0..120_u64 {
        run.append(vec![message(thread(1 + (n % 12) as u8), &text(n))]).await.unwrap();
    }
    (1..5).for_each(|n| run.to.put(ToJournal::Rest(rest(thread(n), 10))));
    run.append(vec![message(thread(9), "more")]).await.unwrap();
    assert!(run.handle.pack().await);
    let (root, call) = (thread(1), CallId { number: 3, index: 0 });
    run.append(vec![ancestry::birth(&[root], call, 2, false)]).await.unwrap();
    for n in 0..60_u64 {
        run.append(vec![message(thread(6 + (n % 6) as u8), &text(n + 1000))]).await.unwrap();
    }
    let records = records(&mut run, (1..=12).map(thread).chain([root.child(call)])).await;
    run.close().await;
    records
}

async fn records(run: &mut Run, threads: impl Iterator<Item = ThreadId>) -> BTreeMap<ThreadId, Vec<Committed>> {
    let mut all = BTreeMap::new();
    for thread in threads {
        all.insert(thread, run.recall(thread).await.unwrap());
    }
    all
}

async fn opened(path: &Path, threads: impl Iterator<Item = ThreadId>) -> BTreeMap<ThreadId, Vec<Committed>> {
    let mut run = start_with(FileDisk::open(path).unwrap(), options());
    run.started().await;
    let all = records(&mut run, threads).await;
    run.close().await;
    all
}

fn lines(lines: &[Line]) -> String {
    lines.iter().map(|line| serde_json::to_string(line).unwrap() + "\n").collect()
}

#[tokio::test]
async fn a_backup_under_load_holds_what_was_acknowledged_before_it_was_begun() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("data");
    let mut run = start_with(FileDisk::open(&from).unwrap(), Options { pack_after_ms: 20, ..options() });
    let acknowledged: Mutex<BTreeMap<ThreadId, u64>> = Mutex::default();
    let (mut backups, mut sent) = (Vec::new(), 0_u64);
    while backups.len() < 8 {
        for _ in 0..60 {
            let arrivals: Vec<_> = (0..3).map(|n| message(thread(((sent + n) % 20) as u8), &text(sent + n))).collect();
            sent += 3;
            for committed in run.append(arrivals).await.unwrap() {
                acknowledged.lock().unwrap().insert(committed.arrival.thread, committed.number);
            }
        }
        // Half of the backups are made while the next records are written, packed and removed.
        let to = place.path().join(format!("backup-{}", backups.len()));
        let before = acknowledged.lock().unwrap().clone();
        let (source, target) = (from.clone(), to.clone());
        let making = std::thread::spawn(move || backup(&source, &target).unwrap());
        let Run { from: committed, to: append, handle } = &mut run;
        let meanwhile = async {
            append.put(ToJournal::Append((0..20).map(|n| message(thread(n), &text(sent + u64::from(n)))).collect()));
            let mut left = 20;
            while left > 0 {
                let Some(FromJournal::Committed(some)) = committed.next().await else { panic!("a commit") };
                left -= some.len();
                for committed in some {
                    acknowledged.lock().unwrap().insert(committed.arrival.thread, committed.number);
                }
            }
        };
        futures::join!(handle.pack(), meanwhile);
        let made = making.join().unwrap();
        assert!(made.records >= before.values().sum(), "{made:?}");
        backups.push((to, before, made));
    }
    let all = records(&mut run, (0..20).map(thread)).await;
    run.close().await;
    for (to, before, made) in backups {
        let found = opened(&to, (0..20).map(thread)).await;
        assert_eq!(found.values().map(|records| records.len() as u64).sum::<u64>(), made.records);
        for (thread, records) in found {
            assert!(records.len() as u64 >= before.get(&thread).copied().unwrap_or(0), "{thread}");
            assert_eq!(records, all[&thread][..records.len()], "a prefix of what was acknowledged at last");
        }
    }
}

#[tokio::test]
async fn a_backup_goes_to_an_empty_place_and_comes_from_a_journal() {
    let place = tempfile::tempdir().unwrap();
    let from = place.path().join("data");
    let all = filled(&from).await;
    std::fs::write(from.join("capability.key"), b"a secret").unwrap();
    let to = place.path().join("deep/backup");
    let made = backup(&from, &to).unwrap();
    assert_eq!((made.threads, made.records), (13, 182));
    assert!(made.linked > 2 && made.copied >= 2, "{made:?}");
    assert_eq!(std::fs::read(to.join("capability.key")).unwrap(), b"a secret");
    assert_eq!(opened(&to, all.keys().copied()).await, all);
    assert_eq!(opened(&from, all.keys().copied()).await, all, "the backup's life is its own");
    let words = backup(&from, &to).unwrap_err().to_string();
    assert!(words.contains("is not empty") && words.contains("deep/backup"), "{words}");
    let words = backup(&place.path().join("deep"), &place.path().join("other")).unwrap_err().to_string();
    assert!(words.contains("no journal in"), "{words}");
}

#[tokio::test]
async fn what_is_exported_and_imported_is_exported_again_the_same() {
    let place = tempfile::tempdir().unwrap();
    let (from, to) = (place.path().join("from"), place.path().join("to"));
    let all = filled(&from).await;
    let child = thread(1).child(CallId { number: 3, index: 0 });
    for (&thread, records) in &all {
        let exported = export(&from, thread, false).unwrap();
        assert_eq!(exported.len(), records.len());
        if thread == child {
            continue;
        }
        assert_eq!(import(&to, &lines(&exported)).unwrap(), (records.len() as u64, 1));
        assert_eq!(export(&to, thread, false).unwrap(), exported);
        let words = import(&to, &lines(&exported)).unwrap_err().to_string();
        assert!(words.contains(&format!("thread {thread} is there already")), "{words}");
    }
    // A child needs its ancestors.
    let alone = lines(&export(&from, child, false).unwrap());
    let words = import(&place.path().join("empty"), &alone).unwrap_err().to_string();
    assert!(words.contains(&thread(1).to_string()) && words.contains("--with-ancestors"), "{words}");
    let together = export(&from, child, true).unwrap();
    import(&place.path().join("empty"), &lines(&together)).unwrap();
    assert_eq!(export(&place.path().join("empty"), child, true).unwrap(), together);
    import(&to, &alone).unwrap();
    assert_eq!(opened(&to, all.keys().copied()).await, all);
    let words = export(&from, thread(99), false).unwrap_err().to_string();
    assert!(words.contains("no thread") && words.contains("from"), "{words}");
}

#[tokio::test]
async fn a_thread_is_exported_while_a_runtime_has_the_directory() {
    let place = tempfile::tempdir().unwrap();
    let mut run = start_with(FileDisk::open(place.path()).unwrap(), options());
    for n in 0..50 {
        run.append(vec![message(thread(1), &text(n))]).await.unwrap();
        assert_eq!(export(place.path(), thread(1), false).unwrap().len() as u64, n + 1);
        if n % 20 == 19 {
            assert!(run.handle.pack().await);
        }
    }
    assert!(matches!(import(place.path(), "").unwrap_err(), TransferError::Line { .. }));
    run.close().await;
}

#[test]
fn lines_that_are_no_whole_thread_put_in_nothing() {
    let place = tempfile::tempdir().unwrap();
    let line = |number: Number, arrival: &Arrival| {
        let (thread, record) = (arrival.thread.to_string(), arrival.record.clone());
        serde_json::to_string(&Line { version: 1, thread, number, at_ms: 7, record }).unwrap() + "\n"
    };
    let one = message(thread(1), "one");
    let bad_version = line(1, &one).replace("\"version\":1", "\"version\":2");
    for (text, says) in [
        (String::new(), "line 1: there is no record"),
        ("{}\n".to_owned(), "line 1: it is no record as `export` writes them: missing field"),
        ([line(1, &one), line(3, &one)].concat(), "line 2: record 3 of thread"),
        (line(2, &one), "line 1: record 2"),
        (line(1, &fired(thread(1))), "none that a thread begins with"),
        ([line(1, &one), "\n".to_owned(), line(1, &one)].concat(), "line 3: record 1"),
        (bad_version, "has version 2"),
        (line(1, &one).replace("01010101", "0101"), "is no thread's id"),
    ] {
        let words = import(place.path(), &text).unwrap_err().to_string();
        assert!(words.contains(says) && words.contains("nothing was put in"), "{says}: {words}");
    }
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "not even a journal was made");
}

fn change(path: &Path, at: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = std::fs::read(path).unwrap();
    at(&mut bytes);
    std::fs::write(path, bytes).unwrap();
}

fn newest_log(path: &Path) -> PathBuf {
    let names = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    names.filter(|path| path.extension().is_some_and(|extension| extension == "segment")).max().unwrap()
}

#[tokio::test]
async fn a_repair_keeps_what_is_whole_and_moves_the_rest_aside() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let mut all = filled(&path).await;
    assert_eq!(repair(&path).unwrap(), Repaired::default(), "nothing has to be done");

    // A torn tail and a checkpoint that is no use.
    change(&newest_log(&path), |bytes| bytes.extend_from_slice(&[7; 33]));
    assert_eq!(inspect(&path).unwrap().checkpoint, CheckpointState::Good);
    for entry in std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()) {
        if entry.extension().is_some_and(|extension| extension == "checkpoint") {
            std::fs::remove_file(entry).unwrap();
        }
    }
    assert_eq!(inspect(&path).unwrap().checkpoint, CheckpointState::None);
    std::fs::write(path.join("0000000099.checkpoint"), b"nonsense").unwrap();
    let report = inspect(&path).unwrap();
    assert!(report.checkpoint == CheckpointState::Useless && report.is_sound(), "{report}");
    let repaired = repair(&path).unwrap();
    assert_eq!(repaired.cut.unwrap().bytes, 33);
    assert_eq!(repaired.removed, ["0000000099.checkpoint"]);
    assert!(inspect(&path).unwrap().is_sound());

    // A block of the pack, of a thread from which another one inherits; and bytes that belong to nobody that is known.
    let (root, child) = (thread(1), thread(1).child(CallId { number: 3, index: 0 }));
    change(&path.join("0000000001.pack"), |bytes| {
        let first = batch::find(bytes, format::SEGMENT_HEAD, 1).unwrap().frames[0];
        assert_eq!(first.row.thread, root);
        bytes[first.offset + 70] ^= 1;
    });
    assert!(!inspect(&path).unwrap().is_sound());
    let old = std::fs::read(path.join("0000000001.pack")).unwrap();
    let repaired = repair(&path).unwrap();
    let aside = repaired.aside.unwrap();
    assert!(aside.ends_with("quarantine-1") && std::fs::read(aside.join("0000000001.pack")).unwrap() == old);
    let mut named: Vec<_> = repaired.set_aside.iter().map(|(thread, _)| thread.clone()).collect();
    named.sort();
    let mut expected = vec![root.to_string(), child.to_string()];
    expected.sort();
    assert_eq!(named, expected, "{:?}", repaired.set_aside);
    let note = std::fs::read_to_string(aside.join("threads.txt")).unwrap();
    assert!(note.contains(&root.to_string()) && note.contains("0000000001.pack at byte"), "{note}");
    all.remove(&root);
    all.remove(&child);
    let report = inspect(&path).unwrap();
    assert!(report.is_sound(), "{report}");
    assert_eq!((report.threads, report.resting_with_timers), (11, 3));
    assert_eq!(opened(&path, all.keys().copied()).await, all);

    // Damage that keeps the journal from opening at all.
    let mut run = start_with(FileDisk::open(&path).unwrap(), options());
    run.started().await;
    for n in 0..2 {
        run.append(vec![message(thread(40 + n), "more")]).await.unwrap();
    }
    run.close().await;
    change(&newest_log(&path), |bytes| {
        let end = batch::find(bytes, format::SEGMENT_HEAD, 0).unwrap().end.length as usize;
        bytes[format::SEGMENT_HEAD..format::SEGMENT_HEAD + end].fill(0);
    });
    assert!(Journal::open(FileDisk::open(&path).unwrap(), options()).is_err());
    let repaired = repair(&path).unwrap();
    assert!(repaired.aside.unwrap().ends_with("quarantine-2"));
    assert!(inspect(&path).unwrap().is_sound());
}

#[tokio::test]
async fn a_repair_that_was_interrupted_is_finished_before_anything_else() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("data");
    let mut all = filled(&path).await;
    change(&path.join("0000000001.pack"), |bytes| {
        let first = batch::find(bytes, format::SEGMENT_HEAD, 1).unwrap().frames[2];
        bytes[first.offset + 70] ^= 1;
    });
    let whole = repair_in_a_copy(&path, &place.path().join("copy"));
    // After each rename and before each: what is moved is seen by which names are where.
    let mut moves = 0;
    for stop in 0.. {
        let copy = place.path().join(format!("stop-{stop}"));
        copy_directory(&path, &copy);
        if repair::repair_stopping(&copy, stop).is_ok() {
            break;
        }
        moves += 1;
        let words = FileDisk::open(&copy).unwrap_err().to_string();
        assert!(words.contains("has not come to its end") && words.contains("--repair"), "{words}");
        assert!(inspect(&copy).is_err() && export(&copy, thread(2), false).is_err());
        assert_eq!(repair(&copy).unwrap().set_aside.len(), 1);
        assert_eq!(whole.set_aside[0].0, thread(3).to_string());
        all.remove(&thread(3));
        assert_eq!(opened(&copy, all.keys().copied()).await, all, "stopped after {stop} moves");
    }
    assert!(moves > 4, "{moves} moves");
}

fn copy_directory(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

fn repair_in_a_copy(path: &Path, copy: &Path) -> Repaired {
    copy_directory(path, copy);
    repair(copy).unwrap()
}
