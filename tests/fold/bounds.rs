//! The bounds: what a model, a sender or a tool that does not stop gets.

use crate::story::{CALLS_PER_TURN_MAX, PENDING_MAX, REFUSED_TURNS_MAX, Story, asked, call, message, say};
use slackwater_core::effect::{Effect, Outcome, Refusal, Shown};
use slackwater_core::id::Number;
use slackwater_core::record::{Bounds, FailureClass, Record};
use slackwater_core::thread::{Applied, CALLS_KEPT_MAX, State, Thread};
use std::num::{NonZeroU16, NonZeroU32};

fn failed(applied: &Applied) -> bool {
    applied.effects.iter().any(|effect| {
        matches!(effect, Effect::Tell(output) if matches!(output.shown, Shown::Failure { class: FailureClass::Fatal, .. }))
    })
}

#[test]
fn calls_above_the_bound_of_a_turn_are_refused_and_the_rest_is_done() {
    let mut story = Story::new();
    story.message("a", "build all");
    let applied = story.turn(1, (0..CALLS_PER_TURN_MAX + 2).map(|_| call("build", "{}")).collect());
    assert_eq!(asked(&applied).len(), CALLS_PER_TURN_MAX);
    let refused = "Not started: at most 16 calls in one turn are done. Call again in your next turn.";
    assert_eq!(story.history()[2..], [format!("refusal 2.16: {refused}"), format!("refusal 2.17: {refused}")]);
    for index in 0..CALLS_PER_TURN_MAX as u16 {
        assert_eq!(story.prompt(), None);
        story.result(2, index, "built");
    }
    assert_eq!(story.prompt().unwrap().len(), 2 + CALLS_PER_TURN_MAX + 2);
}

/// One call at a time is what some models and tools want.
#[test]
fn the_bounds_are_a_record_and_hold_from_there_on() {
    let mut story = Story::new();
    story.message("a", "build all");
    let one = NonZeroU16::new(1).unwrap();
    story.apply(Record::Bounds(Bounds { calls_per_turn_max: one, ..Bounds::DEFAULT }));
    assert_eq!(story.thread.prompt().unwrap().bounds.calls_per_turn_max, one);
    let applied = story.turn(2, vec![call("build", "{}"), call("test", "{}")]);
    assert_eq!(asked(&applied).len(), 1);
    let refused = "refusal 3.1: Not started: at most 1 calls in one turn are done. Call again in your next turn.";
    assert_eq!(story.history()[2..], [refused]);
    // What was begun under wider bounds is not undone.
    story.result(3, 0, "built");
    story.apply(Record::Bounds(Bounds::DEFAULT));
    story.turn(5, vec![call("build", "{}"), call("test", "{}")]);
    story.apply(Record::Bounds(Bounds { calls_per_turn_max: one, ..Bounds::DEFAULT }));
    assert_eq!(story.thread.standing().waits.len(), 2);
}

#[test]
fn a_queue_is_as_long_as_its_bound() {
    let mut story = Story::new();
    let pending_max = NonZeroU32::new(2).unwrap();
    story.message("a", "one");
    story.apply(Record::Bounds(Bounds { pending_max, ..Bounds::DEFAULT }));
    assert_eq!(story.message("b", "two").outcome, Outcome::Taken(3));
    assert_eq!(story.message("c", "three").outcome, Outcome::Refused(Refusal::QueueFull));
}

/// Found by review: the index of a call and of an output has 16 bits, and a turn of more calls answered some twice.
#[test]
fn a_turn_of_more_calls_than_have_names_is_shortened() {
    let mut story = Story::new();
    story.message("a", "build all");
    story.turn(1, (0..70_000).map(|_| call("build", "{}")).collect());
    assert_eq!(story.history().len(), 2 + CALLS_KEPT_MAX - CALLS_PER_TURN_MAX);
    assert_eq!(story.thread.standing().waits.len(), CALLS_PER_TURN_MAX);
}

#[test]
fn the_reserved_name_is_refused() {
    let mut story = Story::new();
    story.message("a", "hello");
    assert_eq!(asked(&story.turn(1, vec![call("receive_event__injected", "{}")])), [""; 0]);
    let prompt = story.prompt().unwrap();
    assert!(prompt[2].starts_with("refusal 2.0: receive_event__injected cannot be called"), "{prompt:?}");
}

#[test]
fn turns_of_nothing_but_refused_calls_stop_visibly() {
    let mut story = Story::new();
    story.message("a", "hello");
    for round in 1..=REFUSED_TURNS_MAX {
        let seen = story.thread.prompt().unwrap().seen;
        let applied = story.turn(seen, vec![call("sleep", "{}")]);
        assert_eq!(failed(&applied), round == REFUSED_TURNS_MAX, "round {round}");
    }
    assert_eq!(story.prompt(), None);
    assert_eq!(story.thread.standing().state, State::Idle);
    story.message("b", "try something else");
    assert!(story.prompt().is_some(), "the thread stays usable");
}

/// Found by review: only refusals by the fold itself were counted, so a model that called a tool that does not exist, or
/// slept until a time that does not exist, did so for ever.
#[test]
fn refusals_that_come_as_results_count_too() {
    let wall = r#"{"date":"2031-02-31","time":"09:00","timezone":"UTC"}"#;
    for (name, arguments) in [("no_such_tool", "{}"), ("sleep_until", wall)] {
        let mut story = Story::new();
        story.message("a", "hello");
        for round in 1..=REFUSED_TURNS_MAX {
            let seen = story.thread.prompt().unwrap().seen;
            story.turn(seen, vec![call(name, arguments), call("sleep", "{}")]);
            let applied = story.runtime_refusal(story.thread.last(), 0, "There is no such thing.");
            assert_eq!(failed(&applied), round == REFUSED_TURNS_MAX, "{name}, round {round}");
        }
        assert_eq!(story.prompt(), None);
    }
}

