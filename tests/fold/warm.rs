//! Threads that rest in memory: they do what they would do when recalled.
//!
//! In: random lives of three threads, cut into ticks. Out: nothing, or the shortest lives that show a difference. Always: what
//! is compared is all that leaves the join, less the recalls, and less what only a recall asks again.

use crate::chances::{Chance, chances, lived};
use crate::properties::for_any;
use proptest::prelude::*;
use slackwater_core::effect::{Due, Effect};
use slackwater_core::flow::awake::{Awake, Moment, ToWorld};
use slackwater_core::flow::warm::STAY_MAX_MS;
use slackwater_core::id::{ThreadId, Ticket};
use slackwater_core::port::{FromJournal, ToJournal, ToTimer};
use slackwater_core::record::Committed;
use slackwater_core::thread::Thread;
use std::cell::Cell;

/// When the lives begin, in milliseconds since the Unix epoch.
const BEGIN_MS: u64 = 1_900_000_000_000;

/// A tick: records of one thread each that are committed together.
type Tick = Vec<Vec<Committed>>;

/// The ticks in which these threads live. Each cut takes some records of one of them, in the tick before or in one of its own.
fn ticks(lives: [Vec<Chance>; 3], cuts: &[(usize, usize, bool, u16)]) -> Vec<Tick> {
    let mut lives = lives.map(|chances| lived(chances).0.into_iter());
    let (mut ticks, mut now_ms) = (Vec::<Tick>::new(), BEGIN_MS);
    for (request, &(of, count, together, pause_ms)) in cuts.iter().enumerate() {
        now_ms += u64::from(pause_ms);
        let mut records: Vec<_> = lives[of % 3].by_ref().take(count).collect();
        for record in &mut records {
            record.arrival.thread = ThreadId::from_bytes([of as u8 + 20; 16]);
            record.arrival.at_ms = now_ms;
            record.arrival.ticket = Some(Ticket { gateway: 0, request: request as u64 });
        }
        if records.is_empty() {
            continue;
        }
        match ticks.last_mut() {
            Some(tick) if together => tick.push(records),
            _ => ticks.push(vec![records]),
        }
    }
    ticks
}

/// What leaves in each tick, and how often a thread was recalled.
fn leaves(max_bytes: usize, ticks: &[Tick]) -> (Vec<Vec<ToWorld>>, usize) {
    let mut awake = Awake::default();
    assert_eq!(awake.step(Moment::Item(FromJournal::KeepWarm { max_bytes })), []);
    let (mut journal, mut recalls) = (Vec::<Committed>::new(), 0);
    let mut all = Vec::new();
    for tick in ticks {
        let mut left = Vec::new();
        for records in tick {
            journal.extend(records.iter().cloned());
            let mut asked = awake.step(Moment::Item(FromJournal::Committed(records.clone())));
            let recall = |item: &ToWorld| matches!(item, ToWorld::Journal(ToJournal::Recall { .. }));
            if let Some(at) = asked.iter().position(recall) {
                let ToWorld::Journal(ToJournal::Recall { thread, before }) = asked.remove(at) else { unreachable!() };
                assert_eq!(asked, [], "nothing of a thread is done before its history is there");
                recalls += 1;
                let of_thread = |record: &&Committed| record.arrival.thread == thread;
                let older = journal.iter().filter(of_thread).filter(|record| record.number < before);
                let records = Ok(older.cloned().collect());
                let recalled = FromJournal::Recalled { thread, records, ancestry: Vec::new() };
                asked = awake.step(Moment::Item(recalled));
                asked_again(thread, before, &journal).into_iter().rev().for_each(|again| {
                    assert_eq!(asked.pop(), Some(again), "a recall asks again for what is still owed");
                });
            }
            left.extend(asked);
        }
        left.extend(awake.step(Moment::TickEnd));
        all.push(left);
    }
    (all, recalls)
}

/// What a recall asks again: what was owed when the thread rested, and still is.
fn asked_again(id: ThreadId, before: u64, journal: &[Committed]) -> Vec<ToWorld> {
    let fold = |before: u64| {
        let mut thread = Thread::new(id);
        let records = journal.iter().filter(|record| record.arrival.thread == id && record.number < before);
        records.for_each(|record| drop(thread.apply(record.clone())));
        thread
    };
    let still = fold(u64::MAX).owed();
    let owed = fold(before).owed().into_iter().filter(|effect| still.contains(effect));
    owed.map(|effect| match effect {
        Effect::Arm { thread, call, due: due @ Due::At(_) } => ToWorld::Timer(ToTimer::Arm { thread, call, due }),
        other => panic!("a thread that owes {other:?} does not rest"),
    })
    .collect()
}

#[test]
fn a_thread_that_rests_in_memory_does_what_it_would_do_when_recalled() {
    let cut = (0..3_usize, 1..4_usize, any::<bool>(), prop_oneof![3 => 0..2_u16, 1 => Just(STAY_MAX_MS as u16)]);
    let lives = (
        [chances(), chances(), chances()],
        prop::collection::vec(cut, 1..200),
        // About so much do some records take.
        400..20_000_usize,
    );
    let (cold_recalls, some_recalls, aged_recalls) = (Cell::new(0), Cell::new(0), Cell::new(0));
    for_any("a_thread_that_rests_in_memory", lives, |(lives, cuts, some_bytes)| {
        let ticks = ticks(lives, &cuts);
        let (cold, recalls) = leaves(0, &ticks);
        let count = |total: &Cell<usize>, recalls| total.set(total.get() + recalls);
        count(&cold_recalls, recalls);
        for (bytes, total) in [(some_bytes, &some_recalls), (usize::MAX, &aged_recalls)] {
            let (warm, recalls) = leaves(bytes, &ticks);
            assert_eq!(warm, cold, "with {bytes} bytes of threads that rest");
            count(total, recalls);
        }
        ticks.iter().flatten().map(Vec::len).sum()
    });
    let (cold, some, aged) = (cold_recalls.get(), some_recalls.get(), aged_recalls.get());
    eprintln!(
        "a_thread_that_rests_in_memory: {cold} recalls with no room, {some} with some, {aged} of those that had stayed too long"
    );
    assert!(cold > some && some > aged && aged > 0, "each bound recalls fewer, and time passes");
}
