//! The rules of sleeping (behaviour, section 6).

use crate::story::{Story, asked, call, say};
use slackwater_core::effect::{Due, Effect, Shown, Wait};
use slackwater_core::id::CallId;
use slackwater_core::thread::State;

const CALL: CallId = CallId { number: 2, index: 0 };
const WALL: &str = r#"{"date":"2031-05-04","time":"09:00","timezone":"Europe/Berlin"}"#;

/// A thread that has called this, as 2.0.
fn called(name: &str, arguments: &str) -> Story {
    let mut story = Story::new();
    story.message("a", "wait");
    story.turn(1, vec![call(name, arguments)]);
    story
}

#[test]
fn a_sleep_is_counted_from_its_record_and_arms_one_timer() {
    let mut story = Story::new();
    story.message("a", "wait");
    let applied = story.turn(1, vec![call("sleep", r#"{"seconds":1.5,"reason":"tea"}"#)]);
    let arm = Effect::Arm { thread: crate::story::THREAD, call: CALL, due: Due::At(3_500) };
    assert!(applied.effects.contains(&arm));
    assert_eq!(asked(&applied), ["arm 2.0"]);
    assert_eq!(story.thread.owed(), [arm]);
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 3_500)]);
    assert_eq!(story.thread.standing().state, State::Sleeping);
    assert_eq!(story.prompt(), None);
}

