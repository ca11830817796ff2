//! What holds for any records at all, legal or not.
//!
//! In: random records (`PROPTEST_CASES` lists of them, 256 if not said), with ids from small pools so that they meet. Out:
//! nothing, or the shortest list that breaks a property. Always: how many records were applied is printed.

use crate::chances::{Chance, Which, chances, lived, record};
use crate::renumber::{is_unnamed, items, renumbered, rewait};
use crate::story::{committed, replay};
use crate::tape::Tape;
use crate::world::World;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use slackwater_core::effect::{Effect, Outcome, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::CallId;
use slackwater_core::record::{Arrival, Block, Deliver, Record};
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs a property over random records, and says how many were applied. The property returns how many it applied.
pub(crate) fn for_any<S: Strategy>(name: &str, strategy: S, holds: impl Fn(S::Value) -> usize)
where
    S::Value: Clone,
{
    let config = crate::tape::budget();
    let (cases, applied) = (config.cases, AtomicUsize::new(0));
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        applied.fetch_add(holds(value), Ordering::Relaxed);
        Ok(())
    });
    if let Err(broken) = outcome {
        panic!("{name}: {broken}");
    }
    let applied = applied.into_inner();
    eprintln!("{name}: {cases} cases, {applied} records applied");
    assert!(applied >= cases as usize, "{name} applied nothing");
}

/// The invariants, and the first of them once more in words of its own: of each call at most one result, none before it.
#[test]
fn any_records_keep_the_invariants() {
    let seen = std::cell::RefCell::new(std::collections::BTreeMap::<&str, usize>::new());
    for_any("any_records_keep_the_invariants", chances(), |chances| {
        let mut thread = Thread::new(crate::story::THREAD);
        let (mut made, mut answered) = (BTreeSet::new(), BTreeSet::new());
        let count = chances.len();
        for chance in chances {
            let committed = committed(thread.last() + 1, record(&thread, chance));
            let before = thread.history().clone();
            let applied = thread.apply(committed.clone());
            if let Err(broken) = invariant::check(&thread) {
                panic!("after {committed:?}: {broken}");
            }
            if !crate::compact::may_rewrite(&committed.arrival.record) {
                let appended = thread.history().len() - before.len();
                assert!(
                    thread.history().newest_first().skip(appended).eq(before.newest_first()),
                    "the history is append-only"
                );
            }
            for effect in applied.effects {
                let Effect::Tell(output) = effect else { continue };
                match output.shown {
                    Shown::Turn { item, .. } => made.extend(calls_of(&item)),
                    Shown::Result(item) => {
                        let Item::Result(answer) = &*item else { panic!("{item:?} is no result") };
                        assert!(made.contains(&answer.call), "{} has a result and was not made", answer.call);
                        assert!(answered.insert(answer.call), "{} has two results", answer.call);
                    }
                    shown => *seen.borrow_mut().entry(kind(&shown)).or_default() += 1,
                }
            }
        }
        count
    });
    let seen = seen.into_inner();
    eprintln!("any_records_keep_the_invariants: {seen:?}");
    for kind in [
        "event",
        "spawned",
        "born",
        "report",
        "closed",
        "undelivered",
        "question",
        "verdict",
        "view",
        "compacting",
        "compacted",
        "no summary",
    ] {
        assert!(seen.contains_key(kind), "no life had one that was {kind}: {seen:?}");
    }
}

fn kind(shown: &Shown) -> &'static str {
    match shown {
        Shown::Event(_) => "event",
        Shown::Spawned { .. } => "spawned",
        Shown::Born { .. } => "born",
        Shown::Report { .. } => "report",
        Shown::Closed { .. } => "closed",
        Shown::Undelivered { .. } => "undelivered",
        Shown::Question { .. } => "question",
        Shown::Verdict { .. } => "verdict",
        Shown::View { .. } => "view",
        Shown::Compacting { .. } => "compacting",
        Shown::Compacted { .. } => "compacted",
        Shown::NotCompacted { .. } => "no summary",
        _ => "other",
    }
}

fn calls_of(turn: &Item) -> Vec<CallId> {
    let Item::Assistant { number, blocks, .. } = turn else { panic!("{turn:?} is no turn") };
    let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
    (0..calls as u16).map(|index| CallId { number: *number, index }).collect()
}

#[test]
fn a_replay_gives_the_same_thread() {
    for_any("a_replay_gives_the_same_thread", chances(), |chances| {
        let (records, thread) = lived(chances);
        let again = replay(&records);
        assert!(again == thread);
        assert_eq!(again.standing(), thread.standing());
        assert_eq!(again.prompt(), thread.prompt());
        assert_eq!(again.history(), thread.history());
        assert_eq!(again.owed(), thread.owed());
        assert_eq!(again.rest(), thread.rest());
        2 * records.len()
    });
}

