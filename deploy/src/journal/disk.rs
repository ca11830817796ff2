//! The seam between the journal and the disk.
//!
//! In: numbered segments and bytes. Out: what was written, after a crash as far as it was synced. Always: every read and
//! write of the journal goes through here, so a test can put a disk under it that fails, tears and forgets.

use super::memory::MemorySegment;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Where segments are kept. Methods may be called from several threads; only one thread writes.
pub trait Disk: Send + Sync {
    /// The segments that exist, in ascending order, with their lengths in bytes.
    fn segments(&self) -> io::Result<Vec<(u32, u64)>>;

    /// Makes an empty segment; an error if it exists.
    fn create(&self, segment: u32) -> io::Result<()>;

    /// Writes all the bytes at the offset, which is at most the segment's length. They may be lost until `sync`.
    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns when all that was written to the segment is on stable storage. After an error the segment's contents since
    /// the last sync are unknown, and a second call proves nothing.
    fn sync(&self, segment: u32) -> io::Result<()>;

    /// Fills the buffer from the offset and returns how many bytes there were; fewer than asked only at the segment's end.
    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Cuts the segment to this length. May be undone by a crash until `sync`.
    fn truncate(&self, segment: u32, length: u64) -> io::Result<()>;

    /// Removes the segment. May be undone by a crash until `sync_directory`.
    fn remove(&self, segment: u32) -> io::Result<()>;

    /// Returns when the making and removing of segments is on stable storage.
    fn sync_directory(&self) -> io::Result<()>;

    /// The name of the whole, for messages: a path.
    fn directory(&self) -> String;

    /// The name of a segment, for messages: a path.
    fn place(&self, segment: u32) -> String {
        format!("{}/{}", self.directory(), file_name(segment))
    }
}

/// Whether an error says that the disk has lost the place that was read, and not that reading failed as such. Other
/// places may well be readable.
pub(super) fn is_lost(error: &io::Error) -> bool {
    let lost = [rustix::io::Errno::IO, rustix::io::Errno::NODATA, rustix::io::Errno::ILSEQ];
    error.raw_os_error().is_some_and(|code| lost.iter().any(|errno| errno.raw_os_error() == code))
}

/// The name of a segment's file.
pub(super) fn file_name(segment: u32) -> String {
    format!("{segment:010}.segment")
}

/// A disk in memory, for agents without a directory. It survives nothing.
#[derive(Debug, Default)]
pub struct MemoryDisk(Mutex<BTreeMap<u32, MemorySegment>>);

impl MemoryDisk {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u32, MemorySegment>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        Ok(self.lock().iter().map(|(&segment, bytes)| (segment, bytes.length())).collect())
    }

    fn create(&self, segment: u32) -> io::Result<()> {
        match self.lock().insert(segment, MemorySegment::default()) {
            None => Ok(()),
            Some(_) => Err(io::ErrorKind::AlreadyExists.into()),
        }
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut segments = self.lock();
        segments.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?.write_at(offset, bytes);
        Ok(())
    }

    fn sync(&self, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let segments = self.lock();
        Ok(segments.get(&segment).ok_or(io::ErrorKind::NotFound)?.read_at(offset, buffer))
    }

    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.lock().get_mut(&segment).ok_or(io::ErrorKind::NotFound)?.truncate(length);
        Ok(())
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        self.lock().remove(&segment).map(drop).ok_or(io::ErrorKind::NotFound.into())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn directory(&self) -> String {
        "(memory)".to_owned()
    }
}

/// Writes into a segment that a test holds in memory, growing it with zeros as a file would.
#[cfg(test)]
pub(super) fn write_into(segment: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let offset = offset as usize;
    let end = offset + bytes.len();
    if segment.len() < end {
        segment.resize(end, 0);
    }
    segment[offset..end].copy_from_slice(bytes);
}

/// Reads from a segment that a test holds in memory.
#[cfg(test)]
pub(super) fn read_from(segment: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let rest = segment.get(offset as usize..).unwrap_or_default();
    let length = rest.len().min(buffer.len());
    buffer[..length].copy_from_slice(&rest[..length]);
    length
}
