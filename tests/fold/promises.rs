//! The promises of the design (section 3) that the fold can keep, each under its own name.

use crate::story::{Story, call, committed, message, person, replay, say};
use crate::tape::Tape;
use crate::world::World;
use slackwater_core::effect::{Effect, Outcome, Wait};
use slackwater_core::id::{CallId, InputId, Number, OutputId};
use slackwater_core::record::{Record, Stop};
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeSet;

/// A life with messages, calls, sleeps, races, stops and late results, and no crash.
fn life() -> World {
    let mut world = World::new(Tape::endless(11));
    world.live(600);
    world
}

#[test]
fn same_id_once() {
    let mut story = Story::new();
    story.message("a", "hello");
    story.turn(1, vec![say("hi")]);
    for round in 0..500 {
        story.message(&format!("m{round}"), "more");
        let seen = story.thread.prompt().unwrap().seen;
        story.turn(seen, vec![say("ok")]);
    }
    let before = story.history();
    let applied = story.message("a", "hello, however long ago");
    assert_eq!((applied.outcome, applied.effects), (Outcome::Duplicate(1), vec![]));
    let applied = story.stop("a");
    assert_eq!((applied.outcome, applied.effects), (Outcome::Duplicate(1), vec![]));
    assert_eq!((story.history(), story.prompt()), (before, None));
}

#[test]
fn every_call_has_one_result() {
    let world = life();
    let view = world.thread.history();
    assert_eq!(invariant::check_view(view), Ok(BTreeSet::new()));
    let calls =
        view.to_vec().iter().filter(|item| matches!(&****item, slackwater_core::history::Item::Result(_))).count();
    assert!(calls > 50, "the life had {calls} calls");
}

#[test]
fn one_order_per_thread() {
    let mut thread = Thread::new(crate::story::THREAD);
    thread.apply(committed(1, message("a", "one")));
    for number in [0, 1, 3] {
        let mut thread = thread.clone();
        let gap = std::panic::catch_unwind(move || thread.apply(committed(number, message("b", "two"))));
        assert!(gap.is_err(), "record {number} after record 1");
    }
    let mut other = committed(2, message("b", "two"));
    other.arrival.thread = slackwater_core::id::ThreadId::from_bytes([8; 16]);
    assert!(std::panic::catch_unwind(move || thread.apply(other)).is_err(), "a record of another thread");
}

#[test]
fn apply_is_deterministic() {
    let world = life();
    let (mut once, mut again) = (Thread::new(crate::story::THREAD), Thread::new(crate::story::THREAD));
    for record in &world.records {
        assert_eq!(once.apply(record.clone()), again.apply(record.clone()));
    }
    assert!(once == again && once == world.thread);
    assert_eq!(format!("{once:?}"), format!("{:?}", world.thread), "down to the last field");
}

/// Whatever a thread waits for, a message makes it ask its model in the very record; a stop leaves it waiting for nothing.
#[test]
fn a_slice_never_waits() {
    let mut world = World::new(Tape::endless(12));
    world.live(300);
    let (mut thread, mut waited) = (Thread::new(crate::story::THREAD), 0);
    for record in &world.records {
        thread.apply(record.clone());
        waited += usize::from(thread.prompt().is_none());
        let mut written = thread.clone();
        let applied = written.apply(committed(record.number + 1, message("now", "and now?")));
        assert_eq!(applied.outcome, Outcome::Taken(record.number + 1));
        assert!(written.prompt().is_some(), "after record {} the thread waits on", record.number);
        let stop = Record::Stop(Stop { id: InputId("now".into()), origin: person() });
        let mut stopped = thread.clone();
        stopped.apply(committed(record.number + 1, stop));
        let waits = stopped.standing().waits;
        assert!(matches!(waits[..], [Wait::Input { call: None, .. }]), "after record {}: {waits:?}", record.number);
    }
    assert!(waited > 100, "the life waited only {waited} times");
}

