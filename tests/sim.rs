//! Promises on plain situations, under the simulator.
//!
//! In: small agents. Out: how many executions were explored, asserted, so that a change of what is explored is seen. Always:
//! beside what a test asserts, every execution keeps the promises that the simulator itself checks.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[expect(dead_code, reason = "the example's own entry")]
#[path = "../examples/approval_sim.rs"]
mod approval_sim;

use serde_json::{Value, json};
use slackwater::model::Reply;
use slackwater::sim::{Asked, Later, Report, Sim};
use slackwater_core::effect::Outcome;
use slackwater_core::record::FailureClass;
use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

/// Explores everything, and says how much that was.
fn explored(name: &str, sim: &Sim) -> Report {
    let start = Instant::now();
    let report = sim.exhaustive();
    eprintln!("{name}: {} executions, {:?} in {:?}", report.executions, report.counts, start.elapsed());
    report
}

/// Calls the tool in its first turn, and then says what is new.
fn worker(asked: &Asked<'_>) -> Reply {
    match asked.turn() {
        1 => Reply::silence().call("work", &json!({})),
        _ => Reply::text(asked.news().join("; ")),
    }
}

/// A message comes while a turn of 50 chunks streams, at every chunk, with and without a crash.
#[test]
fn a_message_during_a_completion_is_in_the_next_prompt() {
    let sim = |crashes| {
        Sim::new()
            .model(|asked| match asked.news().iter().any(|line| line == "user: no, the other one") {
                true => Reply::text("The other one, then."),
                false => Reply::chunks((0..50).map(|n| format!("{n} "))),
            })
            .send("a", "tell me about the first one")
            .then("a", "no, the other one")
            .duplicates(0)
            .together(1)
            .crashes(crashes)
            .check(|end| {
                let prompts = end.prompts("a");
                let steered = |prompt: &Vec<String>| prompt.iter().any(|line| line == "user: no, the other one");
                let first = prompts.iter().position(steered).expect("the message came before the model");
                assert!(prompts[first..].iter().all(steered), "and stays there");
                assert_eq!(end.said("a").last().map(String::as_str), Some("The other one, then."));
            })
    };
    let report = explored("a message at every chunk", &sim(0));
    // After each of 0 to 50 chunks, when the turn has just ended, and after it.
    assert_eq!((report.executions, report.counts.cuts), (53, 51));
    let report = explored("a message at every chunk, and a crash", &sim(1));
    assert_eq!((report.executions, report.counts.crashes()), (596, 543));
}

/// One call is open; 100 inputs come that have nothing to do with it, half of them to its own thread, some of them twice. The
/// thread's own interrupt the call and do not start it again.
#[test]
fn what_is_unrelated_does_not_repeat_a_call() {
    let worked = Rc::new(Cell::new(0));
    let sum = worked.clone();
    let sim = Sim::new()
        .model(|asked| {
            match asked.lines().contains(&"user: go".to_owned())
                && !asked.lines().iter().any(|line| line.contains("work("))
            {
                true => Reply::silence().call("work", &json!({})),
                false => Reply::silence(),
            }
        })
        .tool("work", |_: Value| Later::after_ms(1_000, "done"))
        .send("a", "go");
    let noise = |sim: Sim, to: &'static str| (0..50).fold(sim, |sim, n| sim.send(to, format!("noise {n}")));
    let sim = noise(noise(sim, "a"), "b").crashes(0).duplicates(5).together(4).check(move |end| {
        assert!(end.count("work") <= 1, "the call was repeated");
        sum.set(sum.get() + end.count("work"));
    });
    let start = Instant::now();
    let report = sim.random(12, 100);
    eprintln!("100 unrelated inputs: {} executions, {:?} in {:?}", report.executions, report.counts, start.elapsed());
    assert_eq!((report.executions, worked.get()), (100, 37));
    assert!(report.counts.steps > 100 * 100);
}