#[test]
fn a_timer_wakes_the_sleeper() {
    let mut story = called("sleep", r#"{"seconds":1}"#);
    assert_eq!(asked(&story.fired(2, 0)), [""; 0]);
    assert_eq!(story.prompt().unwrap(), ["user: wait", "turn: [sleep]", "built in 2.0: The time has come."]);
}

#[test]
fn a_message_wakes_the_sleeper_and_its_timer_is_forgotten() {
    let mut story = called("sleep", r#"{"seconds":1}"#);
    assert_eq!(asked(&story.message("b", "wake up")), ["disarm 2.0"]);
    let woken = ["user: wait", "turn: [sleep]", "built in 2.0: Woken by a new input.", "user: wake up"];
    assert_eq!(story.prompt().unwrap(), woken);
    assert_eq!(story.fired(2, 0).effects, [], "a timer that fired meanwhile changes nothing");
    assert_eq!(story.prompt().unwrap(), woken);
}

#[test]
fn a_stop_ends_a_sleep() {
    let mut story = called("sleep", r#"{"seconds":1}"#);
    assert_eq!(asked(&story.stop("s")), ["disarm 2.0"]);
    assert_eq!(story.prompt(), None);
    assert_eq!(story.thread.rest().unwrap().timers, []);
}

#[test]
fn a_thread_that_waits_for_anything_is_woken_by_a_late_result() {
    let mut story = called("build", "{}");
    story.message("b", "never mind");
    story.turn(3, vec![call("sleep_until_event_or_input", "")]);
    assert_eq!(
        story.thread.standing().waits,
        [Wait::Input { call: Some(CallId { number: 4, index: 0 }), since_ms: 4_000 }]
    );
    assert!(story.thread.rest().is_some());
    assert_eq!(story.fired(4, 0).effects, [], "it has no timer");
    story.result(2, 0, "built after all");
    assert_eq!(
        story.prompt().unwrap()[4..],
        [
            "turn: [sleep_until_event_or_input]",
            "built in 4.0: Woken by a new input.",
            "event of build-id: built after all"
        ]
    );
}

/// Found by review: an event that came while the model decided to sleep did not wake it, so it slept beside its event.
#[test]
fn nobody_falls_asleep_beside_an_input_that_came_first() {
    for (name, arguments) in
        [("sleep_until_event_or_input", "{}"), ("sleep", r#"{"seconds":9}"#), ("sleep_until", WALL)]
    {
        let mut story = called("build", "{}");
        story.message("b", "never mind, wait");
        story.result(2, 0, "built after all");
        let applied = story.turn(3, vec![call(name, arguments)]);
        assert_eq!(asked(&applied), [""; 0], "no timer is armed for a sleep that is over");
        assert_eq!(
            story.prompt().unwrap()[5..],
            ["built in 5.0: Woken by a new input.", "event of build-id: built after all"]
        );
    }
}

/// The same with the input deferred by a working call beside the sleep.
#[test]
fn an_input_deferred_by_a_working_call_wakes_the_sleep_that_is_left() {
    let mut story = called("build", "{}");
    story.message("b", "test, and wait");
    story.turn(3, vec![call("test", "{}"), call("sleep", r#"{"seconds":9}"#)]);
    story.result(2, 0, "built after all");
    assert_eq!(story.prompt(), None);
    assert_eq!(asked(&story.result(4, 0, "green")), ["disarm 4.1"]);
    assert_eq!(
        story.prompt().unwrap()[5..],
        ["tool 4.0: green", "built in 4.1: Woken by a new input.", "event of build-id: built after all"]
    );
}

#[test]
fn a_sleep_beside_a_working_call_ends_with_its_timer_and_waits_for_the_call() {
    let mut story = Story::new();
    story.message("a", "wait");
    story.turn(1, vec![call("build", "{}"), call("sleep", r#"{"seconds":9}"#)]);
    story.fired(2, 1);
    assert_eq!(story.prompt(), None);
    assert_eq!(story.thread.standing().state, State::Working);
    story.result(2, 0, "built");
    assert!(story.prompt().is_some());
}

#[test]
fn a_time_on_a_wall_is_armed_by_the_timer() {
    let mut story = called("sleep_until", WALL);
    let wall = Due::Wall { date: "2031-05-04".into(), time: "09:00".into(), timezone: "Europe/Berlin".into() };
    assert_eq!(story.thread.owed(), [Effect::Arm { thread: crate::story::THREAD, call: CALL, due: wall }]);
    assert!(story.thread.rest().is_none(), "until the timer has said which moment that is");
    assert_eq!(story.thread.standing().waits, [Wait::Timer { call: CALL, since_ms: 2_000, due_ms: None }]);
    let applied = story.armed(2, 0, 1_935_644_400_000);
    assert_eq!(asked(&applied), [""; 0]);
    let [Effect::Tell(told)] = &applied.effects[..] else { panic!("clients learn the moment: {applied:?}") };
    let wait = Wait::Timer { call: CALL, since_ms: 2_000, due_ms: Some(1_935_644_400_000) };
    assert_eq!(told.shown, Shown::Waiting(vec![wait]));
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 1_935_644_400_000)]);
    assert_eq!(story.armed(2, 0, 5).effects, [], "the first word counts");
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 1_935_644_400_000)]);
    story.fired(2, 0);
    assert!(story.prompt().is_some());
}

#[test]
fn a_wall_time_that_does_not_exist_is_an_error_result() {
    let mut story = called("sleep_until", WALL);
    story.runtime_refusal(2, 0, "There is no such time.");
    assert_eq!(story.prompt().unwrap()[2], "refusal 2.0: There is no such time.");
}

#[test]
fn a_timer_may_answer_a_sleep_itself() {
    let mut story = called("sleep_until", WALL);
    story.result(2, 0, "That time is past.");
    assert_eq!(story.prompt().unwrap()[2], "built in 2.0: That time is past.");
}

#[test]
fn only_a_sleep_that_waits_for_its_moment_is_armed() {
    let mut story = called("sleep", r#"{"seconds":1}"#);
    story.armed(2, 0, 9);
    story.armed(9, 9, 9);
    assert_eq!(story.thread.rest().unwrap().timers, [(CALL, 3_000)]);
}

#[test]
fn no_tool_takes_over_a_sleep() {
    let mut story = called("sleep", r#"{"seconds":1}"#);
    assert_eq!(story.accepted(2, 0).effects, []);
    assert_eq!(story.thread.standing().state, State::Sleeping);
    story.fired(2, 0);
    assert!(story.prompt().is_some());
}

#[test]
fn bad_arguments_are_refused_with_what_to_do() {
    for (name, arguments, why) in [
        ("sleep", "{}", "missing field `seconds`"),
        ("sleep", r#"{"seconds":"9"}"#, "a number of 0 or more"),
        ("sleep", r#"{"seconds":-1}"#, "Cannot sleep for -1 seconds: give a number from 0 to 3153600000."),
        ("sleep", r#"{"seconds":1e300}"#, "give a number from 0"),
        ("sleep", "not json", "The arguments of sleep are wrong"),
        ("sleep_until", r#"{"date":"2031-05-04"}"#, "missing field `time`"),
        ("sleep_until_event_or_input", "not json", "It takes none"),
    ] {
        let story = called(name, arguments);
        let answer = &story.prompt().unwrap()[2];
        assert!(answer.starts_with("refusal 2.0: ") && answer.contains(why), "{name}({arguments}): {answer}");
    }
}

#[test]
fn no_time_at_all_is_over_at_once() {
    let story = called("sleep", r#"{"seconds":0}"#);
    assert_eq!(story.prompt().unwrap()[2], "built in 2.0: No time to sleep; go on.");
}

/// Found by review: the moment overflowed when the clock was near its end.
#[test]
fn a_moment_after_the_end_of_time_is_its_end() {
    let mut thread = slackwater_core::thread::Thread::new(crate::story::THREAD);
    let mut story = Story::new();
    story.message("a", "wait");
    story.turn(1, vec![call("sleep", r#"{"seconds":1}"#), say("")]);
    for mut committed in story.records.clone() {
        committed.arrival.at_ms = u64::MAX;
        thread.apply(committed);
    }
    assert_eq!(thread.rest().unwrap().timers, [(CALL, u64::MAX)]);
}
