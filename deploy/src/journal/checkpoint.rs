//! A checkpoint: the index as it was at a place in the log, so that an opening reads only what follows that place.
//!
//! In: the index while it changes, and the timers of those that rest. Out: a segment of its own, and an index again. Always:
//! it is never needed: one that is torn, damaged, too old or of another journal is passed over, and the log is read instead.
//!
//! The index goes on changing while it is written: an entry may be of a record after the place where reading begins. So a
//! checkpoint names two places, one from before it was begun and one from after, by the bytes that stand before them. Who
//! opens reads on from the first, passes over what the entries know already, and must come by the second.

use super::disk::{Disk, Kind, of_kind};
use super::format::{Location, VERSION, sum, summed, u32_at, u64_at};
use super::index::{Entry, Index, PARTS};
use super::manifest::Manifest;
use super::pack::SYNC_BYTES;
use super::sleepers::Sleepers;
use serde::{Deserialize, Serialize};
use slackwater_core::id::ThreadId;
use slackwater_core::port::Rest;
use std::io;

/// How much is written and read at a time.
const CHUNK_BYTES: usize = 1 << 20;
const PIECE_HEAD: usize = 12;
const ENTRY: usize = 32;
/// How many rests are in a piece.
const RESTS: usize = 4096;

/// A durable place in the log: the end of a batch or of a segment's header, and the 32 bytes before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Mark {
    pub(super) segment: u32,
    pub(super) end: u64,
    /// The number of the next batch.
    pub(super) sequence: u64,
    pub(super) foot: [u8; 32],
}

impl Mark {
    /// Whether the log has these bytes at this place.
    fn is_in(&self, disk: &dyn Disk) -> bool {
        let mut foot = [0; 32];
        let at = self.end.checked_sub(32);
        at.is_some_and(|at| disk.read_at(self.segment, at, &mut foot).is_ok_and(|read| read == 32)) && foot == self.foot
    }
}

mod piece {
    pub(super) const HEAD: u8 = 1;
    pub(super) const ENTRIES: u8 = 2;
    pub(super) const RESTS: u8 = 3;
    pub(super) const END: u8 = 4;
}

#[derive(Serialize, Deserialize)]
struct Head {
    version: u16,
    start: Mark,
    /// About how many threads.
    threads: u64,
    /// The packs whose blocks the entries may be in.
    packs: Vec<u32>,
}

#[derive(Serialize, Deserialize)]
struct End {
    finish: Mark,
    entries: u64,
    rests: u64,
}

/// Writes a checkpoint piece by piece.
pub(super) struct Writing<'a> {
    disk: &'a dyn Disk,
    segment: u32,
    at: u64,
    synced: u64,
    buffer: Vec<u8>,
    entries: u64,
    rests: u64,
}

impl<'a> Writing<'a> {
    /// Begins one. `start` is from before this moment.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn begin(disk: &'a dyn Disk, start: Mark, threads: u64, manifest: &Manifest) -> io::Result<Self> {
        let segments = disk.segments()?;
        let last = of_kind(&segments, Kind::Checkpoint).next_back();
        let segment = last.map_or_else(|| Kind::Checkpoint.segment(1), |(last, _)| last + 1);
        disk.create(segment)?;
        let mut writing = Self { disk, segment, at: 0, synced: 0, buffer: Vec::new(), entries: 0, rests: 0 };
        let packs = manifest.packs.iter().map(|pack| pack.segment).collect();
        writing.push(piece::HEAD, &encode(&Head { version: VERSION, start, threads, packs }))?;
        Ok(writing)
    }

    /// Adds all entries of an index, and says after each part how many bytes that were.
    ///
    /// # Errors
    /// When the disk fails, or what `each` fails with.
    pub(super) fn entries<E: From<io::Error>>(
        &mut self,
        index: &Index,
        mut each: impl FnMut(u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in 0..PARTS {
            let entries = index.part_entries(part);
            let mut bytes = Vec::with_capacity(entries.len() * ENTRY);
            for (thread, entry) in &entries {
                let (location, number) = entry.to_bits();
                bytes.extend_from_slice(thread.as_bytes());
                bytes.extend_from_slice(&location.segment.to_le_bytes());
                bytes.extend_from_slice(&location.offset.to_le_bytes());
                bytes.extend_from_slice(&number.to_le_bytes());
            }
            self.entries += entries.len() as u64;
            if !bytes.is_empty() {
                self.push(piece::ENTRIES, &bytes)?;
                each(bytes.len() as u64)?;
            }
        }
        Ok(())
    }

    /// Adds rests.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn rests(&mut self, mut rests: impl Iterator<Item = Rest>) -> io::Result<()> {
        loop {
            let some: Vec<Rest> = rests.by_ref().take(RESTS).collect();
            if some.is_empty() {
                return Ok(());
            }
            self.rests += some.len() as u64;
            self.push(piece::RESTS, &encode(&some))?;
        }
    }

    /// Ends it, makes it durable and removes those before it. `finish` is from after the last entry.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn end(mut self, finish: Mark) -> io::Result<u32> {
        let end = End { finish, entries: self.entries, rests: self.rests };
        self.push(piece::END, &encode(&end))?;
        self.flush()?;
        self.disk.sync(self.segment)?;
        self.disk.sync_directory()?;
        remove_others(self.disk, Some(self.segment))?;
        Ok(self.segment)
    }

    fn push(&mut self, kind: u8, body: &[u8]) -> io::Result<()> {
        let mut head = [0; PIECE_HEAD];
        head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        head[8] = kind;
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&head);
        self.buffer.extend_from_slice(body);
        sum(&mut self.buffer[start..]);
        if self.buffer.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.disk.write_at(self.segment, self.at, &self.buffer)?;
        self.at += self.buffer.len() as u64;
        self.buffer.clear();
        if self.at - self.synced >= SYNC_BYTES {
            self.disk.sync(self.segment)?;
            self.synced = self.at;
        }
        Ok(())
    }
}