/// An effect is named by the record that it follows from, no two have one name, and one that is repeated after a crash has
/// the name that it had.
#[test]
fn effects_have_names() {
    let world = life();
    let mut thread = Thread::new(crate::story::THREAD);
    let (mut outputs, mut dispatches, mut arms) = (BTreeSet::new(), BTreeSet::<CallId>::new(), BTreeSet::new());
    for record in &world.records {
        let mut next = 0;
        for effect in thread.apply(record.clone()).effects {
            match effect {
                Effect::Tell(output) => {
                    assert_eq!(output.id, OutputId { number: record.number, index: next }, "outputs count without gap");
                    next += 1;
                    assert!(outputs.insert(output.id));
                }
                Effect::Dispatch(dispatch) if dispatch.approved => {
                    assert!(
                        dispatches.contains(&dispatch.call),
                        "what is approved was asked before, under the same name"
                    );
                }
                Effect::Dispatch(dispatch) => {
                    assert_eq!(dispatch.call.number, record.number);
                    assert!(dispatches.insert(dispatch.call), "{} was dispatched twice", dispatch.call);
                }
                Effect::Arm { call, .. } => {
                    let is_deadline = matches!(record.arrival.record, Record::Deadline { .. });
                    assert_eq!(call.number == record.number, !is_deadline);
                    assert!(arms.insert(call), "{call} was armed twice");
                }
                Effect::Cancel(dispatch) => {
                    assert!(dispatches.contains(&dispatch.call), "only what was asked is cancelled")
                }
                Effect::Disarm { call, .. } => assert!(arms.contains(&call), "only what was armed is disarmed"),
                Effect::Prompt(_) | Effect::Cut { .. } => panic!("prompts are the owner's to send"),
                Effect::Respond(respond) => assert!(respond.question < record.number, "it answers a question"),
                Effect::Check(_) => panic!("only a start asks for it"),
                Effect::Post(_) | Effect::Close(_) => panic!("the thread is alone"),
            }
        }
        for effect in thread.owed() {
            match effect {
                Effect::Dispatch(dispatch) => assert!(dispatches.contains(&dispatch.call)),
                Effect::Arm { call, .. } => assert!(arms.contains(&call)),
                Effect::Respond(respond) => assert!(dispatches.contains(&respond.call)),
                other => panic!("{other:?} is not owed"),
            }
        }
    }
    assert!(dispatches.len() > 20 && arms.len() > 5, "{} dispatches, {} timers", dispatches.len(), arms.len());
}

/// As far as the fold can say: nothing is asked of the world, and nothing told, that names a record later than the last one
/// applied; and before its record nothing of it is there.
#[test]
fn durable_before_act() {
    let world = life();
    let mut thread = Thread::new(crate::story::THREAD);
    for record in &world.records {
        let applied = thread.apply(record.clone());
        let last: Number = thread.last();
        assert_eq!(last, record.number);
        let prompts = thread.prompt().into_iter().map(Effect::Prompt);
        for effect in applied.effects.into_iter().chain(thread.owed()).chain(prompts) {
            let named = match &effect {
                Effect::Tell(output) => output.id.number,
                Effect::Dispatch(dispatch) | Effect::Cancel(dispatch) => dispatch.call.number,
                Effect::Arm { call, .. } | Effect::Disarm { call, .. } => call.number,
                Effect::Prompt(prompt) => prompt.seen,
                Effect::Cut { seen, .. } => *seen,
                Effect::Respond(respond) => respond.question,
                Effect::Check(_) => panic!("only a start asks for it"),
                Effect::Post(_) | Effect::Close(_) => panic!("the thread is alone"),
            };
            assert!(named >= 1 && named <= last, "{effect:?} after record {last}");
        }
    }
}

/// What a replayed thread owes is what the uninterrupted one still has open and the world has not taken over.
#[test]
fn what_is_owed_after_a_replay_is_what_an_uninterrupted_thread_has_open() {
    let mut story = Story::new();
    story.message("a", "hello");
    story.turn(1, vec![call("build", "{}"), call("test", "{}"), call("lint", "{}"), call("sleep", r#"{"seconds":9}"#)]);
    story.accepted(2, 0);
    story.result(2, 1, "green");
    let owed = replay(&story.records).owed();
    let names: Vec<_> = owed
        .iter()
        .map(|effect| match effect {
            Effect::Dispatch(dispatch) => dispatch.name.clone(),
            Effect::Arm { call, .. } => format!("timer {call}"),
            other => panic!("{other:?} is not owed"),
        })
        .collect();
    assert_eq!(names, ["lint", "timer 2.3"]);
    story.stop("s");
    assert_eq!(replay(&story.records).owed(), []);
}
