//! A directory as the journal's disk.
//!
//! In: a path. Out: a [`Disk`] whose segments are files. Always: one process owns a directory, by a lock on the file `lock`
//! that the system lets go of when the process ends in any way; files are for their owner only.

use super::disk::{Disk, file_name, segment_named};
use super::error::JournalError;
use rustix::fs::{FlockOperation, flock};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// How many segments' files are kept open, so that a large journal does not use up the process's file descriptors.
const OPEN_FILES_MAX: usize = 128;

/// A directory that this process owns.
#[derive(Debug)]
pub struct FileDisk {
    path: PathBuf,
    writable: bool,
    files: Mutex<BTreeMap<u32, Arc<File>>>,
    /// Held for its lock.
    lock: Option<File>,
}

impl FileDisk {
    /// Takes a directory, which is made when there is none.
    ///
    /// # Errors
    /// When it cannot be made, or another process has it.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        refuse_half_repaired(&path)?;
        Self::open_as_it_is(path)
    }

    /// Takes a directory even if a repair has not come to its end.
    ///
    /// # Errors
    /// See [`FileDisk::open`].
    pub(super) fn open_as_it_is(path: PathBuf) -> Result<Self, JournalError> {
        let failed = |path: &Path, source| JournalError::Directory { path: path.to_owned(), source };
        make_directory(&path).map_err(|error| failed(&path, error))?;
        let lock_path = path.join("lock");
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&lock_path)
            .map_err(|error| failed(&lock_path, error))?;
        take_lock(&mut lock, &path)?;
        lock.set_len(0)
            .and_then(|()| write!(lock, "{}", std::process::id()))
            .map_err(|error| failed(&lock_path, error))?;
        Ok(Self { path, writable: true, files: Mutex::default(), lock: Some(lock) })
    }

    /// Takes a directory only to look at it. Nothing in it is changed or made.
    ///
    /// # Errors
    /// When there is none, or another process has it.
    pub fn open_to_read(path: impl Into<PathBuf>) -> Result<Self, JournalError> {
        let path = path.into();
        refuse_half_repaired(&path)?;
        let failed = |path: &Path, source| JournalError::Directory { path: path.to_owned(), source };
        fs::read_dir(&path).map_err(|error| failed(&path, error))?;
        let lock_path = path.join("lock");
        let lock = match File::open(&lock_path) {
            Ok(mut lock) => take_lock(&mut lock, &path).map(|()| Some(lock))?,
            // Nothing has ever run here, so there is nobody to keep out.
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(&lock_path, error)),
        };
        Ok(Self { path, writable: false, files: Mutex::default(), lock })
    }

    fn file(&self, segment: u32) -> io::Result<Arc<File>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(&segment) {
            return Ok(file.clone());
        }
        let file = OpenOptions::new().read(true).write(self.writable).open(self.path.join(file_name(segment)))?;
        Ok(keep(&mut files, segment, file))
    }
}

impl Drop for FileDisk {
    fn drop(&mut self) {
        // Closing is not enough: a child that another thread is starting just now has the same open file until it runs its
        // program. If the system cannot unlock, closing is what is left.
        let _ = self.lock.as_ref().map(|lock| flock(lock, FlockOperation::Unlock));
    }
}

/// What says that a repair has been prepared, and is to be finished before anything else.
pub(super) const REPAIR_MARK: &str = "repair/prepared";

/// Refuses a directory that a repair has left half way: it may hold a part of the journal only.
pub(super) fn refuse_half_repaired(path: &Path) -> Result<(), JournalError> {
    match path.join(REPAIR_MARK).exists() {
        true => Err(JournalError::HalfRepaired { path: path.to_owned() }),
        false => Ok(()),
    }
}

fn keep(files: &mut BTreeMap<u32, Arc<File>>, segment: u32, file: File) -> Arc<File> {
    if files.len() >= OPEN_FILES_MAX {
        // Any other one; but not always the first, which may be the one that is written.
        let other = files.keys().nth(segment as usize % files.len()).copied();
        other.map(|other| files.remove(&other));
    }
    files.entry(segment).insert_entry(Arc::new(file)).get().clone()
}

fn make_directory(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    // The new name must survive a crash as the segments in it do.
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => File::open(parent)?.sync_all(),
        _ => File::open(".")?.sync_all(),
    }
}

fn take_lock(lock: &mut File, path: &Path) -> Result<(), JournalError> {
    match flock(&*lock, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(error) if error == rustix::io::Errno::WOULDBLOCK => {
            let mut owner = String::new();
            let known = lock.read_to_string(&mut owner).is_ok() && owner.parse::<u32>().is_ok();
            let owner = if known { format!("process {owner}") } else { "another process".to_owned() };
            Err(JournalError::Owned { path: path.to_owned(), owner })
        }
        Err(error) => Err(JournalError::Directory { path: path.join("lock"), source: error.into() }),
    }
}

impl Disk for FileDisk {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        let mut segments = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let entry = entry?;
            if let Some(segment) = entry.file_name().to_str().and_then(segment_named) {
                segments.push((segment, entry.metadata()?.len()));
            }
        }
        segments.sort_unstable();
        Ok(segments)
    }

    fn create(&self, segment: u32) -> io::Result<()> {
        let path = self.path.join(file_name(segment));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)?;
        keep(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner), segment, file);
        Ok(())
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.file(segment)?.write_all_at(bytes, offset)
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        self.file(segment)?.sync_data()
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let file = self.file(segment)?;
        let mut filled = 0;
        while filled < buffer.len() {
            match file.read_at(&mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(filled)
    }

    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.file(segment)?.set_len(length)
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).remove(&segment);
        fs::remove_file(self.path.join(file_name(segment)))
    }

    fn sync_directory(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }

    fn directory(&self) -> String {
        self.path.display().to_string()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn a_directory_is_free_when_its_disk_is_gone_even_if_a_child_has_the_lock_file_still() {
        let place = tempfile::tempdir().unwrap();
        let disk = FileDisk::open(place.path()).unwrap();
        assert!(matches!(FileDisk::open(place.path()), Err(JournalError::Owned { .. })));
        // The same open file, as a child has it between its fork and its program.
        let _inherited = disk.lock.as_ref().unwrap().try_clone().unwrap();
        drop(disk);
        FileDisk::open(place.path()).unwrap();
    }
}