fn encode<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    postcard::to_allocvec(value).expect("invariant: a checkpoint is plain data")
}

/// Removes all checkpoints but this one.
///
/// # Errors
/// When the disk fails.
pub(super) fn remove_others(disk: &dyn Disk, kept: Option<u32>) -> io::Result<()> {
    let segments = disk.segments()?;
    let others = of_kind(&segments, Kind::Checkpoint).filter(|(segment, _)| Some(*segment) != kept);
    others.into_iter().try_for_each(|(segment, _)| disk.remove(segment))
}

/// What a checkpoint says.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) segment: u32,
    pub(super) index: Index,
    pub(super) rests: Sleepers,
    pub(super) start: Mark,
    pub(super) finish: Mark,
    pub(super) packs: Vec<u32>,
}

/// The newest checkpoint that is whole, of this journal, and refers to nothing that is gone.
pub(super) fn load(disk: &dyn Disk, segments: &[(u32, u64)], manifest: &Manifest) -> Option<Loaded> {
    of_kind(segments, Kind::Checkpoint).rev().find_map(|(segment, length)| {
        let loaded = read(disk, segment, length, |location| manifest.holds(location.segment));
        if loaded.is_none() {
            tracing::warn!(place = %disk.place(segment), "the checkpoint is not whole or not of this journal as it is; the log is read instead");
        }
        loaded
    })
}

fn read(disk: &dyn Disk, segment: u32, length: u64, holds: impl Fn(Location) -> bool) -> Option<Loaded> {
    let mut pieces = Pieces { disk, segment, length, at: 0, buffer: Vec::new() };
    let (kind, body) = pieces.next()?;
    let head: Head = (kind == piece::HEAD).then(|| postcard::from_bytes(body).ok())??;
    if head.version > VERSION || !head.start.is_in(disk) || !holds(Location { segment: head.start.segment, offset: 0 })
    {
        return None;
    }
    let index = Index::default();
    index.reserve(usize::try_from(head.threads.min(length / ENTRY as u64)).ok()?);
    let (mut entries, mut rests) = (0, Sleepers::default());
    loop {
        let (kind, body) = pieces.next()?;
        match kind {
            piece::ENTRIES => {
                for bytes in body.chunks(ENTRY) {
                    let mut thread = [0; 16];
                    thread.copy_from_slice(bytes.get(..16).filter(|_| bytes.len() == ENTRY)?);
                    let location = Location { segment: u32_at(bytes, 16), offset: u32_at(bytes, 20) };
                    let entry = Entry::from_bits(location, u64_at(bytes, 24));
                    if entry.last() == 0 || !holds(location) {
                        return None;
                    }
                    index.set(ThreadId::from_bytes(thread), entry);
                    entries += 1;
                }
            }
            piece::RESTS => {
                let some: Vec<Rest> = postcard::from_bytes(body).ok()?;
                some.into_iter().for_each(|rest| rests.push(rest));
            }
            piece::END => {
                let end: End = postcard::from_bytes(body).ok()?;
                let is_whole = end.entries == entries && end.rests == rests.len() as u64 && end.finish.is_in(disk);
                let Head { start, packs, .. } = head;
                let finish = end.finish;
                return is_whole.then_some(Loaded { segment, index, rests, start, finish, packs });
            }
            _ => return None,
        }
    }
}

/// The rests of a checkpoint, piece by piece, to `each`. Nothing if it is not whole.
pub(super) fn read_rests(
    disk: &dyn Disk,
    segment: u32,
    mut each: impl FnMut(Vec<Rest>) -> io::Result<()>,
) -> io::Result<()> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "the checkpoint before this one cannot be read");
    let segments = disk.segments()?;
    let length =
        of_kind(&segments, Kind::Checkpoint).find(|(found, _)| *found == segment).map_or(0, |(_, length)| length);
    let mut pieces = Pieces { disk, segment, length, at: 0, buffer: Vec::new() };
    loop {
        match pieces.next().ok_or_else(unreadable)? {
            (piece::RESTS, body) => each(postcard::from_bytes(body).map_err(|_| unreadable())?)?,
            (piece::END, _) => return Ok(()),
            _ => {}
        }
    }
}

/// The pieces of a checkpoint, one after another.
struct Pieces<'a> {
    disk: &'a dyn Disk,
    segment: u32,
    length: u64,
    at: u64,
    buffer: Vec<u8>,
}

impl Pieces<'_> {
    /// The next piece, if it is whole.
    fn next(&mut self) -> Option<(u8, &[u8])> {
        let mut head = [0; PIECE_HEAD];
        self.disk.read_at(self.segment, self.at, &mut head).ok().filter(|read| *read == PIECE_HEAD)?;
        let length = PIECE_HEAD as u64 + u64::from(u32_at(&head, 4));
        if self.at + length > self.length {
            return None;
        }
        self.buffer.resize(length as usize, 0);
        self.disk.read_at(self.segment, self.at, &mut self.buffer).ok().filter(|read| *read == self.buffer.len())?;
        self.at += length;
        summed(&self.buffer).map(|bytes| (bytes[8], &bytes[PIECE_HEAD..]))
    }
}