/// The owner looks at a thread only between ticks. Where these lie cannot be seen in the thread.
#[test]
fn how_records_are_cut_into_batches_cannot_be_seen() {
    let lives = (chances(), prop::collection::vec(any::<bool>(), 121));
    for_any("how_records_are_cut_into_batches_cannot_be_seen", lives, |(chances, ends)| {
        let (records, thread) = lived(chances);
        let mut ticked = Thread::new(crate::story::THREAD);
        for (record, tick_ends) in records.iter().zip(ends) {
            ticked.apply(record.clone());
            if tick_ends {
                // An owner asks all it can ask, and may forget the thread and take it from the journal again.
                let asked = (ticked.prompt(), ticked.owed(), ticked.rest());
                ticked = replay(&records[..record.number as usize]);
                assert_eq!((ticked.prompt(), ticked.owed(), ticked.rest()), asked);
            }
        }
        assert_eq!(ticked.prompt(), thread.prompt());
        assert_eq!(ticked.standing(), thread.standing());
        assert!(ticked == thread);
        2 * records.len()
    });
}

/// Every record is delivered twice in a row. The second life has two numbers for each one of the first: the n-th record is
/// there as 2n-1 and again as 2n.
#[test]
fn delivered_twice_is_delivered_once() {
    // The names of children, posts and what was left out follow from numbers, which are others in the second life: it has none.
    let chances = chances().prop_map(|mut chances| {
        chances.iter_mut().for_each(|chance| match chance {
            Chance::Completion(_, blocks, _) => blocks.retain(|block| !matches!(block, 8..=10)),
            Chance::Event(_, _, deliver @ None, _) => *deliver = Some(Deliver::Inline),
            Chance::Result(_, _, _, is_long) => *is_long = false,
            Chance::Compact(_) | Chance::Crossed(_) | Chance::Failure(_, true) => {
                *chance = Chance::Fired(Which::Any(0, 0))
            }
            // A view has no name: it is shown as often as it comes.
            Chance::View(_) => *chance = Chance::Message(8),
            _ => {}
        });
        chances
    });
    for_any("delivered_twice_is_delivered_once", chances, |chances| {
        let (records, once) = lived(chances);
        let mut twice = Thread::new(crate::story::THREAD);
        for committed in &records {
            for delivery in 1..=2 {
                let before = (twice.history().clone(), twice.standing().pending);
                let mut copy = committed.clone();
                copy.number = twice.last() + 1;
                copy.arrival.record = renumbered(copy.arrival.record);
                let applied = twice.apply(copy);
                if delivery == 2 {
                    let (receipts, others): (Vec<_>, Vec<_>) = applied.effects.into_iter().partition(|effect| {
                        matches!(effect, Effect::Post(Arrival { record: Record::Delivered(_), .. }))
                    });
                    assert_eq!(others, [], "the second delivery of {committed:?} did something");
                    let is_post = matches!(committed.arrival.record, Record::Post(_));
                    assert_eq!(receipts.len(), usize::from(is_post), "every delivery has its receipt");
                    assert!(!matches!(applied.outcome, Outcome::Taken(_)) || is_unnamed(&committed.arrival.record));
                    assert_eq!((twice.history().clone(), twice.standing().pending), before);
                }
            }
        }
        invariant::check(&twice).unwrap();
        let view = |thread: &Thread, renumber: bool| {
            let waits = thread.standing().waits.into_iter().map(|wait| if renumber { rewait(wait) } else { wait });
            let prompt = thread.prompt().map(|prompt| items(&prompt.history, renumber));
            (items(thread.history(), renumber), prompt, waits.collect::<Vec<_>>(), thread.standing().state)
        };
        assert_eq!(view(&once, true), view(&twice, false));
        3 * records.len()
    });
}

/// In a world that plays by the rules every input comes before the model, once and in order, through any crashes.
#[test]
fn a_world_that_answers_loses_nothing() {
    let tape = prop::collection::vec(any::<u8>(), 0..400);
    let summaries = AtomicUsize::new(0);
    for_any("a_world_that_answers_loses_nothing", tape, |tape| {
        let mut world = World::new(Tape::written(tape));
        world.crashes = true;
        world.summaries = true;
        world.live(100);
        invariant::check(&world.thread).unwrap();
        summaries.fetch_add(world.summarized, Ordering::Relaxed);
        world.records.len()
    });
    let summaries = summaries.into_inner();
    eprintln!("a_world_that_answers_loses_nothing: {summaries} summaries");
    assert!(summaries > 0);
}

/// One thread of many records: the work of each is counted by the world (items appended, effects), and does not grow.
#[test]
fn linear() {
    const RECORDS: usize = 100_000;
    let mut world = World::new(Tape::endless(20_261_130));
    world.live(RECORDS);
    invariant::check(&world.thread).unwrap();
    eprintln!("linear: {} records applied, {} items", world.records.len(), world.thread.history().len());
    assert!(world.records.len() >= RECORDS && world.thread.history().len() > RECORDS / 4);
}
