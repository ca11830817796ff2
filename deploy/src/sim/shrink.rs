//! Shrinking: a failing life is made short.
//!
//! In: the choices of a life that fails. Out: the choices of a shorter one that breaks the same promise. Always: fewer steps
//! first, then fewer choices that are not calm, then smaller ones; lives are tried up to [`STEPS_MAX`] and no more.
//!
//! Most failures need little: so lives that leave the calm one at one or two choices are tried first, whatever the failing
//! one was. Then the shortest failing life known is calmed and cut piece by piece.

use super::Sim;
use super::choice::{Choices, Taken, trimmed};
use super::explore::{Life, live};

/// How long the lives near the calm one that are tried may be together, in steps.
const STEPS_NEAR_CALM_MAX: u64 = 30_000;

/// How long all lives that are tried may be together, in steps.
const STEPS_MAX: u64 = 60_000;

/// What is to be small.
type Cost = (u64, usize, u64);

struct Shrink<'a> {
    sim: &'a Sim,
    promise: &'a str,
    best: Vec<u32>,
    cost: Cost,
    steps: u64,
}

pub(super) fn shrink(sim: &Sim, failing: &Life, promise: &str) -> Vec<u32> {
    let best = trimmed(failing.choices());
    let mut shrink = Shrink { sim, promise, cost: cost(failing, &best), best, steps: 0 };
    shrink.near_calm();
    while shrink.steps < STEPS_MAX && shrink.pass() {}
    shrink.best
}

fn cost(life: &Life, choices: &[u32]) -> Cost {
    let stirred = choices.iter().filter(|choice| **choice != 0).count();
    (life.log.counts.steps, stirred, choices.iter().map(|choice| u64::from(*choice)).sum())
}

impl Shrink<'_> {
    /// Tries the lives that leave the calm one at one choice, and then those that leave one of these at another.
    fn near_calm(&mut self) {
        let calm = live(self.sim, Choices::written(Vec::new()), false).log.choices.taken;
        let mut ones = Vec::new();
        for choices in departures(&[], &calm) {
            if self.steps >= STEPS_NEAR_CALM_MAX {
                return;
            }
            let (taken, _) = self.attempt(choices.clone());
            ones.push((choices, taken));
        }
        for choices in ones.iter().flat_map(|(one, taken)| departures(one, taken)) {
            if self.steps >= STEPS_NEAR_CALM_MAX {
                return;
            }
            self.attempt(choices);
        }
    }

    /// Tries everything once; says whether anything helped.
    fn pass(&mut self) -> bool {
        let before = self.cost;
        // Runs of choices, long ones first: calmed, or left out so that what follows moves up.
        let mut length = self.best.len();
        while length > 0 {
            let mut at = 0;
            while at < self.best.len() {
                let end = (at + length).min(self.best.len());
                let mut calm = self.best.clone();
                calm[at..end].fill(0);
                let mut without = self.best.clone();
                without.drain(at..end);
                if !self.attempt(calm).1 && !self.attempt(without).1 {
                    at += length;
                }
            }
            length /= 2;
        }
        // Single choices: any smaller one.
        for at in 0..self.best.len() {
            for smaller in 0..self.best.get(at).copied().unwrap_or(0) {
                let mut lower = self.best.clone();
                lower[at] = smaller;
                if self.attempt(lower).1 {
                    break;
                }
            }
        }
        // One more calm choice before one that is not.
        for at in 0..self.best.len() {
            let mut inserted = self.best.clone();
            inserted.insert(at, 0);
            self.attempt(inserted);
        }
        self.cost < before
    }

    /// Lives once; says what was asked and chosen, and whether it is the best now.
    fn attempt(&mut self, choices: Vec<u32>) -> (Vec<Taken>, bool) {
        if choices == self.best || self.steps >= STEPS_MAX {
            return (Vec::new(), false);
        }
        let life = live(self.sim, Choices::written(choices), false);
        self.steps += life.log.counts.steps;
        let is_same = life.end.as_ref().is_err_and(|broken| broken.promise == self.promise);
        // What the life really chose: numbers that were too large were cut, and those that nobody asked for are gone.
        let choices = trimmed(life.choices());
        let cost = cost(&life, &choices);
        let is_better = is_same && cost < self.cost;
        if is_better {
            (self.best, self.cost) = (choices, cost);
        }
        (life.log.choices.taken, is_better)
    }
}

/// The lists that begin with these choices, go on calmly, and then answer one question differently.
fn departures(choices: &[u32], taken: &[Taken]) -> impl Iterator<Item = Vec<u32>> {
    taken.iter().enumerate().skip(choices.len()).flat_map(move |(at, taken)| {
        (1..taken.options).map(move |other| {
            let mut departed = choices.to_vec();
            departed.resize(at, 0);
            departed.push(other);
            departed
        })
    })
}
