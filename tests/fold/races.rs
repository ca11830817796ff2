//! Races: a summary against messages and a tool's result, in every order, with the process dying at each step.
//!
//! In: what happens at the same time. Out: what is true at the end, whatever the order. Always: each source keeps its own order;
//! a prompt that is under way is answered for what it had seen; after a death each thread asks again for what it is owed.

use crate::compact::crossed;
use crate::story::{call, completion, message, result, say};
use crate::tree::{ROOT, Tree};
use slackwater_core::effect::Shown;
use slackwater_core::id::{CallId, Number, ThreadId};
use slackwater_core::record::{End, Origin, Proof, Record};
use slackwater_core::thread::State;
use std::collections::BTreeMap;

/// Something that can happen next.
#[derive(Clone, Copy, Debug)]
enum Next {
    /// The first of what a source still has.
    Input(usize),
    /// The n-th of what is on its way between threads.
    Post(usize),
    /// The model answers a thread's prompt.
    Model(ThreadId),
}

/// A life under way.
#[derive(Clone)]
struct Life {
    tree: Tree,
    inputs: Vec<Vec<Record>>,
    /// The prompts under way, by what they have seen.
    prompts: BTreeMap<ThreadId, Number>,
    way: Vec<String>,
}

impl Life {
    /// The owner's part: who wants an answer is asked once.
    fn settle(&mut self) {
        for (&id, thread) in &self.tree.threads {
            if let (false, Some(prompt)) = (self.prompts.contains_key(&id), thread.prompt()) {
                self.prompts.insert(id, prompt.seen);
            }
        }
    }

    fn choices(&self) -> Vec<Next> {
        let inputs = (0..self.inputs.len()).filter(|source| !self.inputs[*source].is_empty()).map(Next::Input);
        let posts = (0..self.tree.posts.len()).map(Next::Post);
        inputs.chain(posts).chain(self.prompts.keys().copied().map(Next::Model)).collect()
    }

    fn go(&mut self, next: Next) {
        self.way.push(format!("{next:?}"));
        match next {
            Next::Input(source) => drop({
                let record = self.inputs[source].remove(0);
                self.tree.apply(ROOT, record)
            }),
            Next::Post(at) => drop({
                let arrival = self.tree.posts.remove(at).unwrap();
                self.tree.apply(arrival.thread, arrival.record)
            }),
            Next::Model(thread) => drop({
                let seen = self.prompts.remove(&thread).unwrap();
                let (end, text) = match (thread, self.tree.threads[&thread].interrupts(seen)) {
                    (ROOT, true) => (End::Cut, "I was"),
                    (ROOT, false) => (End::Finished, "done"),
                    _ => (End::Finished, "they talked"),
                };
                self.tree.apply(thread, completion(seen, vec![say(text)], end))
            }),
        }
        self.settle();
    }

    /// The process dies and starts again.
    fn die(&mut self) {
        self.way.push("crash".to_owned());
        self.tree.crash();
        self.prompts.clear();
        self.settle();
    }
}

/// Every order of what is left; and with a death to give, every order with one at each step. Returns how many lives there were.
fn explore(life: &Life, deaths: usize, check: &impl Fn(&Life)) -> usize {
    let mut lives = 0;
    let choices = life.choices();
    if choices.is_empty() {
        check(life);
        return 1;
    }
    for next in choices {
        let mut then = life.clone();
        then.go(next);
        lives += explore(&then, deaths, check);
        if deaths > 0 {
            then.die();
            lives += explore(&then, deaths - 1, check);
        }
    }
    lives
}

fn tool_result(call: CallId) -> Record {
    result(call, "built", false, Origin { who: "tool:build".into(), proof: Proof::Capability })
}

