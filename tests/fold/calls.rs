//! The rules of calls, their results, interruptions and stops (behaviour, sections 1, 3 and 4).

use crate::story::{Story, asked, call, say};
use slackwater_core::effect::{Effect, Outcome, Refusal, Shown, Wait};
use slackwater_core::history::{Event, Item};
use slackwater_core::id::CallId;
use slackwater_core::record::Content;
use slackwater_core::thread::State;

const SUBSTITUTE: &str =
    "Interrupted by a new message; the tool was told to cancel. If its result still comes, it arrives as an event.";

/// A thread that waits for the call 2.0 of a tool.
fn working() -> Story {
    let mut story = Story::new();
    story.message("a", "build it");
    story.turn(1, vec![call("build", r#"{"target":"all"}"#)]);
    story
}

#[test]
fn a_call_is_dispatched_once_and_waits() {
    let mut story = Story::new();
    story.message("a", "build it");
    let applied = story.turn(1, vec![call("build", "{}")]);
    assert_eq!(asked(&applied), ["dispatch 2.0 build"]);
    assert!(story.thread.rest().is_none(), "until the tool has taken it over");
    assert_eq!(asked(&story.accepted(2, 0)), [""; 0]);
    assert!(story.thread.rest().is_some());
    let standing = story.thread.standing();
    assert_eq!(standing.state, State::Working);
    let id = CallId { number: 2, index: 0 };
    assert_eq!(
        standing.waits,
        [Wait::Call { call: id, name: "build".into(), since_ms: 2_000, accepted: true, due_ms: None }]
    );
    story.result(2, 0, "built");
    assert_eq!(story.prompt().unwrap(), ["user: build it", "turn: [build]", "tool 2.0: built"]);
}

#[test]
fn a_tool_that_says_it_failed_is_answered_so() {
    let mut story = working();
    story.tool_failure(2, 0, "no compiler");
    assert_eq!(story.prompt().unwrap()[2], "failed tool 2.0: no compiler");
}

#[test]
fn a_result_for_no_call_is_refused() {
    let mut story = working();
    let before = story.thread.standing().waits;
    for (number, index) in [(2, 1), (1, 0), (9, 0), (0, 0), (u64::MAX, u16::MAX)] {
        let applied = story.result(number, index, "?");
        assert_eq!(applied.outcome, Outcome::Refused(Refusal::NoSuchCall));
        assert_eq!(applied.effects, []);
    }
    assert_eq!(story.thread.standing().waits, before);
}

#[test]
fn a_message_interrupts_open_calls() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.turn(1, vec![call("build", "{}"), call("test", "{}")]);
    story.accepted(2, 0);
    let applied = story.message("b", "never mind");
    assert_eq!(asked(&applied), ["cancel 2.0 build", "cancel 2.1 test"]);
    assert_eq!(
        story.prompt().unwrap(),
        [
            "user: build it".to_owned(),
            "turn: [build] [test]".to_owned(),
            format!("interrupted 2.0: {SUBSTITUTE}"),
            format!("interrupted 2.1: {SUBSTITUTE}"),
            "user: never mind".to_owned(),
        ]
    );
    assert_eq!(story.thread.owed(), [], "nobody asks for a call again that nobody waits for");
}

#[test]
fn a_real_result_after_its_substitute_is_an_event_that_names_the_call() {
    let mut story = working();
    story.message("b", "never mind");
    story.turn(3, vec![say("fine")]);
    assert_eq!(story.prompt(), None);
    let applied = story.result(2, 0, "built after all");
    assert_eq!(applied.outcome, Outcome::Taken(5));
    let event = Event {
        id: CallId { number: 5, index: 0 },
        original_tool_name: "build".into(),
        original_tool_call_id: "build-id".into(),
        original_args: r#"{"target":"all"}"#.into(),
        content: vec![Content::Text("built after all".into())],
    };
    let Effect::Tell(told) = &applied.effects[0] else { panic!("clients are told first: {applied:?}") };
    let Shown::Event(item) = &told.shown else { panic!("of the event: {told:?}") };
    assert_eq!(**item, Item::Event(event));
    assert_eq!(story.prompt().unwrap()[4..], ["turn: fine", "event of build-id: built after all"]);
    assert_eq!(story.result(2, 0, "and again").outcome, Outcome::Duplicate(5));
}

#[test]
fn a_late_result_is_deferred_while_another_call_works() {
    let mut story = working();
    story.message("b", "test instead");
    story.turn(3, vec![call("test", "{}")]);
    let applied = story.result(2, 0, "built after all");
    assert_eq!(asked(&applied), [""; 0]);
    assert_eq!(story.prompt(), None);
    assert_eq!(story.thread.standing().pending, 1);
    story.result(4, 0, "green");
    assert_eq!(story.prompt().unwrap()[5..], ["tool 4.0: green", "event of build-id: built after all"]);
}

#[test]
fn a_late_result_after_a_stop_does_not_set_the_thread_going() {
    let mut story = working();
    assert_eq!(asked(&story.stop("s")), ["cancel 2.0 build"]);
    assert_eq!(story.result(2, 0, "built after all").outcome, Outcome::Taken(4));
    assert_eq!(story.prompt(), None);
    assert!(story.thread.rest().is_some());
    story.message("b", "and?");
    assert_eq!(
        story.prompt().unwrap()[2..],
        ["cancelled 2.0: Cancelled: the user stopped this thread.", "event of build-id: built after all", "user: and?"]
    );
}

/// Found by review: only calls that the stop itself had cancelled were quiet, so one interrupted before it woke the thread.
#[test]
fn a_call_interrupted_before_a_stop_does_not_set_the_thread_going_either() {
    let mut story = working();
    story.message("b", "never mind");
    story.stop("s");
    story.cut_turn(3, vec![]);
    story.result(2, 0, "built after all");
    assert_eq!(story.prompt(), None);
    story.message("c", "go on");
    assert_eq!(story.prompt().unwrap()[4..], ["event of build-id: built after all", "user: go on"]);
}

#[test]
fn a_late_result_after_a_stop_and_new_work_wakes_again() {
    let mut story = Story::new();
    story.message("a", "hello");
    story.stop("s");
    story.cut_turn(1, vec![]);
    story.message("b", "build it");
    story.turn(4, vec![call("build", "{}")]);
    story.message("c", "never mind");
    story.turn(6, vec![say("fine")]);
    story.result(5, 0, "built after all");
    assert!(story.prompt().is_some());
}

#[test]
fn calls_of_a_turn_that_raced_with_a_message_are_not_started() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.message("b", "no, wait");
    let applied = story.turn(1, vec![call("build", "{}"), call("sleep", r#"{"seconds":9}"#)]);
    assert_eq!(asked(&applied), [""; 0]);
    let not_started = "Not started: interrupted by a new message. Call again if it is still wanted.";
    assert_eq!(
        story.prompt().unwrap(),
        [
            "user: build it".to_owned(),
            "turn: [build] [sleep]".to_owned(),
            format!("interrupted 3.0: {not_started}"),
            format!("interrupted 3.1: {not_started}"),
            "user: no, wait".to_owned(),
        ]
    );
    assert_eq!(story.result(3, 0, "?").outcome, Outcome::Refused(Refusal::NoSuchCall), "no tool was asked");
}

#[test]
fn calls_of_a_turn_that_raced_with_a_stop_are_not_started_and_start_nothing() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.stop("s");
    assert!(story.thread.interrupts(1));
    let applied = story.turn(1, vec![call("build", "{}")]);
    assert_eq!(asked(&applied), [""; 0]);
    assert_eq!(story.prompt(), None);
    assert_eq!(story.history()[2], "cancelled 3.0: Not started: the user stopped this thread.");
    assert_eq!(story.thread.standing().state, State::Idle);
}

#[test]
fn a_message_between_a_stop_and_the_raced_turn_is_asked() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.stop("s");
    story.message("b", "do this");
    story.turn(1, vec![call("build", "{}")]);
    assert_eq!(story.prompt().unwrap()[3..], ["user: do this"]);
}

#[test]
fn a_stopped_thread_stays_usable() {
    let mut story = Story::new();
    story.message("a", "one");
    let applied = story.stop("s");
    assert_eq!(applied.outcome, Outcome::Taken(2));
    assert_eq!(story.prompt(), None);
    story.cut_turn(1, vec![say("I was ab")]);
    assert_eq!(story.prompt(), None);
    story.message("b", "two");
    assert_eq!(story.prompt().unwrap(), ["user: one", "cut turn: I was ab", "user: two"]);
}

#[test]
fn a_stop_before_the_model_was_asked_keeps_the_message() {
    let mut story = Story::new();
    story.message("a", "one");
    story.stop("s");
    assert!(story.thread.rest().is_some());
    story.message("b", "two");
    assert_eq!(story.prompt().unwrap(), ["user: one", "user: two"]);
}

#[test]
fn duplicates_change_nothing() {
    let mut story = working();
    let standing = |story: &Story| (story.thread.standing().waits, story.thread.prompt(), story.history());
    let before = standing(&story);
    let applied = story.message("a", "build it");
    assert_eq!((applied.outcome, applied.effects), (Outcome::Duplicate(1), vec![]));
    assert_eq!(standing(&story), before, "a message that comes again does not interrupt");
    story.result(2, 0, "built");
    assert_eq!(story.result(2, 0, "built twice").outcome, Outcome::Duplicate(4));
    story.turn(5, vec![say("done")]);
    story.stop("s");
    let before = standing(&story);
    let applied = story.stop("s");
    assert_eq!((applied.outcome, applied.effects), (Outcome::Duplicate(7), vec![]));
    assert_eq!(story.message("s", "the id of the stop").outcome, Outcome::Duplicate(7));
    assert_eq!(standing(&story), before);
}

#[test]
fn what_a_tool_says_of_a_call_that_is_over_changes_nothing() {
    let mut story = working();
    story.result(2, 0, "built");
    let before = story.prompt();
    assert_eq!(story.accepted(2, 0).effects, []);
    assert_eq!(story.accepted(7, 7).effects, []);
    assert_eq!(story.prompt(), before);
}

/// After everything that clients are shown, either the model is asked or they know what the thread waits for.
#[test]
fn clients_are_told_what_a_thread_waits_for() {
    let mut story = working();
    let last = |effects: &[Effect]| match effects.iter().rev().find(|e| matches!(e, Effect::Tell(_))) {
        Some(Effect::Tell(output)) => matches!(output.shown, Shown::Waiting(_)),
        _ => false,
    };
    assert!(last(&story.stop("s").effects));
    assert!(last(&story.result(2, 0, "late").effects));
    assert!(!last(&story.message("b", "go on").effects));
    assert!(last(&story.turn(5, vec![say("done")]).effects));
    let Wait::Input { call: None, since_ms: 6_000 } = story.thread.standing().waits[0] else {
        panic!("idle since 6 s")
    };
    story.fired(2, 0);
    let Wait::Input { call: None, since_ms: 6_000 } = story.thread.standing().waits[0] else { panic!("still") };
}