#[test]
fn a_tool_that_fails_is_no_refusal() {
    let mut story = Story::new();
    story.message("a", "hello");
    for _ in 0..2 * REFUSED_TURNS_MAX {
        let seen = story.thread.prompt().unwrap().seen;
        story.turn(seen, vec![call("build", "{}"), call("sleep", "{}")]);
        assert!(!failed(&story.tool_failure(story.thread.last(), 0, "does not compile")));
    }
    assert!(story.prompt().is_some());
}

#[test]
fn a_turn_that_does_something_starts_the_count_again() {
    for good in [vec![call("sleep", r#"{"seconds":0}"#), call("sleep", "{}")], vec![say("hm")]] {
        let mut story = Story::new();
        for round in 0..3 * REFUSED_TURNS_MAX {
            if story.prompt().is_none() {
                story.message(&format!("m{round}"), "go on");
            }
            let seen = story.thread.prompt().unwrap().seen;
            let blocks = if round % REFUSED_TURNS_MAX == 0 { good.clone() } else { vec![call("sleep", "{}")] };
            assert!(!failed(&story.turn(seen, blocks)), "round {round}");
        }
    }
}

#[test]
fn a_turn_of_text_starts_the_count_again_also_when_an_event_keeps_the_thread_going() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.turn(1, vec![call("build", "{}")]);
    story.message("b", "never mind");
    for _ in 1..REFUSED_TURNS_MAX {
        let seen = story.thread.prompt().unwrap().seen;
        story.turn(seen, vec![call("sleep", "{}")]);
    }
    let seen = story.thread.prompt().unwrap().seen;
    story.result(2, 0, "built after all");
    story.turn(seen, vec![say("hm")]);
    let seen = story.thread.prompt().unwrap().seen;
    assert!(!failed(&story.turn(seen, vec![call("sleep", "{}")])));
}

#[test]
fn a_message_starts_the_count_again() {
    let mut story = Story::new();
    story.message("a", "hello");
    for _ in 1..REFUSED_TURNS_MAX {
        let seen = story.thread.prompt().unwrap().seen;
        story.turn(seen, vec![call("sleep", "{}")]);
    }
    let seen = story.thread.prompt().unwrap().seen;
    story.failure(seen);
    story.message("b", "try something else");
    let seen = story.thread.prompt().unwrap().seen;
    assert!(!failed(&story.turn(seen, vec![call("sleep", "{}")])));
}

/// A thread whose queue is full while the prompt of record 1 is under way.
fn full() -> Thread {
    let mut thread = Thread::new(crate::story::THREAD);
    for number in 1..=PENDING_MAX as Number {
        let taken = apply(&mut thread, message(&number.to_string(), "hello"));
        assert_eq!(taken, Outcome::Taken(number));
    }
    thread
}

fn apply(thread: &mut Thread, record: Record) -> Outcome {
    thread.apply(crate::story::committed(thread.last() + 1, record)).outcome
}

#[test]
fn a_full_queue_refuses_messages_until_a_turn_has_seen_them() {
    let mut thread = full();
    let full = Outcome::Refused(Refusal::QueueFull);
    assert_eq!(apply(&mut thread, message("one more", "hello")), full);
    assert_eq!(apply(&mut thread, message("1", "hello")), Outcome::Duplicate(1), "what is there needs no room");
    assert_eq!(thread.standing().pending, PENDING_MAX);
    apply(&mut thread, crate::story::completion(1, vec![say("one")], slackwater_core::record::End::Cut));
    let number = thread.last() + 1;
    assert_eq!(apply(&mut thread, message("one more", "hello")), Outcome::Taken(number), "a refused id is not used up");
}

#[test]
fn a_refused_message_does_not_ask_again_what_is_being_asked() {
    let mut thread = full();
    apply(&mut thread, message("one more", "hello"));
    apply(&mut thread, crate::story::failure(PENDING_MAX as Number));
    assert!(thread.prompt().is_none());
}

/// Found by review: a thread whose queue was full and that did not think refused every message for ever.
#[test]
fn a_thread_at_rest_with_a_full_queue_tries_again() {
    let mut thread = full();
    let stop = Record::Stop(slackwater_core::record::Stop {
        id: slackwater_core::id::InputId("s".into()),
        origin: crate::story::person(),
    });
    apply(&mut thread, stop);
    assert!(thread.prompt().is_none());
    assert_eq!(apply(&mut thread, message("one more", "hello")), Outcome::Refused(Refusal::QueueFull));
    assert_eq!(thread.prompt().unwrap().history.len(), PENDING_MAX);
    // The prompt that the stop has cut brings all of them into the history: then there is nothing left to ask.
    apply(&mut thread, crate::story::completion(PENDING_MAX as Number, vec![], slackwater_core::record::End::Cut));
    assert!(thread.prompt().is_none());
    let number = thread.last() + 1;
    assert_eq!(apply(&mut thread, message("one more", "hello")), Outcome::Taken(number));
}

/// Found by review: what a failed prompt had held stayed in the queue, so a provider that was down for long filled it.
#[test]
fn failures_do_not_fill_the_queue() {
    let mut story = Story::new();
    for round in 0..20 {
        story.message(&format!("m{round}"), "hello");
        let seen = story.thread.prompt().unwrap().seen;
        story.failure(seen);
        assert_eq!(story.thread.standing().pending, 0);
    }
    assert_eq!(story.history().len(), 20);
}
