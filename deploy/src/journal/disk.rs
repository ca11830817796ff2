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

/// What a segment is for, by the two highest bits of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A piece of the log.
    Log,
    /// Which packs there are, and where the log begins.
    Manifest,
    /// Threads' records, packed.
    Pack,
    /// The index as it was.
    Checkpoint,
}

const KINDS: [(Kind, &str); 4] =
    [(Kind::Log, "segment"), (Kind::Manifest, "manifest"), (Kind::Pack, "pack"), (Kind::Checkpoint, "checkpoint")];

/// The highest number that each kind counts to.
const COUNT_MAX: u32 = (1 << 30) - 1;

impl Kind {
    /// The kind of a segment.
    pub(super) fn of(segment: u32) -> Self {
        KINDS[(segment >> 30) as usize].0
    }

    /// The segment of this kind with this number, counted from 1.
    pub(super) fn segment(self, number: u32) -> u32 {
        (self as u32) << 30 | number
    }
}

/// A segment's number among those of its kind.
pub(super) fn number_of(segment: u32) -> u32 {
    segment & COUNT_MAX
}

/// The segments of one kind, in ascending order.
pub(super) fn of_kind(segments: &[(u32, u64)], kind: Kind) -> impl DoubleEndedIterator<Item = (u32, u64)> + '_ {
    segments.iter().copied().filter(move |(segment, _)| Kind::of(*segment) == kind)
}

/// The name of a segment's file.
pub(super) fn file_name(segment: u32) -> String {
    format!("{:010}.{}", number_of(segment), KINDS[(segment >> 30) as usize].1)
}

/// The segment whose file has this name.
pub(super) fn segment_named(name: &str) -> Option<u32> {
    let (number, suffix) = name.split_once('.')?;
    let (kind, _) = KINDS.iter().find(|(_, known)| *known == suffix)?;
    let number = number.parse().ok().filter(|number| (1..=COUNT_MAX).contains(number))?;
    Some(kind.segment(number)).filter(|segment| file_name(*segment) == name)
}

/// Reads a whole segment.
pub(super) fn read_all(disk: &dyn Disk, segment: u32, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    match disk.read_at(segment, 0, &mut bytes)? {
        read if read == bytes.len() => Ok(bytes),
        // The segment was that long a moment ago. What is missing is not its end.
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
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
