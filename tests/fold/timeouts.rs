//! The rules of calls that may take so long and no longer (behaviour, section 4).

use crate::story::{Story, approval, asked, call, choice, replay, say};
use slackwater_core::effect::{Effect, Outcome, Refusal, Wait};
use slackwater_core::id::CallId;
use slackwater_core::port::NEVER;
use slackwater_core::record::{Decision, Record};

const CALL: CallId = CallId { number: 2, index: 0 };
const TIMED_OUT: &str =
    "timed out 2.0: Timed out; the tool was told to cancel. If its result still comes, it arrives as an event.";

/// A thread whose call 2.0 is under way and due at 60 seconds.
fn working() -> Story {
    let mut story = Story::new();
    story.message("a", "build it");
    story.turn(1, vec![call("build", "{}")]);
    assert_eq!(asked(&story.deadline(2, 0, 60_000)), ["arm 2.0"]);
    story.accepted(2, 0);
    story
}

#[test]
fn a_deadline_is_kept_with_the_call() {
    let story = working();
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 60_000), (CALL, NEVER)]);
    assert!(matches!(story.thread.owed()[..], [Effect::Arm { call: CALL, .. }]), "armed again after a crash");
    assert!(matches!(story.thread.standing().waits[..], [Wait::Call { due_ms: Some(60_000), .. }]));
}

#[test]
fn the_first_deadline_counts() {
    let mut story = working();
    // The call was asked again after a crash, and the adapter counts anew.
    let again = story.deadline(2, 0, 90_000);
    assert_eq!(again.effects, []);
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 60_000), (CALL, NEVER)]);
}

#[test]
fn a_call_that_takes_too_long_has_a_substitute_and_its_result_is_an_event() {
    let mut story = working();
    assert_eq!(asked(&story.fired(2, 0)), ["cancel 2.0 build"]);
    assert_eq!(story.prompt().unwrap()[2..], [TIMED_OUT]);
    assert_eq!(story.fired(2, 0).effects, [], "once");
    story.turn(5, vec![say("too slow")]);
    assert_eq!(story.thread.rest().unwrap().timers, []);
    story.result(2, 0, "built at last");
    assert_eq!(story.prompt().unwrap().last().unwrap(), "event of build-id: built at last");
}

#[test]
fn a_result_in_time_takes_the_timer_back() {
    let mut story = working();
    assert_eq!(asked(&story.result(2, 0, "built")), ["disarm 2.0"]);
    // The timer had fired already when it was disarmed.
    let late = story.fired(2, 0);
    assert_eq!((late.outcome, late.effects), (Outcome::Taken(6), vec![]));
    assert_eq!(story.deadline(2, 0, 90_000).effects, []);
    assert_eq!(story.thread.owed(), []);
}

#[test]
fn an_interrupted_call_has_no_deadline_any_more() {
    let mut story = working();
    assert_eq!(asked(&story.message("b", "stop that")), ["disarm 2.0", "cancel 2.0 build"]);
    assert_eq!(story.deadline(2, 0, 90_000).effects, [], "nobody waits for it");
    assert_eq!(story.thread.owed(), []);
}

#[test]
fn a_sleep_has_no_deadline_but_its_own() {
    let mut story = Story::new();
    story.message("a", "sleep");
    story.turn(1, vec![call("sleep", r#"{"seconds":9}"#)]);
    assert_eq!(story.deadline(2, 0, 1).effects, []);
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 11_000)]);
}

#[test]
fn the_time_of_a_call_that_must_be_approved_begins_with_the_approval() {
    let mut story = Story::new();
    story.message("a", "deploy it");
    story.turn(1, vec![call("build", "{}")]);
    story.asks(2, 0, approval());
    assert_eq!(story.deadline(2, 0, 60_000).effects, [], "no tool has it");
    story.decides("yes", 3, Decision::Approve);
    assert_eq!(asked(&story.deadline(2, 0, 60_000)), ["arm 2.0"]);
}

#[test]
fn a_question_of_a_call_that_timed_out_is_withdrawn() {
    let mut story = working();
    story.asks(2, 0, choice("which?"));
    assert_eq!(asked(&story.fired(2, 0)), ["cancel 2.0 build"]);
    let late = story.decides("x", 5, Decision::Choose { index: 0 });
    assert_eq!(late.outcome, Outcome::Refused(Refusal::QuestionWithdrawn));
}

#[test]
fn a_call_that_was_approved_late_times_out_by_an_event() {
    let mut story = Story::new();
    story.message("a", "deploy it");
    story.turn(1, vec![call("build", "{}")]);
    story.asks(2, 0, approval());
    story.message("b", "and hello");
    story.turn(4, vec![say("hello")]);
    story.decides("yes", 3, Decision::Approve);
    story.deadline(2, 0, 60_000);
    assert_eq!(asked(&story.fired(2, 0)), ["cancel 2.0 build"]);
    let prompt = story.prompt().unwrap();
    assert!(prompt.last().unwrap().starts_with("event of build-id: Timed out"), "{prompt:?}");
    story.result(2, 0, "deployed all the same");
    assert_eq!(story.prompt().unwrap().last().unwrap(), "event of build-id: deployed all the same");
}

#[test]
fn a_call_that_its_tool_has_lost_has_a_substitute() {
    let mut story = working();
    let checks = story.thread.checks();
    assert!(matches!(&checks[..], [Effect::Check(dispatch)] if dispatch.call == CALL), "{checks:?}");
    assert_eq!(asked(&story.apply(Record::Lost(CALL))), ["disarm 2.0"], "the tool need not be told");
    let prompt = story.prompt().unwrap();
    assert!(prompt[2].starts_with("lost 2.0: Lost by the tool"), "{prompt:?}");
    assert_eq!(story.apply(Record::Lost(CALL)).effects, []);
    story.result(2, 0, "found it");
    assert_eq!(story.prompt().unwrap().last().unwrap(), "event of build-id: found it");
}

#[test]
fn only_what_a_tool_has_taken_over_can_be_lost() {
    let mut story = Story::new();
    story.message("a", "both");
    story.turn(1, vec![call("build", "{}"), call("deploy", "{}"), call("pick", "{}"), call("nap", "{}")]);
    story.asks(2, 1, approval());
    story.accepted(2, 2);
    story.asks(2, 2, choice("which?"));
    let checks: Vec<String> = story
        .thread
        .checks()
        .into_iter()
        .map(|effect| if let Effect::Check(dispatch) = effect { dispatch.call.to_string() } else { panic!() })
        .collect();
    assert_eq!(checks, ["2.2"], "a tool that waits for a choice has the call");
    for index in [0, 1, 3, 9] {
        assert_eq!(story.apply(Record::Lost(CallId { number: 2, index })).effects, [], "{index}");
    }
    assert!(!story.apply(Record::Lost(CallId { number: 2, index: 2 })).effects.is_empty());
    let late = story.decides("x", 5, Decision::Choose { index: 0 });
    assert_eq!(late.outcome, Outcome::Refused(Refusal::QuestionWithdrawn), "nobody is to choose any more");
}

#[test]
fn a_deadline_survives_a_crash() {
    let story = working();
    let again = replay(&story.records);
    assert_eq!(again.owed(), story.thread.owed());
    assert_eq!(again.rest(), story.thread.rest());
}
