//! What `slackwater doctor` says of a journal.
//!
//! In: a directory that nobody uses. Out: a [`Report`], for people and for programs. Always: changes nothing; reads every
//! record and folds every thread.

use super::chain::{self, Ancestry, Source, Unread};
use super::damage::{Damage, DamageEffect, TornTail};
use super::directory::FileDisk;
use super::disk::{Disk, Kind, of_kind};
use super::error::JournalError;
use super::index::PARTS;
use super::recovery;
use super::scan::{Scan, scan};
use serde::Serialize;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::record::{Committed, Record};
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fmt, io};

/// How many threads are folded between two looks at the index.
const PAGE: usize = 4096;

/// What a journal holds, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The directory.
    pub directory: String,
    /// How many segments.
    pub segments: usize,
    /// Their bytes.
    pub bytes: u64,
    /// How many threads, damaged ones included.
    pub threads: usize,
    /// How many records, damaged ones included.
    pub records: u64,
    /// The records that can be read, by kind.
    pub records_by_kind: BTreeMap<&'static str, u64>,
    /// How many threads have something in flight and are woken at the next start.
    pub unsettled: usize,
    /// How many threads rest and have timers, or calls with tools.
    pub resting_with_timers: usize,
    /// What the last write left when it did not come to its end. It is cut at the next start; none of it was acknowledged.
    pub torn_tail: Option<TornTail>,
    /// What the checkpoint of the index is good for.
    pub checkpoint: CheckpointState,
    /// What is damaged.
    pub damages: Vec<Damage>,
    /// Threads whose records are whole and break an invariant of the fold: a fault of the program.
    pub violations: Vec<Violation>,
}

/// What a checkpoint is good for. A journal can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckpointState {
    /// There is none.
    None,
    /// An opening that begins with it comes to the same as one that reads everything.
    Good,
    /// It is not whole, or not of this journal as it is now: the next start reads everything, and removes it.
    Useless,
    /// What it says is not what the log and the packs say: a fault of the program.
    Wrong,
}

/// A thread that breaks an invariant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Violation {
    /// The thread, as a UUID.
    pub thread: String,
    /// The invariant, by name, and where.
    pub what: String,
}

/// Looks at the journal in a directory.
///
/// # Errors
/// When there is none, a process runs on it, a segment is of another version, or the disk fails. Damage is no error.
pub fn inspect(directory: &Path) -> Result<Report, JournalError> {
    inspect_watched(directory, &|_| ())
}

/// How far a look at a journal has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// So many bytes of so many are read and their checksums compared.
    Bytes(u64, u64),
    /// So many threads of so many are folded.
    Threads(u64, u64),
}

/// Looks at the journal in a directory, and says how far it has come.
///
/// # Errors
/// See [`inspect`].
pub fn inspect_watched(directory: &Path, watch: &(dyn Fn(Progress) + Sync)) -> Result<Report, JournalError> {
    let disk = FileDisk::open_to_read(directory)?;
    let bytes = disk.segments().map(|segments| segments.iter().map(|(_, length)| length).sum()).unwrap_or(0);
    let scan = scan(&Watched { disk: &disk, read: AtomicU64::new(0), bytes, watch })?;
    report(scan, &disk, watch)
}

#[cfg(test)]
pub(super) fn inspect_disk(disk: &dyn Disk) -> Result<Report, JournalError> {
    report(scan(disk)?, disk, &|_| ())
}

fn report(mut scan: Scan, disk: &dyn Disk, watch: &dyn Fn(Progress)) -> Result<Report, JournalError> {
    let mut report = Report {
        directory: disk.directory(),
        segments: scan.segments,
        bytes: scan.bytes,
        threads: scan.index.len(),
        records: scan.records,
        records_by_kind: BTreeMap::new(),
        unsettled: scan.index.unsettled().len(),
        resting_with_timers: scan.resting().len(),
        torn_tail: scan.torn.clone(),
        checkpoint: checkpoint_state(disk, &scan)?,
        damages: std::mem::take(&mut scan.damages),
        violations: Vec::new(),
    };
    let (mut after, mut looked) = (None, 0);
    loop {
        let page = scan.index.page(after, PAGE);
        let Some(&last) = page.last() else { break };
        after = Some(last);
        for thread in page {
            report.look_at(thread, &scan, disk)?;
            looked += 1;
            watch(Progress::Threads(looked, report.threads as u64));
        }
    }
    Ok(report)
}

/// Opens from the checkpoint as well, and compares.
pub(super) fn checkpoint_state(disk: &dyn Disk, scan: &Scan) -> Result<CheckpointState, JournalError> {
    let failed = |source| JournalError::Disk { action: "list", place: disk.directory(), source };
    let segments = disk.segments().map_err(failed)?;
    if of_kind(&segments, Kind::Checkpoint).next().is_none() {
        return Ok(CheckpointState::None);
    }
    let (other, used) = recovery::read(disk)?;
    if used.is_none() {
        return Ok(CheckpointState::Useless);
    }
    let is_same = (0..PARTS).flat_map(|part| scan.index.part_entries(part)).all(|(thread, entry)| {
        let found = other.index.get(&thread);
        found.is_some_and(|found| (found.last(), found.location) == (entry.last(), entry.location))
    });
    Ok(if is_same && scan.index.len() == other.index.len() { CheckpointState::Good } else { CheckpointState::Wrong })
}

