//! The stories of `examples/`, each run to its end.
//!
//! In: nothing. Out: what they tell. Always: what their heads promise is to be seen in it.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::duplicate_mod, reason = "each story is a program of its own, and has its tool server")]

#[expect(dead_code, reason = "the example's own entry")]
#[path = "../examples/coding_agent.rs"]
mod coding_agent;
#[expect(dead_code, reason = "the example's own entry")]
#[path = "../examples/night_approval.rs"]
mod night_approval;
#[expect(dead_code, reason = "the example's own entry")]
#[path = "../examples/triage_agent.rs"]
mod triage_agent;

use std::cell::RefCell;
use std::time::Duration;

/// The lines of a story, told to its end.
#[derive(Default)]
struct Lines(RefCell<Vec<String>>);

impl Lines {
    fn add(&self, line: String) {
        self.0.borrow_mut().push(line);
    }

    async fn of(self, story: impl AsyncFnOnce(&Self)) -> Vec<String> {
        tokio::time::timeout(Duration::from_secs(60), story(&self)).await.expect("within a minute");
        self.0.into_inner()
    }
}

#[track_caller]
fn place(lines: &[String], says: &str) -> usize {
    let found = lines.iter().position(|line| line.contains(says));
    found.unwrap_or_else(|| panic!("{says:?} is not said: {lines:#?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_coding_agent_goes_on_after_a_restart() {
    let lines = Lines::default().of(async |lines| coding_agent::story(|line| lines.add(line)).await.unwrap()).await;
    let order = [
        "model: I build first. start_build({})",
        "THREADS IN MEMORY WHILE IT WAITS: 0",
        "THE RUNTIME IS STOPPED",
        "started again",
        "start_build: 2 of 212 tests failed",
        "edit: src/lib.rs changed",
        "start_build: 212 tests passed",
        "model: Done: 212 tests passed.",
    ];
    let places: Vec<usize> = order.iter().map(|says| place(&lines, says)).collect();
    assert!(places.is_sorted(), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("user: ")).count(), 1, "nothing twice: {lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_triage_agent_handles_each_pull_request_in_a_child_and_hears_what_matters() {
    let lines = Lines::default().of(async |lines| triage_agent::story(|line| lines.add(line)).await.unwrap()).await;
    let webhooks: Vec<_> = lines.iter().filter(|line| line.starts_with("webhook")).collect();
    assert_eq!(webhooks.len(), 6);
    assert!(
        webhooks.iter().all(|line| line.ends_with("without signature 401 Unauthorized, with it 200 OK")),
        "{lines:#?}"
    );
    assert_eq!(
        lines.iter().filter(|line| line.contains("made the child")).count(),
        5,
        "one delivery, one event: {lines:#?}"
    );
    let heard: String = lines.iter().filter(|line| line.starts_with("  model: For you")).map(String::as_str).collect();
    for pull in ["pull request 2: \"security: check the length\"", "pull request 4: \"security: new key\""] {
        assert!(heard.contains(pull), "{pull}: {lines:#?}");
    }
    for title in ["typo", "new logo", "faster"] {
        assert!(!lines.iter().any(|line| line.contains(title)), "{title} is of no interest: {lines:#?}");
    }
    // The message, the call, its result, a turn; and for each report an event and a turn, unless both came together.
    let items: usize = lines.last().unwrap().split_whitespace().rev().nth(1).unwrap().parse().unwrap();
    assert!(items <= 8, "{lines:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_assistant_waits_for_its_approval_until_morning() {
    let lines = Lines::default().of(async |lines| night_approval::story(|line| lines.add(line)).await.unwrap()).await;
    let order = [
        "23:30  question 3, approval: deploy({\"version\":\"1.2\"})?",
        "23:40  user: Is it out?",
        "23:40  model: Not yet: it waits for an approval.",
        "THE NIGHT: 0 prompts, 0 threads in memory",
        "08:00  program answers question 3: approve",
        "08:00  event of deploy: 1.2 deployed",
        "08:00  model: 1.2 is out.",
    ];
    let places: Vec<usize> = order.iter().map(|says| place(&lines, says)).collect();
    assert!(places.is_sorted(), "{lines:#?}");
    assert_eq!(lines.iter().filter(|line| line.contains("1.2 deployed")).count(), 1, "{lines:#?}");
}
