//! The failure that a search found: for people, and for the next run.
//!
//! In: the shortest interleaving found. Out: it, step by step in words, and how to see it again. Always: playing its
//! choices again makes the same failure.

use std::fmt;

/// A broken promise or a failed assertion, with the shortest interleaving found that leads to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The promise of the design that was broken; or `check` when an assertion failed, or another of the user's functions
    /// panicked.
    pub promise: String,
    /// How it was broken, or what the assertion said.
    pub how: String,
    /// The seed of the search, if it was one by chance.
    pub seed: Option<u64>,
    /// Which execution of the search failed first, from 1.
    pub execution: u64,
    /// How many arrivals and faults the shortest interleaving has, and how many the first one had.
    pub steps: (u64, u64),
    /// The choices of the shortest interleaving, for [`super::Sim::replay`].
    pub replay: String,
    /// The shortest interleaving in words.
    pub story: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { promise, how, seed, execution, steps: (shortest, first), replay, story } = self;
        writeln!(f, "the simulator found a failure: {promise}: {how}")?;
        match seed {
            Some(seed) => write!(f, "seed {seed}, execution {execution}; ")?,
            None if *execution > 0 => write!(f, "exhaustive search, execution {execution}; ")?,
            None => write!(f, "replayed; ")?,
        }
        writeln!(f, "{shortest} steps, shortened from {first}:\n")?;
        story.iter().try_for_each(|line| writeln!(f, "{line}"))?;
        write!(f, "\nto see it again, end the simulation with .replay({replay:?})")
    }
}

impl std::error::Error for Failure {}
