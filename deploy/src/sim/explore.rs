//! The search: one life after another, until all are lived, the budget is spent, or one fails.
//!
//! In: a simulation. Out: how much was explored, or a failure made short. Always: the same simulation and seed explore the
//! same lives in the same order.

use super::Sim;
use super::choice::{self, Choices};
use super::failure::Failure;
use super::log::{Broken, Counts, Log};
use super::shrink::shrink;
use super::world::World;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

/// How much was explored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How many lives were lived; no two of an exhaustive search are the same.
    pub executions: u64,
    /// What happened in all of them together.
    pub counts: Counts,
    /// The most choices that one life had.
    pub choices_max: usize,
    /// A hash of all choices: two searches with the same one explored the same.
    pub digest: u64,
}

/// A life that was lived.
pub(super) struct Life {
    pub(super) log: Log,
    pub(super) end: Result<(), Broken>,
}

impl Life {
    /// What it chose.
    pub(super) fn choices(&self) -> Vec<u32> {
        self.log.choices.taken.iter().map(|taken| taken.choice).collect()
    }
}

/// Lives once.
pub(super) fn live(sim: &Sim, choices: Choices, with_story: bool) -> Life {
    let mut log = Log { choices, counts: Counts::default(), story: with_story.then(Vec::new) };
    let end = quietly(|| catch_unwind(AssertUnwindSafe(|| World::new(sim, &mut log).live())));
    let end = end.unwrap_or_else(|panic| {
        let said = said(&*panic);
        // The assertions of fold and join name the promise that they guard.
        let (promise, how) = match said.strip_prefix("invariant: ").and_then(|rest| rest.split_once(": ")) {
            Some((promise, how)) => (promise.to_owned(), how.to_owned()),
            None => ("check".to_owned(), said),
        };
        Err(Broken { promise, how })
    });
    Life { log, end }
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without words").to_owned()
}

/// Runs something whose panics are expected: thousands of them would bury the one report that matters.
fn quietly<T>(run: impl FnOnce() -> T) -> T {
    thread_local!(static QUIET: Cell<bool> = const { Cell::new(false) });
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !QUIET.get() {
                loud(info);
            }
        }));
    });
    let before = QUIET.replace(true);
    let done = run();
    QUIET.set(before);
    done
}

impl Report {
    fn new() -> Self {
        Self { executions: 0, counts: Counts::default(), choices_max: 0, digest: 0xcbf2_9ce4_8422_2325 }
    }

    fn add(&mut self, life: &Life) {
        self.executions += 1;
        self.counts.add(&life.log.counts);
        self.choices_max = self.choices_max.max(life.log.choices.taken.len());
        for taken in &life.log.choices.taken {
            // FNV-1a, a number at a time.
            self.digest = (self.digest ^ u64::from(taken.choice) ^ (u64::from(taken.options) << 32))
                .wrapping_mul(0x0100_0000_01b3);
        }
    }
}

/// Lives all lives there are.
pub(super) fn exhaustive(sim: &Sim) -> Result<Report, Box<Failure>> {
    let mut report = Report::new();
    let mut list = Some(Vec::new());
    while let Some(written) = list {
        assert!(
            report.executions < sim.bounds.executions_max,
            "{} executions were not all there are; search by chance with `random`, allow fewer faults, or raise `executions_max`",
            sim.bounds.executions_max,
        );
        let life = live(sim, Choices::written(written), false);
        report.add(&life);
        if let Err(broken) = &life.end {
            return Err(failure(sim, &life, broken, None, report.executions));
        }
        list = choice::next(life.log.choices.taken);
    }
    Ok(report)
}

/// Lives so many lives by chance.
pub(super) fn random(sim: &Sim, seed: u64, budget: u64) -> Result<Report, Box<Failure>> {
    let mut report = Report::new();
    for walk in 0..budget {
        let life = live(sim, Choices::walk(seed, walk), false);
        report.add(&life);
        if let Err(broken) = &life.end {
            return Err(failure(sim, &life, broken, Some(seed), report.executions));
        }
    }
    Ok(report)
}

/// Lives the life of these choices.
pub(super) fn replay(sim: &Sim, choices: Vec<u32>) -> Result<Vec<String>, Box<Failure>> {
    let life = live(sim, Choices::written(choices), true);
    match &life.end {
        Ok(()) => Ok(life.log.story.unwrap_or_default()),
        Err(broken) => Err(Box::new(told(life.log.counts.steps, &life, broken, None, 0))),
    }
}

fn failure(sim: &Sim, first: &Life, broken: &Broken, seed: Option<u64>, execution: u64) -> Box<Failure> {
    let shortest = shrink(sim, first, &broken.promise);
    let life = live(sim, Choices::written(shortest), true);
    let Err(broken) = &life.end else {
        panic!(
            "invariant: a life is determined by its choices; does the agent or the check keep state between executions?"
        )
    };
    Box::new(told(first.log.counts.steps, &life, broken, seed, execution))
}

fn told(first: u64, life: &Life, broken: &Broken, seed: Option<u64>, execution: u64) -> Failure {
    Failure {
        promise: broken.promise.clone(),
        how: broken.how.clone(),
        seed,
        execution,
        steps: (life.log.counts.steps, first),
        replay: choice::encode(&choice::trimmed(life.choices())),
        story: life.log.story.clone().unwrap_or_default(),
    }
}
