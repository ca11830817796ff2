//! Threads are moved, and the move is broken off at every step.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::home::rename;
use super::*;
use crate::host::plan::Ssh;
use slackwater_core::id::{CallId, InputId};
use slackwater_core::port::Rest;
use slackwater_core::record::{Arrival, Committed, Content, Message, Origin, Proof, Record};

/// A cluster with so many threads, each of which has three messages. Every other thread rests, one of them with a timer.
async fn cluster(place: &Path, placement: &Placement, threads: u64) -> Manifest {
    let mut manifest = Manifest::new(placement.clone());
    manifest.known = (0..placement.shard_count()).collect();
    manifest.store(place).unwrap();
    let mut writers = BTreeMap::new();
    for shard in 0..placement.shard_count() {
        let directory = shard_directory(place, shard);
        directory::claim(&directory, &manifest.cluster, shard, false).unwrap();
        writers.insert(shard, Writer::new(Open::new(shard, &directory).unwrap()));
    }
    for number in 0..threads {
        let thread = thread(number);
        let records: Vec<_> = (1..=3).map(|at| message(thread, at)).collect();
        let call = CallId { number: 2, index: 0 };
        let timers = if number % 4 == 0 { vec![(call, 77)] } else { Vec::new() };
        let rest = (number % 2 == 0).then_some(Rest { thread, through: 3, timers });
        writers.get_mut(&placement.shard_of(thread)).unwrap().write(records, rest).await.unwrap();
    }
    for writer in writers.into_values() {
        writer.finish().await.unwrap();
    }
    manifest
}

fn thread(number: u64) -> ThreadId {
    let name = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    ThreadId::from_bytes(name.to_be_bytes())
}

fn message(thread: ThreadId, number: u64) -> Committed {
    let message = Message {
        id: InputId(format!("m{number}")),
        origin: Origin { who: "ann".to_owned(), proof: Proof::Key },
        content: vec![Content::Text(format!("{thread} {number}"))],
        thread_name: None,
        metadata: None,
    };
    let record = Record::Message(message);
    Committed { number, arrival: Arrival { ticket: None, thread, at_ms: 1_000 + number, record } }
}

/// All threads, with the shard where each is, its records and what the next start is told of it.
type All = BTreeMap<ThreadId, (u32, Vec<Committed>, bool, Vec<(CallId, u64)>)>;

async fn read(place: &Path, placement: &Placement) -> All {
    let mut all = All::new();
    for shard in 0..placement.shard_count() {
        let mut journal = Open::new(shard, &shard_directory(place, shard)).unwrap();
        for (thread, _) in journal.threads().await.unwrap() {
            let records = journal.records(thread).await.unwrap();
            let timers = journal.timers.get(&thread).cloned().unwrap_or_default();
            let told = (shard, records, journal.awake.contains(&thread), timers);
            assert_eq!(all.insert(thread, told), None, "a thread is at one place");
        }
        journal.close().await.unwrap();
    }
    all
}

fn check(all: &All, placement: &Placement, threads: u64) {
    assert_eq!(all.len() as u64, threads);
    for number in 0..threads {
        let (shard, records, awake, timers) = &all[&thread(number)];
        assert_eq!(*shard, placement.shard_of(thread(number)), "it is where the table says");
        assert_eq!(*records, (1..=3).map(|at| message(thread(number), at)).collect::<Vec<_>>());
        assert_eq!((*awake, timers.len()), (number % 2 == 1, usize::from(number % 4 == 0)));
    }
}

#[tokio::test]
async fn threads_move_to_more_shards_and_back() {
    let place = tempfile::tempdir().unwrap();
    let before = Placement::even(1, 2, 16);
    let mut manifest = cluster(place.path(), &before, 200).await;
    for (cells, shards) in [(2, 2), (3, 1), (1, 2)] {
        let to = manifest.placement.spread(cells, shards);
        intend(place.path(), to.clone()).unwrap();
        let moved = rebalance(place.path(), &[]).await.unwrap();
        assert!(moved.virtual_shards > 0 && moved.threads <= 200);
        manifest = Manifest::load(place.path()).unwrap().unwrap();
        assert_eq!((&manifest.placement, &manifest.moving_to), (&to, &None));
        check(&read(place.path(), &to).await, &to, 200);
        let left: Vec<_> = std::fs::read_dir(place.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left.len() as u32, to.shard_count() + 1, "nothing is left over: {left:?}");
    }
}

/// Every state of the files that a crash can leave, by hand: the move goes on from there.
#[tokio::test]
async fn a_move_that_was_broken_off_goes_on() {
    let threads = 60;
    let before = Placement::even(1, 3, 16);
    for (step, to) in (0..6).flat_map(|step| [(step, before.spread(1, 2)), (step, before.spread(1, 4))]) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path();
        let mut manifest = cluster(path, &before, threads).await;
        intend(path, to.clone()).unwrap();
        manifest.moving_to = Some(to.clone());
        let places = Places::new(path, &[], &manifest, &to);
        match step {
            // Only the wish is known.
            0 => {}
            // Copying was broken off in the middle.
            1 => directory::claim(&aside(path, 0, "next"), &manifest.cluster, 0, false).unwrap(),
            _ => {
                let mut on_its_way = Move::begin(path, &[]).await.unwrap().unwrap();
                on_its_way.copy_all().await.unwrap();
                // All is copied, and the manifest does not say so yet; then it does.
                manifest.copied = step > 2;
                match step {
                    // One shard is out of its place, or has been exchanged, or all have.
                    4 => rename(&shard_directory(path, 0), &aside(path, 0, "old")).unwrap(),
                    5 => {
                        for shard in &on_its_way.changed {
                            places.exchange(*shard).await.unwrap();
                        }
                    }
                    _ => {}
                }
            }
        }
        manifest.store(path).unwrap();
        let other = before.spread(2, 2);
        let refused = intend(path, other);
        assert!(matches!(refused, Err(RebalanceError::Other { cells: 1, .. })), "{refused:?}");
        intend(path, to.clone()).unwrap();
        let held = alone(path).unwrap();
        assert!(matches!(rebalance(path, &[]).await, Err(RebalanceError::Busy { .. })), "one at a time");
        drop(held);
        rebalance(path, &[]).await.unwrap();
        check(&read(path, &to).await, &to, threads);
        assert_eq!(
            shard_directory(path, 2).exists(),
            to.shards > 2,
            "step {step}: a shard that is no more has no state"
        );
    }
}