/// A root that has talked and now waits for a tool; and what comes at the same time as a summary.
fn life(inputs: impl FnOnce(Number, CallId) -> Vec<Vec<Record>>) -> Life {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..4);
    tree.message(ROOT, "build it");
    tree.turn(ROOT, vec![call("build", "{}")]);
    let build = CallId { number: tree.last(ROOT), index: 0 };
    let inputs = inputs(build.number - 1, build);
    let mut life = Life { tree, inputs, prompts: BTreeMap::new(), way: Vec::new() };
    life.settle();
    life
}

/// What is true of every such life: one summary, the call answered, nothing lost, everybody at rest.
fn check(life: &Life, messages: usize) {
    let (tree, how) = (&life.tree, &life.way);
    let view = tree.view(ROOT);
    assert_eq!(view[0], "summary: they talked", "{how:?}");
    assert_eq!(tree.count(ROOT, "summary: "), 1, "{how:?}");
    let begun = |shown: &Shown| matches!(shown, Shown::Compacting { .. });
    assert_eq!(tree.told.iter().filter(|(_, shown)| begun(shown)).count(), 1, "one attempt a crossing: {how:?}");
    let said = |words: &str| tree.count(ROOT, words);
    assert_eq!(said("built"), 1, "the result attaches, or comes as an event: {view:?} {how:?}");
    assert_eq!(said("user: and?"), messages, "{view:?} {how:?}");
    assert!(view.last().unwrap().contains("turn: "), "the model has the last word: {view:?} {how:?}");
    for (&id, thread) in &tree.threads {
        assert!(tree.fold(id) == *thread, "apply_is_deterministic: {how:?}");
        assert_eq!(thread.owed(), [], "{how:?}");
        assert!(thread.rest().is_some(), "{how:?}");
        assert_eq!(thread.standing().state, if id == ROOT { State::Idle } else { State::Closed }, "{how:?}");
    }
    assert_eq!(tree.threads.len(), 2, "{how:?}");
}

#[test]
fn a_summary_races_with_a_message_and_a_result() {
    let racing = life(|seen, build| {
        vec![vec![crossed(seen), crossed(seen)], vec![message("m", "and?")], vec![tool_result(build)]]
    });
    let lives = explore(&racing, 0, &|life| check(life, 1));
    eprintln!("a summary, a message and a result: {lives} lives");
    assert_eq!(lives, 31_680, "the number of orders");
}

#[test]
fn a_summary_races_with_a_result_and_the_process_dies_at_each_step() {
    let racing = life(|seen, build| vec![vec![crossed(seen)], vec![tool_result(build)]]);
    let lives = explore(&racing, 1, &|life| check(life, 0));
    eprintln!("a summary and a result, with at most one crash: {lives} lives");
    assert_eq!(lives, 1_770, "the number of orders");
}

/// A prompt that does not fit waits for its summary through everything, and is answered once.
#[test]
fn a_prompt_that_does_not_fit_races_with_a_message_and_crashes() {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..4);
    tree.message(ROOT, "and now?");
    let seen = tree.threads[&ROOT].prompt().unwrap().seen;
    let inputs = vec![vec![message("m", "and?")]];
    let mut racing = Life { tree, inputs, prompts: BTreeMap::new(), way: Vec::new() };
    racing.tree.apply(ROOT, crate::compact::overflow(seen));
    racing.settle();
    let lives = explore(&racing, 1, &|life| {
        let view = life.tree.view(ROOT);
        let asked = view.iter().position(|line| line == "user: and now?").unwrap();
        assert_eq!(
            (view[0].as_str(), life.tree.count(ROOT, "user: and")),
            ("summary: they talked", 2),
            "{:?}",
            life.way
        );
        assert!(view[asked..].iter().any(|line| line == "turn: done"), "{view:?} {:?}", life.way);
        assert_eq!(life.tree.threads[&ROOT].owed(), []);
        assert_eq!(life.tree.threads.len(), 2);
    });
    eprintln!("a prompt that does not fit: {lives} lives");
    assert_eq!(lives, 1_932, "the number of orders");
}
