//! Choices, and how many of them a test makes.
//!
//! In: bytes of proptest, or a seed. Out: numbers below a bound. Always: the same bytes or the same seed make the same choices.

/// Choices, from a list that proptest can shrink or without end.
pub(crate) enum Tape {
    /// Ends in zeros.
    Written(std::vec::IntoIter<u8>),
    /// A linear congruential generator.
    Endless(u64),
}

impl Tape {
    pub(crate) fn written(choices: Vec<u8>) -> Self {
        Tape::Written(choices.into_iter())
    }

    pub(crate) fn endless(seed: u64) -> Self {
        Tape::Endless(seed)
    }

    /// A number below `bound`.
    pub(crate) fn pick(&mut self, bound: usize) -> usize {
        match self {
            Tape::Written(choices) => usize::from(choices.next().unwrap_or(0)) % bound,
            Tape::Endless(state) => {
                *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (*state >> 33) as usize % bound
            }
        }
    }
}

/// How many lives a property is tried on: 2,000, or what `SLACKWATER_FOLD_CASES` says. With 17,000 the invariants are checked
/// after a million records of `any_records_keep_the_invariants` alone.
pub(crate) fn budget() -> proptest::test_runner::Config {
    let cases = std::env::var("SLACKWATER_FOLD_CASES").ok().map(|cases| cases.parse().expect("it is a number"));
    proptest::test_runner::Config { failure_persistence: None, cases: cases.unwrap_or(2_000), ..Default::default() }
}