#[tokio::test]
async fn a_shard_whose_disk_is_gone_stops_the_move() {
    let place = tempfile::tempdir().unwrap();
    let before = Placement::even(1, 2, 16);
    let manifest = cluster(place.path(), &before, 20).await;
    std::fs::remove_dir_all(shard_directory(place.path(), 1)).unwrap();
    let to = before.spread(1, 3);
    intend(place.path(), to).unwrap();
    let error = rebalance(place.path(), &[]).await.unwrap_err();
    assert!(error.to_string().starts_with("shard 1: its state is gone"), "{error}");
    assert!(shard_directory(place.path(), 0).is_dir(), "what was there is there");
    assert!(give_up(place.path()).unwrap(), "nothing has moved, so all can stay");
    assert_eq!(Manifest::load(place.path()).unwrap(), Some(Manifest { attempts: 1, ..manifest }));
}

/// Once all is at its new place there is only the way on.
#[tokio::test]
async fn what_is_copied_is_not_given_up() {
    let place = tempfile::tempdir().unwrap();
    let before = Placement::even(1, 2, 16);
    let mut manifest = cluster(place.path(), &before, 20).await;
    let to = before.spread(1, 3);
    manifest.moving_to = Some(to.clone());
    manifest.copied = true;
    manifest.store(place.path()).unwrap();
    assert!(!give_up(place.path()).unwrap());
    assert_eq!(Manifest::load(place.path()).unwrap(), Some(manifest));
}

/// What is copied while the shards run is not all, and the rest comes afterwards.
#[tokio::test]
async fn what_came_since_the_copy_is_moved_too() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path();
    let before = Placement::even(1, 2, 16);
    let threads = 40;
    cluster(path, &before, threads).await;
    let to = before.spread(2, 2);
    intend(path, to.clone()).unwrap();
    // The shards run: their journals are open meanwhile.
    let mut running = Vec::new();
    for shard in 0..2 {
        running.push(Writer::new(Open::new(shard, &shard_directory(path, shard)).unwrap()));
    }
    let mut on_its_way = Move::begin(path, &[]).await.unwrap().unwrap();
    on_its_way.ahead().await.unwrap();
    assert_eq!(on_its_way.copied.len() as u64, threads);
    // One thread more, and one record more of another one.
    for (thread, number) in [(thread(threads), 1), (thread(threads), 2), (thread(7), 4), (thread(threads), 3)] {
        let shard = before.shard_of(thread) as usize;
        running[shard].write(vec![message(thread, number)], None).await.unwrap();
    }
    for writer in running {
        writer.finish().await.unwrap();
    }
    let moved = on_its_way.finish().await.unwrap();
    assert_eq!((moved.threads as u64, moved.records as u64), (threads + 1, 3 * (threads + 1) + 1));
    let mut all = read(path, &to).await;
    let (.., records, _, _) = all.get_mut(&thread(7)).unwrap();
    assert_eq!(records.pop().unwrap().number, 4, "what came since is there");
    let (shard, records, awake, _) = all.remove(&thread(threads)).unwrap();
    assert!(shard == to.shard_of(thread(threads)) && records.len() == 3 && awake);
    check(&all, &to, threads);
    let left = std::fs::read_dir(path).unwrap().count() as u32;
    assert_eq!(left, to.shard_count() + 1, "nothing is left over");
}

/// Nothing has moved when a machine is not there, and its name is told.
#[tokio::test]
async fn a_machine_that_is_not_reached_stops_the_move() {
    let place = tempfile::tempdir().unwrap();
    let before = Placement::even(1, 2, 16);
    let manifest = cluster(place.path(), &before, 20).await;
    let ssh = Ssh { destination: "127.0.0.1".to_owned(), port: Some(9), key: None, known_hosts: None };
    let machine = |name: &str, ssh| Machine {
        name: name.to_owned(),
        address: "127.0.0.1".to_owned(),
        public_address: None,
        directory: place.path().to_owned(),
        ssh,
    };
    let machines = [machine("here", None), machine("far", Some(ssh))];
    intend(place.path(), before.spread(2, 1)).unwrap();
    let error = rebalance(place.path(), &machines).await.unwrap_err();
    assert!(matches!(&error, RebalanceError::Machine { machine, .. } if machine == "far"), "{error}");
    assert!(give_up(place.path()).unwrap());
    assert_eq!(Manifest::load(place.path()).unwrap(), Some(Manifest { attempts: 1, ..manifest }));
    check(&read(place.path(), &before).await, &before, 20);
}
