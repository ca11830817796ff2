//! The log of a simulated life: its choices, what has happened, the life in words, and the promise that it broke.
//!
//! In: notes, while the life is lived. Out: the same, to count, to shrink and to tell. Always: it outlives a panic.

use super::choice::Choices;

/// What is written down of a life while it is lived; it outlives a panic.
#[derive(Debug)]
pub(super) struct Log {
    pub(super) choices: Choices,
    pub(super) counts: Counts,
    /// The life in words, if somebody wants to read it.
    pub(super) story: Option<Vec<String>>,
}

/// What has happened in one life, or in many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrivals and faults: the length of the interleaving.
    pub steps: u64,
    /// Syncs of the journal that were tried.
    pub commits: u64,
    /// Crashes before the sync, with nothing written kept.
    pub crashes_lost: u64,
    /// Crashes during the sync, with a part of what was written kept.
    pub crashes_torn: u64,
    /// Crashes after the sync, with all that was written kept and some of what followed from it done.
    pub crashes_kept: u64,
    /// Inputs, results and answers that were delivered once more.
    pub duplicates: u64,
    /// Completions that were cut.
    pub cuts: u64,
    /// Prompts that were failed.
    pub model_failures: u64,
}

impl Counts {
    /// All crashes.
    pub fn crashes(&self) -> u64 {
        self.crashes_lost + self.crashes_torn + self.crashes_kept
    }

    pub(super) fn add(&mut self, other: &Self) {
        let Self { steps, commits, crashes_lost, crashes_torn, crashes_kept, duplicates, cuts, model_failures } = other;
        self.steps += steps;
        self.commits += commits;
        self.crashes_lost += crashes_lost;
        self.crashes_torn += crashes_torn;
        self.crashes_kept += crashes_kept;
        self.duplicates += duplicates;
        self.cuts += cuts;
        self.model_failures += model_failures;
    }
}

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Broken {
    /// Its name.
    pub(super) promise: String,
    /// How it was broken.
    pub(super) how: String,
}

pub(super) fn broken<T>(promise: &str, how: impl Into<String>) -> Result<T, Broken> {
    Err(Broken { promise: promise.to_owned(), how: how.into() })
}
