//! The rules of messages, prompts and what models answer (behaviour, sections 1 and 2).

use crate::story::{Story, asked, call, say};
use slackwater_core::effect::{Effect, Outcome, Shown};
use slackwater_core::record::{Block, Sealed};
use slackwater_core::thread::State;

fn reasoning(text: &str) -> Block {
    let sealed = Some(Sealed { provider: "anthropic".into(), json: "{}".into() });
    Block::Reasoning { text: text.into(), sealed }
}

#[test]
fn a_message_asks_for_a_turn() {
    let mut story = Story::new();
    assert_eq!(story.prompt(), None);
    assert_eq!(story.message("a", "hello").outcome, Outcome::Taken(1));
    assert_eq!(story.prompt().unwrap(), ["user: hello"]);
    assert_eq!(story.thread.prompt().unwrap().seen, 1);
    assert_eq!(story.thread.standing().state, State::Thinking);
    assert_eq!(story.turn(1, vec![say("hi")]).outcome, Outcome::Taken(2));
    assert_eq!(story.prompt(), None);
    assert_eq!(story.history(), ["user: hello", "turn: hi"]);
    assert_eq!(story.thread.standing().state, State::Idle);
}

#[test]
fn two_messages_are_one_prompt() {
    let mut story = Story::new();
    story.message("a", "one");
    story.message("b", "two");
    assert_eq!(story.prompt().unwrap(), ["user: one", "user: two"]);
    story.turn(2, vec![say("both")]);
    assert_eq!(story.prompt(), None);
}

#[test]
fn a_message_that_the_prompt_had_not_seen_stands_after_the_turn() {
    let mut story = Story::new();
    story.message("a", "one");
    story.message("b", "two");
    story.turn(1, vec![say("to one")]);
    assert_eq!(story.prompt().unwrap(), ["user: one", "turn: to one", "user: two"]);
    assert_eq!(story.thread.prompt().unwrap().seen, 3);
}

#[test]
fn a_stale_completion_is_ignored() {
    let mut story = Story::new();
    story.message("a", "one");
    story.turn(1, vec![say("first answer")]);
    let before = story.history();
    assert_eq!(story.turn(1, vec![say("second answer")]).outcome, Outcome::Duplicate(2));
    assert_eq!(story.failure(1).outcome, Outcome::Duplicate(2));
    assert_eq!(story.history(), before);
    story.message("b", "two");
    assert_eq!(story.turn(1, vec![say("third answer")]).outcome, Outcome::Duplicate(2));
    assert_eq!(story.prompt().unwrap(), ["user: one", "turn: first answer", "user: two"]);
}

/// Found by review: only answers from before the last one were held for stale, so an answer that nobody had asked for made
/// a turn out of nothing.
#[test]
fn an_answer_that_nobody_asked_for_is_stale() {
    let mut story = Story::new();
    assert_eq!(story.turn(0, vec![say("before all")]).outcome, Outcome::Duplicate(0));
    assert_eq!(story.turn(2, vec![say("from the future")]).outcome, Outcome::Duplicate(0));
    story.message("a", "one");
    assert_eq!(story.turn(2, vec![say("before the question")]).outcome, Outcome::Duplicate(0));
    story.turn(3, vec![call("build", "{}")]);
    assert_eq!(story.turn(5, vec![say("beside an open call")]).outcome, Outcome::Duplicate(5));
    story.result(5, 0, "done");
    assert_eq!(story.turn(6, vec![say("before the result")]).outcome, Outcome::Duplicate(5));
    story.turn(8, vec![say("right")]);
    assert_eq!(story.turn(9, vec![say("again")]).outcome, Outcome::Duplicate(9));
    assert_eq!(story.history(), ["user: one", "turn: [build]", "tool 5.0: done", "turn: right"]);
}

#[test]
fn a_cut_completion_keeps_its_text_and_nothing_else() {
    let mut story = Story::new();
    story.message("a", "one");
    story.message("b", "wait");
    assert!(story.thread.interrupts(1));
    let applied = story.cut_turn(1, vec![reasoning("hm"), say("I was ab"), call("build", "{")]);
    assert_eq!(asked(&applied), [""; 0]);
    assert_eq!(story.prompt().unwrap(), ["user: one", "cut turn: I was ab", "user: wait"]);
}

