//! The simulator explores what it says, finds what is planted, and tells it shortly.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::choice::{Choices, next};
use super::explore::{Life, live};
use super::{Asked, Failure, Later, Sim};
use crate::model::Reply;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Calls the tool once, and says what it said.
fn caller(asked: &Asked<'_>) -> Reply {
    match asked.result_of("work") {
        Some(result) => Reply::text(result),
        None if asked.turn() == 1 => Reply::silence().call("work", &json!({})),
        None => Reply::silence(),
    }
}

fn working(later: Later) -> Sim {
    Sim::new().model(caller).tool("work", move |_: Value| later.clone()).send("a", "go").duplicates(0).together(1)
}

/// A service that is asked twice for one call when a crash comes before it is known to have taken it over.
fn twice() -> Sim {
    working(Later::after_ms(500, "done")).check(|end| assert_eq!(end.count("work"), 1, "work was done twice"))
}

fn all_lives(sim: &Sim, with_story: bool) -> Vec<Life> {
    let mut lives = Vec::new();
    let mut list = Some(Vec::new());
    while let Some(written) = list {
        let life = live(sim, Choices::written(written), with_story);
        list = next(life.log.choices.taken.clone());
        lives.push(life);
    }
    lives
}

#[test]
fn without_faults_a_line_has_one_order() {
    let sim = Sim::new().send("a", "hello").crashes(0).duplicates(0);
    let report = sim.check(|end| assert_eq!(end.history("a").len(), 2)).exhaustive();
    assert_eq!((report.executions, report.counts.steps), (1, 2));
}

#[test]
fn every_input_and_answer_is_delivered_twice_at_any_later_time() {
    let lines = |sim: Sim| {
        sim.check(|end| assert_eq!(end.history("a"), ["user: go", "model: work({})", "work: done", "model: done"]))
    };
    let once = lines(working(Later::now("done")).crashes(0)).exhaustive();
    assert_eq!((once.executions, once.counts.duplicates), (1, 0));
    let report = lines(working(Later::now("done")).crashes(0).duplicates(1)).exhaustive();
    // The message comes again at one of 4 later places, the call's turn at one of 3, the last turn at one.
    assert_eq!((report.executions, report.counts.duplicates), (9, 8));
}

#[test]
fn a_crash_is_taken_at_every_commit_of_every_kind() {
    let lives = all_lives(&working(Later::now("done")).together(2), true);
    let calm = lives[0].log.counts.commits as usize;
    assert_eq!(calm, 4, "the message, the call, the result, the answer");
    let mut taken = BTreeSet::new();
    for life in &lives {
        assert_eq!(life.end, Ok(()));
        let story = life.log.story.as_deref().unwrap();
        if let Some(crash) = story.iter().position(|line| line.contains("CRASH")) {
            let before = story[..crash].iter().filter(|line| line.contains("committed:")).count();
            taken.insert((before, story[crash].contains("before the sync")));
        }
    }
    let wanted = (0..calm).map(|before| (before, true)).chain((1..=calm).map(|before| (before, false)));
    assert_eq!(taken, wanted.collect());
}

#[test]
fn a_batch_is_torn_at_every_length() {
    let sim = Sim::new().send("a", "one").send("a", "two").send("a", "three").together(3);
    let mut torn = BTreeSet::new();
    for walk in 0..1_000 {
        let life = live(&sim, Choices::walk(1, walk), true);
        assert_eq!(life.end, Ok(()));
        let story = life.log.story.unwrap();
        torn.extend(story.iter().filter_map(|line| Some(line.split_once("during the sync: ")?.1.to_owned())));
    }
    assert_eq!(torn, ["1 of 2 are kept", "1 of 3 are kept", "2 of 3 are kept"].map(str::to_owned).into());
}

#[test]
fn a_tool_that_does_again_what_it_is_asked_again_is_found_and_told_shortly() {
    let failure = twice().try_exhaustive().unwrap_err();
    assert_eq!(failure.promise, "check");
    assert!(failure.how.contains("work was done twice"), "{failure}");
    // No execution at all shows it in fewer steps.
    let failing = all_lives(&twice(), false).into_iter().filter(|life| life.end.is_err());
    assert_eq!(failing.map(|life| life.log.counts.steps).min(), Some(failure.steps.0));
    let text = failure.to_string();
    assert!(text.contains("CRASH") && text.contains(&format!(".replay({:?})", failure.replay)), "{text}");
    assert_eq!(failure.story.iter().filter(|line| line.contains("runs as call 2.0")).count(), 2);
    // The same tool with a memory is right.
    let tool = |_: Value| Later::after_ms(500, "done");
    let report = twice().tool_once("work", tool).exhaustive();
    assert!(report.counts.crashes() > 20);
}

