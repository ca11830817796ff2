//! A thread as text: one JSON object a line, out of a journal and into one.
//!
//! In: a thread, or lines. Out: lines, or a thread. Always: what is put in comes out again to the last byte; a thread that is
//! there already is left as it is; lines that are not a whole thread put in nothing.

use super::chain::{self, Source, Unread};
use super::directory::FileDisk;
use super::error::JournalError;
use super::options::Options;
use super::recovery;
use super::snapshot::Snapshot;
use super::{Disk as _, Journal};
use serde::{Deserialize, Serialize};
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::{FromJournal, Rest, ToJournal};
use slackwater_core::record::{Arrival, Record};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tokio_stream::StreamExt as _;

/// The version of the lines.
const VERSION: u32 = 1;
/// How many records are appended at a time.
const APPENDED: usize = 256;

/// A record as a line.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Line {
    /// The version of this form: 1.
    pub version: u32,
    /// The thread, as a UUID.
    pub thread: String,
    /// The record's number in it, from 1.
    pub number: Number,
    /// When it was received, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    pub record: Record,
}

/// Why lines were not taken, or a thread not given.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TransferError {
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// There is no such thread.
    #[error("there is no thread {thread} in {directory}")]
    UnknownThread {
        /// Which.
        thread: ThreadId,
        /// Where.
        directory: String,
    },
    /// The thread is damaged.
    #[error("thread {thread} cannot be given: {what}; `slackwater doctor` says what is left")]
    Damaged {
        /// Which.
        thread: ThreadId,
        /// What is wrong with it.
        what: String,
    },
    /// A line is not what it should be.
    #[error("line {line}: {what}; nothing was put in")]
    Line {
        /// Which, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
    },
    /// A thread is there already.
    #[error("thread {0} is there already and is left as it is; nothing was put in")]
    Exists(ThreadId),
    /// A thread inherits from one that is neither there nor among the lines.
    #[error(
        "thread {thread} inherits from {ancestor}, which is neither there nor among the lines; nothing was put in: export it with --with-ancestors"
    )]
    NoAncestor {
        /// Which.
        thread: ThreadId,
        /// From whom.
        ancestor: ThreadId,
    },
}

/// A thread's records as lines, and before them those of its ancestors if they are wanted. A runtime may be running on the
/// directory: what it had committed when this was called is given.
///
/// # Errors
/// When there is no such thread, it is damaged, or the directory cannot be read.
pub fn export(directory: &Path, thread: ThreadId, with_ancestors: bool) -> Result<Vec<Line>, TransferError> {
    let snapshot = Snapshot::take(directory)?;
    let (scan, _) = recovery::read(&snapshot)?;
    let source = Source { disk: &snapshot, dictionaries: &scan.dictionaries };
    let read = |id: ThreadId| {
        let what = scan.index.damage(&id);
        if let Some(what) = what {
            return Err(TransferError::Damaged { thread: id, what });
        }
        let unknown = || TransferError::UnknownThread { thread: id, directory: snapshot.directory() };
        let head = scan.index.get(&id).ok_or_else(unknown)?;
        chain::read(source, id, head, Number::MAX, || false).map_err(|unread| match unread {
            Unread::Damaged(what) => TransferError::Damaged { thread: id, what },
            Unread::Disk(segment, source) => {
                JournalError::Disk { action: "read", place: snapshot.place(segment), source }.into()
            }
            Unread::Stopped => unreachable!("invariant: nobody stops this"),
        })
    };
    let mut threads = vec![read(thread)?];
    while with_ancestors
        && let Some((ancestor, _)) = threads.last().and_then(|records| records.first()?.arrival.record.base())
    {
        threads.push(read(ancestor)?);
    }
    let lines = threads.into_iter().rev().flatten().map(|committed| {
        let Arrival { thread, at_ms, record, .. } = committed.arrival;
        Line { version: VERSION, thread: thread.to_string(), number: committed.number, at_ms, record }
    });
    Ok(lines.collect())
}

