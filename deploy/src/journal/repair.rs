//! Repair: makes a journal sound again, of what is left of it.
//!
//! In: a directory that nobody uses. Out: a journal that opens, with every thread that is whole. Always: nothing is deleted
//! but what nobody needs (a write that never came to its end, a checkpoint): files that are damaged are moved aside as they
//! are, with all that is in them, and the threads that are not in the new ones are named beside them.
//!
//! What is whole is first written anew beside the old files. Then a mark is made durable that lists the old ones; from then
//! on the change of files is finished, however often it is interrupted, before the journal can be opened again.

use super::chain::{self, Source, Unread};
use super::checkpoint;
use super::directory::{FileDisk, REPAIR_MARK};
use super::disk::{Disk, Kind, file_name, segment_named};
use super::error::JournalError;
use super::inspect::{self, CheckpointState};
use super::options::Options;
use super::scan::{Scan, scan};
use super::transfer::append_all;
use super::{Journal, TornTail};
use serde::Serialize;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::Rest;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// How many threads are read between two looks at the index.
const PAGE: usize = 4096;
/// Where the new files are made, and then the mark.
const NEW: &str = "repair";
/// What names the threads that are not in the new files.
const THREADS: &str = "threads.txt";

/// What a repair has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Repaired {
    /// What was cut from the end: a write that never came to its end.
    pub cut: Option<TornTail>,
    /// Files that were removed because nothing needs them.
    pub removed: Vec<String>,
    /// Where the old files are, if the journal was written anew.
    pub aside: Option<PathBuf>,
    /// The threads that are only in the old files, and why.
    pub set_aside: Vec<(String, String)>,
}

/// Repairs the journal in a directory.
///
/// # Errors
/// When there is none, a process runs on it, or the disk fails. It can be called again then.
pub fn repair(directory: &Path) -> Result<Repaired, JournalError> {
    repair_moving(directory, &|from, to| fs::rename(from, to))
}

/// A repair that is interrupted after so many moves.
#[cfg(test)]
pub(super) fn repair_stopping(directory: &Path, after: usize) -> Result<Repaired, JournalError> {
    let left = std::cell::Cell::new(after);
    repair_moving(directory, &|from, to| match left.get() {
        0 => Err(io::Error::other("interrupted")),
        moves => {
            left.set(moves - 1);
            fs::rename(from, to)
        }
    })
}

/// How a file is moved.
type MoveFile<'a> = &'a dyn Fn(&Path, &Path) -> io::Result<()>;