/// The process dies twice, at any two points: the turn after a result always comes.
#[test]
fn a_crash_between_a_result_and_the_next_prompt_loses_no_turn() {
    let sim = |later: fn() -> Later| {
        Sim::new()
            .model(worker)
            .tool_once("work", move |_: Value| later())
            .send("a", "go")
            .duplicates(0)
            .together(1)
            .crashes(2)
            .check(|end| {
                assert_eq!(end.said("a"), ["work: done"]);
                assert_eq!(end.count("work"), 1);
            })
    };
    let report = explored("two crashes, a service", &sim(|| Later::after_ms(500, "done")));
    assert_eq!((report.executions, report.counts.crashes()), (337, 651));
    let report = explored("two crashes, a function", &sim(|| Later::now("done")));
    assert_eq!((report.executions, report.counts.crashes()), (145, 274));
}

/// Somebody stops the thread at any time, also while the model reads a result. The result is there afterwards.
#[test]
fn a_stop_loses_no_result() {
    let sim = Sim::new()
        .model(worker)
        .tool_once("work", |_: Value| Later::after_ms(500, "done"))
        .send("a", "go")
        .stop("a")
        .then("a", "and now?")
        .when_quiet()
        .duplicates(0)
        .together(1)
        .check(|end| {
            let last = end.prompts("a").pop().unwrap();
            assert_eq!(last.iter().filter(|line| *line == "user: and now?").count(), 1);
            let has = |what: &str| last.iter().any(|line| line.starts_with(what));
            let result = usize::from(has("work: done")) + usize::from(has("event of work: done"));
            // It worked before the stop, or through it; or it obeyed and has none; or it was never begun.
            let without = has("work: Cancelled") || end.count("work") == 0;
            assert!(result == 1 || result == 0 && without, "{last:?}");
        });
    let report = explored("a stop at any time", &sim);
    assert_eq!((report.executions, report.counts.crashes()), (415, 403));
}

/// Somebody writes while a person is asked to approve. The message and the approval, which comes as an event then, are both
/// before the model at its last turn; or the question was withdrawn.
#[test]
fn a_message_beside_an_open_approval_reaches_the_model_with_it() {
    let sim = Sim::new()
        .model(worker)
        .tool_once("work", |_: Value| Later::after_ms(500, "approved"))
        .send("a", "go")
        .then("a", "and tell the others")
        .duplicates(0)
        .together(2)
        .check(|end| {
            let last = end.prompts("a").pop().unwrap();
            let has = |what: &str| last.iter().any(|line| line == what);
            assert!(has("user: and tell the others"), "{last:?}");
            let without = last.iter().any(|line| line.contains("nterrupted")) || end.count("work") == 0;
            assert!(has("work: approved") || has("event of work: approved") || without, "{last:?}");
        });
    let report = explored("a message beside an open approval", &sim);
    assert_eq!((report.executions, report.counts.crashes()), (5_295, 5_228));
}

/// Two threads know nothing of each other, whatever the order.
#[test]
fn threads_do_not_see_each_other() {
    let sim = Sim::new()
        .model(|asked| Reply::text(asked.lines().join("; ")))
        .send("a", "one")
        .send("b", "two")
        .duplicates(0)
        .together(2)
        .check(|end| {
            assert_eq!(end.said("a"), ["user: one"]);
            assert_eq!(end.said("b"), ["user: two"]);
        });
    let report = explored("two threads", &sim);
    assert_eq!((report.executions, report.counts.crashes()), (10_370, 10_348));
}

/// The second delivery of an input is answered with the number of the first.
#[test]
fn same_id_once() {
    let sim = Sim::new().send("a", "hello").check(|end| {
        assert_eq!(end.history("a").len(), 2);
        assert!(matches!(end.outcome(0), Some(Outcome::Taken(1) | Outcome::Duplicate(1))));
    });
    let report = explored("one message twice, and a crash", &sim);
    assert_eq!((report.executions, report.counts.duplicates), (146, 134));
}