/// Puts threads into the journal of a directory, which is made when there is none. No runtime may be running on it. They are
/// awakened at its next start, and what they still wait for is asked for again. Returns how many records of how many threads.
///
/// # Errors
/// When a line is not what it should be, a thread is there already, or the journal fails. Only in the last case may some
/// threads have been put in.
pub fn import(directory: &Path, text: &str) -> Result<(u64, usize), TransferError> {
    let arrivals = parse(text)?;
    let journal = Journal::open(FileDisk::open(directory)?, Options::default())?;
    let threads: BTreeSet<ThreadId> = arrivals.iter().map(|arrival| arrival.thread).collect();
    if let Some(thread) = threads.iter().find(|thread| journal.shared.index.get(thread).is_some()) {
        return Err(TransferError::Exists(*thread));
    }
    let bases = arrivals.iter().filter_map(|arrival| Some((arrival.thread, arrival.record.base()?.0)));
    for (thread, ancestor) in bases {
        if !threads.contains(&ancestor) && journal.shared.index.get(&ancestor).is_none() {
            return Err(TransferError::NoAncestor { thread, ancestor });
        }
    }
    let records = arrivals.len() as u64;
    append_all(journal, arrivals.into_iter(), Vec::new())?;
    Ok((records, threads.len()))
}

/// Reads lines and checks that they are whole threads, each from its first record on.
fn parse(text: &str) -> Result<Vec<Arrival>, TransferError> {
    let mut arrivals = Vec::new();
    let mut last: BTreeMap<ThreadId, Number> = BTreeMap::new();
    for (line, text) in text.lines().enumerate().filter(|(_, text)| !text.trim().is_empty()) {
        let wrong = |what: String| TransferError::Line { line: line + 1, what };
        let Line { version, thread, number, at_ms, record } = serde_json::from_str(text)
            .map_err(|error| wrong(format!("it is no record as `export` writes them: {error}")))?;
        if version != VERSION {
            return Err(wrong(format!("it has version {version} and this program reads version {VERSION}")));
        }
        let id: ThreadId = thread.parse().map_err(|_| wrong(format!("{thread:?} is no thread's id")))?;
        let before = last.entry(id).or_default();
        if number != *before + 1 {
            return Err(wrong(format!("record {number} of thread {id} follows on record {before}")));
        }
        if number == 1 && !record.creates_thread() {
            return Err(wrong(format!("the first record of thread {id} is none that a thread begins with")));
        }
        *before = number;
        arrivals.push(Arrival { ticket: None, thread: id, at_ms, record });
    }
    match arrivals.is_empty() {
        true => Err(TransferError::Line { line: 1, what: "there is no record".to_owned() }),
        false => Ok(arrivals),
    }
}

/// Appends records, and then rest hints, to a journal that runs only for that.
pub(super) fn append_all(
    journal: Journal,
    mut arrivals: impl Iterator<Item = Arrival>,
    rests: Vec<Rest>,
) -> Result<(), JournalError> {
    let (mut from, to, handle) = journal.start()?;
    // Whoever calls this waits here, be it a task whose turn is over.
    futures::executor::block_on(tokio::task::unconstrained(async move {
        loop {
            let some: Vec<Arrival> = arrivals.by_ref().take(APPENDED).collect();
            let mut left = some.len();
            if left == 0 {
                break;
            }
            to.put(ToJournal::Append(some));
            while left > 0 {
                match from.next().await {
                    Some(FromJournal::Committed(committed)) => left -= committed.len(),
                    Some(FromJournal::Refused(arrival, why)) => {
                        let what = format!("a record of thread {} was refused: {why:?}", arrival.thread);
                        return Err(JournalError::Fault(what));
                    }
                    Some(_) => {}
                    None => break,
                }
            }
            if left > 0 {
                break;
            }
        }
        rests.into_iter().for_each(|rest| to.put(ToJournal::Rest(rest)));
        handle.close().await.map_err(|error| JournalError::Ended(error.to_string()))
    }))
}
