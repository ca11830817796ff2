//! What was accepted is found again: in what some model sees, or counted among what a closed thread had not seen.
//!
//! In: a tape of choices, for a tree of threads with posts, subscriptions and crashes. Out: nothing accepted is missing.
//! Always: every input has a text of its own, and at the end everybody answers what is left.

use crate::story::{call, message, person, result, say};
use crate::tape::Tape;
use crate::tree::{ROOT, Tree, close, report, spawn};
use proptest::test_runner::TestRunner;
use slackwater_core::effect::{Due, Effect, Outcome, Shown};
use slackwater_core::id::{CallId, InputId, ThreadId};
use slackwater_core::record::{Deliver, Origin, Proof, Record, Stop};
use slackwater_core::thread::State;
use std::cell::Cell;
use std::collections::BTreeSet;

struct Life {
    tree: Tree,
    tape: Tape,
    /// The texts of what was accepted.
    accepted: Vec<String>,
    /// Calls that tools were asked to do, whether cancelled since or not.
    calls: Vec<(ThreadId, CallId)>,
    subscriptions: Vec<(ThreadId, CallId)>,
    made: usize,
}

impl Life {
    fn text(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}<{}>", self.made)
    }

    fn note(&mut self, text: String, outcome: &Outcome) {
        if matches!(outcome, Outcome::Taken(_)) {
            self.accepted.push(text);
        }
    }

    fn any_thread(&mut self) -> ThreadId {
        let at = self.tape.pick(self.tree.threads.len());
        *self.tree.threads.keys().nth(at).expect("the index is in range")
    }

    fn act(&mut self) {
        let thread = self.any_thread();
        match self.tape.pick(14) {
            0..=4 if self.tree.threads[&thread].prompt().is_some() => self.turn(thread),
            5 | 6 if !self.calls.is_empty() => self.answer(),
            7 | 8 if !self.subscriptions.is_empty() => self.event(),
            9 => self.timer(),
            10 => drop(
                self.tree.apply(thread, Record::Stop(Stop { id: InputId(self.made.to_string()), origin: person() })),
            ),
            11 if self.tape.pick(3) == 0 => self.tree.crash(),
            12 => self.message(thread),
            _ => {
                if self.tree.deliver_one().is_none() {
                    self.message(thread);
                }
            }
        }
    }

    fn message(&mut self, thread: ThreadId) {
        let text = self.text("message");
        let outcome = self.tree.apply(thread, message(&text, &text)).outcome;
        self.note(text, &outcome);
    }

    fn turn(&mut self, thread: ThreadId) {
        let path: Vec<ThreadId> = self.path(thread);
        let mut blocks = vec![say("well")];
        let mut reports = Vec::new();
        for _ in 0..self.tape.pick(4) {
            blocks.push(match self.tape.pick(9) {
                0 => spawn("look", &path, false),
                1 | 2 if thread != ROOT => {
                    let text = self.text("report");
                    reports.push(text.clone());
                    report(&text)
                }
                3 if thread != ROOT && self.tape.pick(3) == 0 => close(thread),
                4 | 5 => call("watch", "{}"),
                6 => call("sleep_until_event_or_input", "{}"),
                _ => call("build", "{}"),
            });
        }
        let before = self.tree.asked.len();
        self.tree.turn(thread, blocks);
        for effect in &self.tree.asked[before..] {
            if let Effect::Dispatch(dispatch) = effect {
                self.calls.push((thread, dispatch.call));
            }
        }
        // A report is accepted unless its call was not begun, because the thread was interrupted or closed.
        let said = self.tree.view(thread).join("\n");
        let begun = said.matches("Reported.").count();
        if begun > 0 {
            let sent: Vec<String> = self.tree.threads[&thread].owed().iter().map(|owed| format!("{owed:?}")).collect();
            self.accepted.extend(reports.into_iter().filter(|text| sent.iter().any(|post| post.contains(text))));
        }
    }

    fn path(&self, thread: ThreadId) -> Vec<ThreadId> {
        let mut path = Vec::new();
        let mut at = thread;
        while let Some(parent) = self.tree.threads[&at].standing().parent {
            path.push(at);
            at = parent;
        }
        path.reverse();
        path
    }

    /// A tool answers, in time or after a substitute; every second one goes on producing events.
    fn answer(&mut self) {
        let at = self.tape.pick(self.calls.len());
        let (thread, id) = self.calls.swap_remove(at);
        let text = self.text("result");
        let tool = Origin { who: "tool".into(), proof: Proof::Capability };
        let Record::Result(mut result) = result(id, &text, false, tool) else { unreachable!() };
        result.subscription = self.tape.pick(2) == 0;
        let subscribes = result.subscription;
        let outcome = self.tree.apply(thread, Record::Result(result)).outcome;
        if subscribes && matches!(outcome, Outcome::Taken(_)) {
            self.subscriptions.push((thread, id));
        }
        self.note(text, &outcome);
    }

    fn event(&mut self) {
        let at = self.tape.pick(self.subscriptions.len());
        let (thread, id) = self.subscriptions[at];
        let how = match self.tape.pick(4) {
            0 => Some(Deliver::Inline),
            1 => Some(Deliver::Digest { count: 3, wait_ms: 60_000 }),
            _ => None,
        };
        let text = format!("event {}", self.text("event"));
        let last = self.tape.pick(8) == 0;
        let outcome = self.tree.event(thread, id, text.trim_start_matches("event "), how, last);
        self.note(text, &outcome);
    }

    /// Some digest's time has come.
    fn timer(&mut self) {
        let armed: Vec<(ThreadId, CallId)> = self
            .tree
            .threads
            .iter()
            .flat_map(|(&thread, folded)| folded.owed().into_iter().map(move |owed| (thread, owed)))
            .filter_map(|(thread, owed)| match owed {
                Effect::Arm { call, due: Due::At(_), .. } => Some((thread, call)),
                _ => None,
            })
            .collect();
        if !armed.is_empty() {
            let (thread, call) = armed[self.tape.pick(armed.len())];
            self.tree.apply(thread, Record::Fired(call));
        }
    }

    /// Everybody answers what is left: children close, the youngest first, so that what waits for their places has its turn.
    fn end(&mut self) {
        for _ in 0..10_000 {
            self.tree.deliver();
            self.timer();
            if let Some(&(thread, id)) = self.calls.last() {
                self.calls.pop();
                let tool = Origin { who: "tool".into(), proof: Proof::Capability };
                self.tree.apply(thread, result(id, "the end", false, tool));
                continue;
            }
            let living = |thread: &ThreadId| self.tree.threads[thread].standing().state != State::Closed;
            let deepest =
                self.tree.threads.keys().copied().filter(living).max_by_key(|thread| self.path(*thread).len());
            let thread = deepest.expect("the root lives");
            if self.tree.threads[&thread].prompt().is_some() {
                self.tree.turn(thread, if thread == ROOT { vec![say("so be it")] } else { vec![close(thread)] });
            } else if thread != ROOT {
                self.made += 1;
                let id = format!("end {}", self.made);
                self.tree.apply(thread, message(&id, "finish"));
            } else if self.tree.posts.is_empty() {
                return;
            }
        }
        panic!("it does not end");
    }

    /// Returns how many inputs were accepted.
    fn check(&self) -> usize {
        let seen: BTreeSet<String> = self.tree.threads.keys().flat_map(|&thread| self.tree.view(thread)).collect();
        let all = seen.into_iter().collect::<Vec<_>>().join("\n");
        let missing: Vec<&String> = self.accepted.iter().filter(|text| !all.contains(text.as_str())).collect();
        let unseen: usize = self
            .tree
            .told
            .iter()
            .map(|(_, shown)| if let Shown::Closed { unseen, .. } = shown { *unseen } else { 0 })
            .sum();
        assert!(missing.len() <= unseen, "{missing:?} are nowhere, and closed threads told of {unseen}");
        self.accepted.len()
    }
}

/// An input that was taken reaches a model, or the thread that closes over it says how many it had not seen.
#[test]
fn nothing_is_dropped_silently() {
    let (config, total) = (crate::tape::budget(), Cell::new(0));
    let lives = proptest::collection::vec(proptest::num::u8::ANY, 20..400);
    let outcome = TestRunner::new(config).run(&lives, |choices| {
        let acts = choices.len() / 2;
        let tape = Tape::written(choices);
        let (calls, subscriptions) = (Vec::new(), Vec::new());
        let mut life = Life { tree: Tree::default(), tape, accepted: Vec::new(), calls, subscriptions, made: 0 };
        life.tree.apply(ROOT, message("first", "first"));
        (0..acts).for_each(|_| life.act());
        life.end();
        total.set(total.get() + life.check());
        Ok(())
    });
    if let Err(broken) = outcome {
        panic!("{broken}");
    }
    eprintln!("nothing_is_dropped_silently: {} inputs accepted, all found", total.get());
    assert!(total.get() > 1_000, "only {} inputs were accepted", total.get());
}