fn repair_moving(directory: &Path, rename: MoveFile<'_>) -> Result<Repaired, JournalError> {
    let failed = |source| JournalError::Directory { path: directory.to_owned(), source };
    fs::read_dir(directory).map_err(failed)?;
    let disk = FileDisk::open_as_it_is(directory.to_owned())?;
    if directory.join(REPAIR_MARK).exists() {
        return finish(directory, rename).map_err(failed);
    }
    let before = names(directory).map_err(failed)?;
    if !before.iter().any(|name| segment_named(name).is_some_and(|segment| Kind::of(segment) == Kind::Log)) {
        return Err(JournalError::Nothing { path: directory.to_owned() });
    }
    let mut scan = scan(&disk)?;
    let good = whole_threads(&disk, &scan)?;
    if scan.damages.is_empty() && good.bad.is_empty() {
        let cut = scan.torn.clone();
        if inspect::checkpoint_state(&disk, &scan)? == CheckpointState::Wrong {
            checkpoint::remove_others(&disk, None).map_err(failed)?;
        }
        drop(scan);
        drop(disk);
        // What an opening does is all that is needed.
        drop(Journal::open(FileDisk::open(directory)?, Options::default())?);
        let after = names(directory).map_err(failed)?;
        let removed = before.into_iter().filter(|name| !after.contains(name)).collect();
        return Ok(Repaired { cut, removed, ..Repaired::default() });
    }
    let new = directory.join(NEW);
    match fs::remove_dir_all(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    write_anew(&disk, &mut scan, &good.whole, &new)?;
    prepare(directory, &before, &good.bad).map_err(failed)?;
    finish(directory, rename).map_err(failed)
}

/// The threads that are whole with all that they inherit, and those that are not.
struct Threads {
    whole: Vec<ThreadId>,
    bad: Vec<(ThreadId, String)>,
}

fn whole_threads(disk: &FileDisk, scan: &Scan) -> Result<Threads, JournalError> {
    let mut threads = Threads { whole: Vec::new(), bad: Vec::new() };
    let source = Source { disk, dictionaries: &scan.dictionaries };
    let mut after = None;
    loop {
        let page = scan.index.page(after, PAGE);
        let Some(&last) = page.last() else { return Ok(threads) };
        after = Some(last);
        for thread in page {
            let read = chain::inherited(thread, Number::MAX, |id, before| {
                let damage = scan.index.damage(&id).map(Unread::Damaged);
                let head = scan.index.get(&id).ok_or(Unread::Damaged(format!("its ancestor {id} is missing")));
                damage.map_or(head, Err).and_then(|head| chain::read(source, id, head, before, || false))
            });
            match read {
                Ok(_) => threads.whole.push(thread),
                Err(Unread::Damaged(what)) => threads.bad.push((thread, what)),
                Err(Unread::Disk(segment, source)) => {
                    return Err(JournalError::Disk { action: "read", place: disk.place(segment), source });
                }
                Err(Unread::Stopped) => {}
            }
        }
    }
}

/// Writes the journal anew with these threads.
fn write_anew(disk: &FileDisk, scan: &mut Scan, whole: &[ThreadId], new: &Path) -> Result<(), JournalError> {
    let timers: BTreeMap<_, _> = scan.resting().iter().map(|rest| (rest.thread, rest.timers)).collect();
    let scan = &*scan;
    let source = Source { disk, dictionaries: &scan.dictionaries };
    let entry = |thread: &ThreadId| scan.index.get(thread).expect("invariant: a thread that was read has an entry");
    let failure = RefCell::new(None);
    let arrivals = whole.iter().flat_map(|&thread| {
        let records = match failure.borrow().is_some() {
            true => Ok(Vec::new()),
            false => chain::read(source, thread, entry(&thread), Number::MAX, || false),
        };
        records.unwrap_or_else(|unread| {
            *failure.borrow_mut() = Some(unread);
            Vec::new()
        })
    });
    let rest = |&thread: &ThreadId| {
        let timers = timers.get(&thread).cloned().unwrap_or_default();
        Rest { thread, through: entry(&thread).last(), timers }
    };
    let rests = whole.iter().filter(|thread| entry(thread).is_at_rest()).map(rest).collect();
    let journal = Journal::open(FileDisk::open(new)?, Options::default())?;
    append_all(journal, arrivals.map(|committed| committed.arrival), rests)?;
    match failure.into_inner() {
        None => Ok(()),
        Some(Unread::Disk(segment, source)) => {
            Err(JournalError::Disk { action: "read", place: disk.place(segment), source })
        }
        Some(unread) => Err(JournalError::Fault(format!("what was whole a moment ago is not: {unread:?}"))),
    }
}

/// Makes durable what is to be done: which files are moved aside, where to, and which threads are only there.
fn prepare(directory: &Path, before: &[String], bad: &[(ThreadId, String)]) -> io::Result<()> {
    let aside = (1..).map(|number| format!("quarantine-{number}")).find(|name| !directory.join(name).exists());
    let aside = aside.expect("invariant: some number is free");
    DirBuilder::new().mode(0o700).create(directory.join(&aside))?;
    let threads: String = bad.iter().map(|(thread, what)| format!("{thread} {what}\n")).collect();
    write(&directory.join(&aside).join(THREADS), &threads)?;
    File::open(directory.join(&aside))?.sync_all()?;
    let old = before.iter().filter(|name| segment_named(name).is_some());
    let lines: String = [&aside].into_iter().chain(old).map(|name| format!("{name}\n")).collect();
    // It appears with all its lines or not at all.
    let mark = directory.join(REPAIR_MARK);
    let unfinished = mark.with_extension("unfinished");
    write(&unfinished, &lines)?;
    fs::rename(&unfinished, &mark)?;
    File::open(directory.join(NEW))?.sync_all()?;
    File::open(directory)?.sync_all()
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

/// Changes the files, as far as that is not done yet.
fn finish(directory: &Path, rename: MoveFile<'_>) -> io::Result<Repaired> {
    let (mark, new) = (directory.join(REPAIR_MARK), directory.join(NEW));
    let lines = fs::read_to_string(&mark)?;
    let mut lines = lines.lines();
    let aside = directory.join(lines.next().ok_or(io::ErrorKind::InvalidData)?);
    // One that is aside already has made room, and what has its name is new.
    for name in lines.filter(|name| !aside.join(name).exists()) {
        rename(&directory.join(name), &aside.join(name))?;
    }
    File::open(&aside)?.sync_all()?;
    File::open(directory)?.sync_all()?;
    for name in names(&new)?.iter().filter(|name| segment_named(name).is_some()) {
        rename(&new.join(name), &directory.join(name))?;
    }
    File::open(directory)?.sync_all()?;
    fs::remove_file(&mark)?;
    File::open(&new)?.sync_all()?;
    fs::remove_dir_all(&new)?;
    let threads = fs::read_to_string(aside.join(THREADS))?;
    let named = threads.lines().filter_map(|line| line.split_once(' '));
    let set_aside = named.map(|(thread, what)| (thread.to_owned(), what.to_owned())).collect();
    Ok(Repaired { aside: Some(aside), set_aside, ..Repaired::default() })
}

fn names(directory: &Path) -> io::Result<Vec<String>> {
    let entries = fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.file_name()));
    let names = entries.filter_map(|name| name.map(|name| name.into_string().ok()).transpose());
    let mut names = names.collect::<io::Result<Vec<String>>>()?;
    names.retain(|name| segment_named(name).is_none_or(|segment| *name == file_name(segment)));
    names.sort();
    Ok(names)
}