impl Report {
    /// Whether nothing is wrong. A torn tail is not: it is how a crash looks.
    pub fn is_sound(&self) -> bool {
        self.damages.is_empty() && self.violations.is_empty() && self.checkpoint != CheckpointState::Wrong
    }

    fn look_at(&mut self, thread: ThreadId, scan: &Scan, disk: &dyn Disk) -> Result<(), JournalError> {
        let Some(head) = scan.index.get(&thread).filter(|_| scan.index.damage(&thread).is_none()) else {
            return Ok(());
        };
        let read = chain::inherited(thread, Number::MAX, |id, before| match scan.index.get(&id) {
            Some(head) => chain::read(Source { disk, dictionaries: &scan.dictionaries }, id, head, before, || false),
            None => Ok(Vec::new()),
        });
        match read {
            Ok((ancestry, records)) => self.fold(thread, ancestry, records),
            Err(Unread::Disk(segment, source)) => {
                return Err(JournalError::Disk { action: "read", place: disk.place(segment), source });
            }
            Err(Unread::Damaged(what)) => self.damages.push(Damage {
                segment: head.location.segment,
                place: disk.place(head.location.segment),
                offset: u64::from(head.location.offset),
                what,
                effect: DamageEffect::ThreadsRefused,
                threads: vec![thread.to_string()],
            }),
            Err(Unread::Stopped) => {}
        }
        Ok(())
    }

    fn fold(&mut self, id: ThreadId, ancestry: Ancestry, records: Vec<Committed>) {
        let mut thread = Thread::inheriting(id, ancestry);
        for record in records {
            *self.records_by_kind.entry(kind_of(&record.arrival.record)).or_default() += 1;
            thread.apply(record);
        }
        if let Err(what) = invariant::check(&thread) {
            self.violations.push(Violation { thread: id.to_string(), what });
        }
    }
}

/// A disk whose reading is watched.
struct Watched<'a> {
    disk: &'a FileDisk,
    read: AtomicU64,
    bytes: u64,
    watch: &'a (dyn Fn(Progress) + Sync),
}

impl Disk for Watched<'_> {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        self.disk.segments()
    }

    fn create(&self, segment: u32) -> io::Result<()> {
        self.disk.create(segment)
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_at(segment, offset, bytes)
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        self.disk.sync(segment)
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.disk.read_at(segment, offset, buffer)?;
        let all = self.read.fetch_add(read as u64, Ordering::Relaxed) + read as u64;
        (self.watch)(Progress::Bytes(all.min(self.bytes), self.bytes));
        Ok(read)
    }

    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.disk.truncate(segment, length)
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        self.disk.remove(segment)
    }

    fn sync_directory(&self) -> io::Result<()> {
        self.disk.sync_directory()
    }

    fn directory(&self) -> String {
        self.disk.directory()
    }
}

/// The name of a record's kind.
pub(super) fn kind_of(record: &Record) -> &'static str {
    match record {
        Record::Message(_) => "message",
        Record::Completion(_) => "completion",
        Record::Failure(_) => "failure",
        Record::Accepted(_) => "accepted",
        Record::Armed { .. } => "armed",
        Record::Result(_) => "result",
        Record::Fired(_) => "fired",
        Record::Stop(_) => "stop",
        Record::Post(_) => "post",
        Record::Delivered(_) => "delivered",
        Record::Event(_) => "event",
        Record::Bounds(_) => "bounds",
        Record::Asked(_) => "asked",
        Record::Answered(_) => "answered",
        Record::Responded(_) => "responded",
        Record::Deadline { .. } => "deadline",
        Record::View(_) => "view",
        Record::StopAll(_) => "stop all",
        Record::Compact(_) => "compact",
        Record::Lost(_) => "lost",
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "journal   {}", self.directory)?;
        writeln!(f, "segments  {}, {} bytes", self.segments, self.bytes)?;
        writeln!(
            f,
            "threads   {}; {} to be woken at the next start, {} resting with timers",
            self.threads, self.unsettled, self.resting_with_timers
        )?;
        write!(f, "records   {}", self.records)?;
        for (kind, count) in &self.records_by_kind {
            write!(f, ", {kind} {count}")?;
        }
        writeln!(f)?;
        if let Some(torn) = &self.torn_tail {
            writeln!(
                f,
                "torn tail segment {} at byte {}: {} bytes of a write that did not come to its end; none of it was acknowledged, and the next start cuts it",
                torn.segment, torn.offset, torn.bytes
            )?;
        }
        match self.checkpoint {
            CheckpointState::None | CheckpointState::Good => {}
            CheckpointState::Useless => writeln!(
                f,
                "checkpoint not whole, or not of this journal as it is now; the next start reads everything and removes it"
            )?,
            CheckpointState::Wrong => writeln!(
                f,
                "FAULT     the checkpoint does not say what the log says; --repair removes it; please report this"
            )?,
        }
        for damage in &self.damages {
            writeln!(f, "DAMAGE    {} at byte {}: {}", damage.place, damage.offset, damage.what)?;
            for thread in &damage.threads {
                writeln!(f, "          thread {thread}")?;
            }
            writeln!(f, "          {}", damage.effect.advice())?;
        }
        for violation in &self.violations {
            writeln!(f, "FAULT     thread {}: {}; please report this", violation.thread, violation.what)?;
        }
        f.write_str(if self.is_sound() { "sound\n" } else { "NOT sound\n" })
    }
}