/// A model that calls again what was interrupted makes the tool work twice: a new call is new work.
#[test]
fn a_model_that_calls_again_after_an_interruption_is_found() {
    let eager = |asked: &Asked<'_>| match asked.lines().iter().any(|line| line == "work: done") {
        true => Reply::text("done"),
        false => Reply::silence().call("work", &json!({})),
    };
    let failure = Sim::new()
        .model(eager)
        .tool_once("work", |_: Value| Later::after_ms(500, "done"))
        .send("a", "go")
        .then("a", "how far are you?")
        .duplicates(0)
        .check(|end| assert_eq!(end.count("work"), 1))
        .try_exhaustive()
        .unwrap_err();
    assert_eq!(failure.promise, "check");
    assert_eq!(failure.story.iter().filter(|line| line.contains("runs as call")).count(), 2);
    assert!(!failure.to_string().contains("CRASH"), "it needs none: {failure}");
}

/// The example's agents: the careless one acts on what was said before its question.
#[test]
fn the_approval_example_finds_what_nobody_approved() {
    let failure = approval_sim::asking_in_words().try_exhaustive().unwrap_err();
    assert!(failure.how.contains("nobody had agreed"), "{failure}");
    assert_eq!(failure.steps.0, 4, "{failure}");
    let again = approval_sim::asking_in_words().try_replay(&failure.replay).unwrap_err();
    assert_eq!(again.story, failure.story);
    let report = explored("the agent that has to be approved", &approval_sim::asking_for_approval());
    assert_eq!((report.executions, report.counts.crashes()), (1_791, 1_759));
}

/// Two tools ask; they are answered in any order, one of them with a denial, and a call may take too long.
#[test]
fn two_that_ask_get_the_answers_that_were_theirs() {
    let sim = Sim::new()
        .model(|asked| match asked.turn() {
            1 => Reply::silence().call("left", &json!({})).call("right", &json!({})),
            _ => Reply::text(asked.news().join("; ")),
        })
        .tool_once("left", |_: Value| "left is done")
        .tool_once("right", |_: Value| Later::never())
        .needs_approval("left")
        .needs_approval("right")
        .timeout_ms("right", 1_000)
        .send("a", "go")
        .approve("a")
        .approve("a")
        .duplicates(0)
        .together(1)
        .check(|end| {
            assert_eq!((end.count("left"), end.count("right"), end.decisions("a").len()), (1, 1, 2));
            let said = end.said("a").pop().unwrap();
            assert!(said.contains("left: left is done") && said.contains("right: Timed out"), "{said}");
        });
    let report = explored("two that ask", &sim);
    assert_eq!((report.executions, report.counts.crashes()), (3_055, 3_019));
    let denied = Sim::new()
        .model(worker)
        .tool_once("work", |_: Value| "done")
        .needs_approval("work")
        .send("a", "go")
        .deny("a", "not now")
        .when_quiet()
        .check(|end| {
            assert_eq!(end.count("work"), 0);
            assert_eq!(end.said("a"), ["work: Not done: denied by the user, who says: not now"]);
        });
    let report = explored("one that is denied", &denied);
    assert_eq!((report.executions, report.counts.crashes()), (868, 844));
}

/// A prompt that does not fit is summarized in a thread of its own and tried again, whenever the process dies.
#[test]
fn a_prompt_that_does_not_fit_is_tried_again_through_any_crash() {
    let sim = |crashes| {
        Sim::new()
            .model(|asked| {
                let lines = asked.lines();
                match lines.last() {
                    Some(last) if last.starts_with("user: Your history is about to get too long.") => {
                        Reply::text("They work.")
                    }
                    _ if lines[0] == "summary: They work." => Reply::text("done"),
                    _ if lines.len() > 2 => Reply::failure(FailureClass::Overflow, "the prompt is too long"),
                    _ => Reply::silence().call("work", &json!({})),
                }
            })
            .tool("work", |_: Value| Later::now("worked"))
            .send("a", "go ".repeat(100))
            .duplicates(0)
            .together(1)
            .crashes(crashes)
            .check(|end| {
                let history = end.history("a");
                assert_eq!((history.len(), history[0].as_str()), (4, "summary: They work."), "{history:?}");
                assert_eq!((history[1].as_str(), history[3].as_str()), ("model: work({})", "model: done"));
            })
    };
    let report = explored("a prompt that does not fit", &sim(0));
    assert_eq!(report.executions, 10);
    let report = explored("a prompt that does not fit, and a crash", &sim(1));
    assert_eq!((report.executions, report.counts.crashes()), (1_417, 1_407));
}
