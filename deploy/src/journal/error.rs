//! What can go wrong with a journal.
//!
//! In: a failing disk or a damaged file. Out: words for the person who must act, with the path. Always: a message says
//! whether records are in danger, and what to do.

use std::io;
use std::path::PathBuf;

/// Why a journal cannot be opened, or has stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// The directory cannot be made or read.
    #[error(
        "cannot use {path} as a journal directory: {source}; give a directory that this user may write, with space left"
    )]
    Directory {
        /// The directory or a file in it.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Another process has the directory.
    #[error(
        "{path} is in use by {owner}; one process owns a journal directory: stop that one, or give another directory"
    )]
    Owned {
        /// The directory.
        path: PathBuf,
        /// Who, as far as it is known: `process 123`.
        owner: String,
    },
    /// A write, sync or read failed. Nothing was acknowledged since, and nothing will be until the journal is opened again.
    #[error(
        "the journal cannot {action} {place}: {source}; every acknowledged record is safe and nothing else was acknowledged: see to the disk (space, permissions, health), then start again"
    )]
    Disk {
        /// What was attempted.
        action: &'static str,
        /// On what.
        place: String,
        /// What the system said.
        source: io::Error,
    },
    /// A file was made by another version of the program.
    #[error(
        "{place} has format version {found} and this program reads version {known}: use the program that wrote it, or a newer one"
    )]
    Version {
        /// The segment's file.
        place: String,
        /// The version found.
        found: u16,
        /// The version this program reads.
        known: u16,
    },
    /// Damage that cannot be put down to certain threads, so that serving any could hide a loss.
    #[error(
        "{place} is damaged at byte {offset}: {what}; which threads it concerns cannot be told, so nothing is served: run `slackwater doctor {directory}` to see what is left, and restore the file from a backup"
    )]
    Damaged {
        /// The segment's file.
        place: String,
        /// Where the damage begins.
        offset: u64,
        /// What is wrong there.
        what: String,
        /// The directory.
        directory: String,
    },
    /// A directory without a journal.
    #[error("there is no journal in {path}; give the data directory of a runtime")]
    Nothing {
        /// The directory.
        path: PathBuf,
    },
    /// A directory that should be empty is not.
    #[error("{path} is not empty; give a directory that is, or that does not exist yet")]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A repair was begun and has not come to its end.
    #[error(
        "a repair of {path} has not come to its end: run `slackwater doctor {path} --repair` again; nothing is lost"
    )]
    HalfRepaired {
        /// The directory.
        path: PathBuf,
    },
    /// A journal that was opened for one thing has failed.
    #[error("{0}")]
    Ended(String),
    /// An option has a value that cannot work.
    #[error("journal option {name}: {what}")]
    Option {
        /// The option.
        name: &'static str,
        /// What is wrong with its value.
        what: String,
    },
    /// A thread of the operating system could not be started.
    #[error("the journal cannot start a thread: {0}; see the limits of this user (ulimit -u)")]
    Start(io::Error),
    /// The journal's own code broke an invariant. What was acknowledged is safe.
    #[error(
        "the journal stopped by a fault of its own: {0}; every acknowledged record is safe: start again, and please report this"
    )]
    Fault(String),
}