#[test]
fn a_completion_cut_before_it_said_anything_leaves_no_turn() {
    let mut story = Story::new();
    story.message("a", "one");
    story.message("b", "wait");
    story.cut_turn(1, vec![say("")]);
    assert_eq!(story.prompt().unwrap(), ["user: one", "user: wait"]);
}

#[test]
fn reasoning_is_kept_with_the_turn() {
    let mut story = Story::new();
    story.message("a", "one");
    story.turn(1, vec![reasoning("hm"), say("yes")]);
    assert_eq!(story.history(), ["user: one", "turn: (hm) yes"]);
}

#[test]
fn an_empty_completion_ends_the_turn_and_leaves_no_trace_in_the_history() {
    let mut story = Story::new();
    story.message("a", "one");
    let applied = story.turn(1, vec![]);
    assert!(applied.effects.iter().any(|e| matches!(e, Effect::Tell(o) if matches!(o.shown, Shown::Turn { .. }))));
    assert_eq!(story.prompt(), None);
    assert_eq!(story.history(), ["user: one"]);
    assert!(story.thread.rest().is_some());
}

#[test]
fn text_and_calls_of_one_turn_are_kept_together() {
    let mut story = Story::new();
    story.message("a", "one");
    let applied = story.turn(1, vec![say("I build"), call("build", "{}"), say("and test"), call("test", "{}")]);
    assert_eq!(asked(&applied), ["dispatch 2.0 build", "dispatch 2.1 test"]);
    story.result(2, 1, "green");
    assert_eq!(story.prompt(), None, "the next prompt waits for every call");
    story.result(2, 0, "built");
    assert_eq!(
        story.prompt().unwrap(),
        ["user: one", "turn: I build [build] and test [test]", "tool 2.1: green", "tool 2.0: built"]
    );
}

#[test]
fn a_failure_keeps_the_inputs_and_the_next_input_tries_again() {
    let mut story = Story::new();
    story.message("a", "one");
    story.failure(1);
    assert_eq!(story.prompt(), None);
    assert_eq!(story.thread.standing().state, State::Idle);
    assert!(story.thread.rest().is_some());
    story.message("b", "two");
    assert_eq!(story.prompt().unwrap(), ["user: one", "user: two"]);
    story.failure(3);
    story.message("c", "three");
    story.turn(5, vec![say("at last")]);
    assert_eq!(story.history(), ["user: one", "user: two", "user: three", "turn: at last"]);
}

#[test]
fn a_failure_keeps_results_too() {
    let mut story = Story::new();
    story.message("a", "one");
    story.turn(1, vec![call("build", "{}")]);
    story.result(2, 0, "built");
    story.failure(3);
    assert_eq!(story.prompt(), None);
    story.message("b", "go on");
    assert_eq!(story.prompt().unwrap(), ["user: one", "turn: [build]", "tool 2.0: built", "user: go on"]);
}

#[test]
fn a_message_during_a_prompt_that_fails_is_asked_at_once() {
    let mut story = Story::new();
    story.message("a", "one");
    story.message("b", "two");
    story.failure(1);
    assert_eq!(story.prompt().unwrap(), ["user: one", "user: two"]);
}

#[test]
fn a_message_cuts_a_completion_under_way_and_other_inputs_do_not() {
    let mut story = Story::new();
    story.message("a", "one");
    story.turn(1, vec![call("build", "{}")]);
    story.message("b", "two");
    assert!(!story.thread.interrupts(3), "a prompt that has seen the message");
    story.result(2, 0, "late");
    assert!(!story.thread.interrupts(3), "a late result waits for the next turn");
    story.message("c", "three");
    assert!(story.thread.interrupts(3));
    story.stop("s");
    assert!(story.thread.interrupts(5));
}

#[test]
fn the_first_name_of_a_thread_is_kept() {
    let mut story = Story::new();
    for (id, name) in [("a", None), ("b", Some("release")), ("c", Some("other"))] {
        let mut record = crate::story::message(id, "hello");
        if let slackwater_core::record::Record::Message(message) = &mut record {
            message.thread_name = name.map(str::to_owned);
        }
        story.apply(record);
    }
    assert_eq!(story.thread.standing().name.as_deref(), Some("release"));
}
