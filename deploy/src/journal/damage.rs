//! Damage, in words: which place, which threads, what follows, what to do.
//!
//! In: what the scan found. Out: plain data for logs, for `doctor` and for programs. Always: a damage says whether a record
//! is lost, and a torn tail is no damage.

use serde::Serialize;

/// A place on the disk that is not as it was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The segment.
    pub segment: u32,
    /// The segment's file.
    pub place: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What is wrong.
    pub what: String,
    /// What follows from it.
    pub effect: DamageEffect,
    /// The threads it concerns, as UUIDs; none when no record is lost or when they cannot be told.
    pub threads: Vec<String>,
}

/// What follows from a damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum DamageEffect {
    /// No record is lost: what is damaged exists twice, or was a hint.
    NothingLost,
    /// The threads named are refused; all others are served.
    ThreadsRefused,
    /// It cannot be told which threads it concerns; the journal does not open.
    NotOpened,
}

/// What the last write left behind when it did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TornTail {
    /// The segment.
    pub segment: u32,
    /// Where the part begins that is cut, in bytes.
    pub offset: u64,
    /// How many bytes are cut. None of them was acknowledged.
    pub bytes: u64,
}

impl DamageEffect {
    /// What it means, and what to do.
    pub fn advice(self) -> &'static str {
        match self {
            Self::NothingLost => {
                "no record is lost, and the journal opens; the disk has changed bytes, so look at its health"
            }
            Self::ThreadsRefused => {
                "these threads are refused, all others are served; restore the segment from a backup to have them back"
            }
            Self::NotOpened => {
                "which threads lost records cannot be told, so the journal does not open; restore the segment from a backup"
            }
        }
    }
}
