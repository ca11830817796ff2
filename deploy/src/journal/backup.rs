//! A backup: a directory that holds what a journal held at a moment, made while a runtime runs on it.
//!
//! In: a data directory, and one that is empty. Out: a journal that can be opened, with all that was acknowledged before the
//! backup was begun. Always: what is full is linked where that can be done and copied otherwise, since it never changes; the
//! log's last segment is copied up to its last whole batch; it is read once to its end before it is called a backup.

use super::batch;
use super::damage::DamageEffect;
use super::disk::{Disk, Kind, file_name, of_kind, read_all};
use super::error::JournalError;
use super::format::SEGMENT_HEAD;
use super::recovery;
use super::snapshot::Snapshot;
use serde::Serialize;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// What else a data directory holds that a runtime needs.
const KEY_FILE: &str = "capability.key";

/// What a backup holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Backup {
    /// Where it is.
    pub directory: PathBuf,
    /// How many threads.
    pub threads: usize,
    /// How many records.
    pub records: u64,
    /// How many files were linked: they take no space of their own while the journal has them too.
    pub linked: usize,
    /// How many were copied.
    pub copied: usize,
}

/// Makes a backup of the journal in `from` in the directory `to`, which is made or is empty.
///
/// # Errors
/// When there is no journal, it is damaged so that it could not be opened, `to` is not empty, or a disk fails. What was made
/// up to then is left in `to`.
pub fn backup(from: &Path, to: &Path) -> Result<Backup, JournalError> {
    let failed = |source| JournalError::Directory { path: to.to_owned(), source };
    DirBuilder::new().recursive(true).mode(0o700).create(to).map_err(failed)?;
    if fs::read_dir(to).map_err(failed)?.next().is_some() {
        return Err(JournalError::NotEmpty { path: to.to_owned() });
    }
    let snapshot = Snapshot::take(from)?;
    let mut backup = Backup { directory: to.to_owned(), threads: 0, records: 0, linked: 0, copied: 0 };
    fill(&snapshot, &mut backup).map_err(failed)?;
    let scan = recovery::read(&Snapshot::take(to)?)?.0;
    if let Some(damage) = scan.damages.iter().find(|damage| damage.effect == DamageEffect::NotOpened) {
        return Err(JournalError::Damaged {
            place: damage.place.clone(),
            offset: damage.offset,
            what: damage.what.clone(),
            directory: from.display().to_string(),
        });
    }
    (backup.threads, backup.records) = (scan.index.len(), scan.records);
    Ok(backup)
}

fn fill(snapshot: &Snapshot, backup: &mut Backup) -> io::Result<()> {
    let segments = snapshot.segments()?;
    let last = of_kind(&segments, Kind::Log).next_back().map(|(segment, _)| segment);
    for (segment, length) in segments {
        let path = backup.directory.join(file_name(segment));
        let bytes = match Kind::of(segment) {
            // An opening does without.
            Kind::Checkpoint => continue,
            Kind::Log if Some(segment) == last => {
                let mut bytes = read_all(snapshot, segment, length)?;
                bytes.truncate(end_of_batches(&bytes));
                Some(bytes)
            }
            Kind::Manifest => Some(read_all(snapshot, segment, length)?),
            Kind::Log | Kind::Pack if link(snapshot, segment, &path)? => None,
            Kind::Log | Kind::Pack => Some(read_all(snapshot, segment, length)?),
        };
        match bytes {
            Some(bytes) => {
                write(&path, &bytes)?;
                backup.copied += 1;
            }
            None => backup.linked += 1,
        }
    }
    match fs::read(snapshot.path().join(KEY_FILE)) {
        Ok(key) => write(&backup.directory.join(KEY_FILE), &key)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    File::open(&backup.directory)?.sync_all()
}

/// Where the last batch ends that is whole. What follows is being written at this moment.
fn end_of_batches(bytes: &[u8]) -> usize {
    let mut at = SEGMENT_HEAD.min(bytes.len());
    while let Some(found) = batch::find(bytes, at, 0) {
        let end = at + found.end.length as usize;
        let is_followed = || batch::find_next_head(bytes, end, found.end.sequence + 1).is_some();
        if end > bytes.len() || !found.is_whole() && !is_followed() {
            return at;
        }
        at = end;
    }
    // What cannot be read although something follows it is damage, and stays as it is.
    if batch::find_next_head(bytes, at, 0).is_some() { bytes.len() } else { at }
}

/// Links a file that never changes any more. Whether it could be done.
fn link(snapshot: &Snapshot, segment: u32, to: &Path) -> io::Result<bool> {
    if fs::hard_link(snapshot.path().join(file_name(segment)), to).is_err() {
        return Ok(false);
    }
    // It may be another one by now.
    let (ours, linked) = (snapshot.file(segment)?.0.metadata()?, fs::metadata(to)?);
    let is_same = (ours.dev(), ours.ino()) == (linked.dev(), linked.ino());
    if !is_same {
        fs::remove_file(to)?;
    }
    Ok(is_same)
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}