#[test]
fn a_replay_shows_the_same_failure() {
    let failure = twice().try_random(7, 1_000).unwrap_err();
    assert_eq!(failure.seed, Some(7));
    assert!(failure.steps.0 <= failure.steps.1);
    let again = twice().try_replay(&failure.replay).unwrap_err();
    let Failure { promise, how, story, replay, .. } = *again;
    assert_eq!((promise, how, story, replay), (failure.promise, failure.how, failure.story, failure.replay));
    // The calm life fails nothing, and is told.
    let story = twice().replay("");
    assert!(story.iter().any(|line| line.contains("the model answers a: model: done")), "{story:?}");
}

#[test]
fn a_long_walk_is_made_as_short_as_the_shortest() {
    let shortest = twice().try_exhaustive().unwrap_err().steps.0;
    let crowded = || {
        let sim = (0..10).fold(twice(), |sim, n| sim.send("b", format!("noise {n}")).maybe());
        sim.crashes(3).duplicates(3).together(4)
    };
    let failure = (0..50).find_map(|seed| crowded().try_random(seed, 20).err()).unwrap();
    assert!(failure.steps.1 > shortest, "the walk was short by chance");
    assert_eq!(failure.steps.0, shortest, "{failure}");
}

#[test]
fn the_same_seed_is_the_same_report() {
    let report = |seed| working(Later::after_ms(500, "done")).duplicates(1).together(2).random(seed, 100);
    assert_eq!(report(1), report(1));
    assert_ne!(report(1).digest, report(2).digest);
}

#[test]
fn time_jumps_and_what_has_a_time_is_on_time() {
    let sim = Sim::new()
        .model(|asked| match asked.turn() {
            1 => Reply::silence().call("sleep", &json!({ "seconds": 86_400 })),
            _ => Reply::text("awake"),
        })
        .send("a", "sleep for a day");
    let slept = |sim: Sim, until_ms: u64| {
        sim.duplicates(0).check(move |end| assert_eq!((end.now_ms(), end.said("a")), (until_ms, vec!["awake".into()])))
    };
    let report = slept(sim, 86_400_000).exhaustive();
    assert!(report.counts.crashes() > 5, "{report:?}");
    let woken = Sim::new()
        .model(|asked| match asked.last_message().as_deref() {
            Some("wake up") => Reply::text("awake"),
            _ => Reply::silence().call("sleep", &json!({ "seconds": 86_400 })),
        })
        .send("a", "sleep for a day")
        .at_ms(0)
        .then("a", "wake up")
        .at_ms(60_000)
        .crashes(0);
    slept(woken, 60_000).exhaustive();
}

#[test]
fn an_agent_that_never_rests_is_stopped() {
    let restless = Sim::new()
        .model(|_| Reply::silence().call("work", &json!({})))
        .tool("work", |_: Value| "more")
        .send("a", "go")
        .crashes(0)
        .duplicates(0);
    let failure = restless.bounds(super::Bounds { steps_max: 100, ..super::Bounds::default() }).try_exhaustive();
    assert_eq!(failure.unwrap_err().promise, "it_comes_to_rest");
}

#[test]
fn a_model_that_fails_leaves_its_inputs_for_the_next_turn() {
    let report = Sim::new()
        .model(|asked| Reply::text(asked.news().join(" and ")))
        .send("a", "one")
        .then("a", "two")
        .when_quiet()
        .duplicates(0)
        .model_failures(1)
        .check(|end| {
            let said = end.said("a");
            assert!(
                said == ["user: one", "user: two"] || said == ["user: one and user: two"] || said == ["user: one"],
                "{said:?}"
            );
        })
        .exhaustive();
    assert!(report.counts.model_failures > 10);
}

#[test]
fn what_calls_get_that_no_tool_answers() {
    let sim = Sim::new()
        .model(|asked| match asked.turn() {
            1 => Reply::silence().call("nobody", &json!({})).call("add", &json!({ "a": "x" })),
            _ => Reply::silence(),
        })
        .tool("add", |_: u32| "never reached")
        .send("a", "go")
        .crashes(0)
        .duplicates(0)
        .check(|end| {
            let history = end.history("a").join("\n");
            assert!(history.contains("nobody: There is no tool nobody."), "{history}");
            assert!(history.contains("add: The arguments do not fit: invalid type: map"), "{history}");
        });
    sim.exhaustive();
}

#[test]
#[should_panic(expected = "is no execution; copy it from a failure")]
fn what_is_no_execution_is_refused() {
    twice().replay("no!");
}

#[test]
#[should_panic(expected = "5 executions were not all there are")]
fn a_search_that_is_too_large_says_so() {
    let bounds = super::Bounds { executions_max: 5, ..super::Bounds::default() };
    working(Later::now("done")).bounds(bounds).exhaustive();
}
