//! A pack that is being written: blocks of many threads, and what they were compressed with.
//!
//! In: runs of records. Out: a segment of its own, in batches as the log's are. Always: nothing refers to it before it is
//! whole and on stable storage; its dictionary stands at both ends, so that one damaged place leaves the other.

use super::batch::Batch;
use super::block::{self, BlockHead};
use super::dictionary::{Dictionary, Packing};
use super::disk::{Disk, Kind, number_of, of_kind};
use super::format::{FrameHead, Location, Row, SEGMENT_HEAD, SegmentHead, VERSION, kind};
use super::manifest::Pack;
use slackwater_core::id::{CallId, Number, ThreadId};
use std::io;

/// How much is gathered for a write.
const BATCH_BYTES: usize = 1 << 20;
/// How much is written between two syncs, so that a commit that comes meanwhile does not wait for long.
pub(super) const SYNC_BYTES: u64 = 4 << 20;

/// A pack under way.
pub(super) struct PackWriter<'a> {
    disk: &'a dyn Disk,
    packing: &'a mut Packing,
    batch: Batch,
    segment: u32,
    end: u64,
    synced: u64,
    sequence: u64,
}

/// A block that was written, and what the index needs of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written {
    pub(super) location: Location,
    pub(super) length: u32,
}

impl<'a> PackWriter<'a> {
    /// Begins a pack with the next number after `last` and after those that are there.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn begin(disk: &'a dyn Disk, packing: &'a mut Packing, last: u32) -> io::Result<Self> {
        let segments = disk.segments()?;
        let there = of_kind(&segments, Kind::Pack).next_back().map_or(0, |(there, _)| number_of(there));
        let segment = Kind::Pack.segment(last.max(there) + 1);
        disk.create(segment)?;
        disk.write_at(segment, 0, &SegmentHead { version: VERSION, segment, first: 1 }.write())?;
        let end = SEGMENT_HEAD as u64;
        let mut writer = Self { disk, packing, batch: Batch::default(), segment, end, synced: 0, sequence: 1 };
        writer.begin_batch();
        writer.push_dictionary();
        Ok(writer)
    }

    pub(super) fn segment(&self) -> u32 {
        self.segment
    }

    /// How long it is up to now.
    pub(super) fn bytes(&self) -> u64 {
        self.end + self.batch.length() as u64
    }

    /// Appends a thread's records from `first` through `through`; `previous` is the block before them.
    ///
    /// # Errors
    /// When the disk fails, or there is no memory to compress.
    pub(super) fn push(
        &mut self,
        thread: ThreadId,
        (first, through): (Number, Number),
        previous: Location,
        rest: Option<Vec<(CallId, u64)>>,
        raw: &[u8],
    ) -> io::Result<Written> {
        let compressed = self.packing.compress(raw)?;
        let head = BlockHead { first, rest, dictionary: self.packing.key(), raw: raw.len() as u32 };
        let row = Row { thread, number: through, kind: kind::BLOCK, length: 0 };
        let before = self.batch.length();
        let location = self.batch.push(FrameHead { row, previous, at_ms: 0 }, |bytes| {
            block::write(&head, &compressed, bytes);
        });
        let length = (self.batch.length() - before - super::format::ROW) as u32;
        if self.batch.length() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(Written { location, length })
    }

    /// Ends it and makes it durable.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn end(mut self) -> io::Result<Pack> {
        if self.sequence > 1 || self.batch.count() > 1 {
            self.push_dictionary();
        }
        self.flush()?;
        self.disk.sync(self.segment)?;
        self.disk.sync_directory()?;
        Ok(Pack { segment: self.segment, bytes: u32::try_from(self.end).unwrap_or(u32::MAX), dead: 0 })
    }

    fn push_dictionary(&mut self) {
        let Some(Dictionary { key, bytes }) = self.packing.dictionary.clone() else { return };
        let row = Row { thread: ThreadId::from_bytes([0; 16]), number: key.into(), kind: kind::DICTIONARY, length: 0 };
        let head = FrameHead { row, previous: Location::default(), at_ms: 0 };
        self.batch.push(head, |to| to.extend_from_slice(&bytes));
    }

    fn begin_batch(&mut self) {
        let offset = u32::try_from(self.end).expect("invariant: a pack is below 4 GiB");
        self.batch.begin(Location { segment: self.segment, offset });
    }

    fn flush(&mut self) -> io::Result<()> {
        if !self.batch.is_empty() {
            let bytes = self.batch.seal(self.sequence);
            self.disk.write_at(self.segment, self.end, bytes)?;
            self.end += bytes.len() as u64;
            self.sequence += 1;
            if self.end - self.synced >= SYNC_BYTES {
                self.disk.sync(self.segment)?;
                self.synced = self.end;
            }
        }
        self.begin_batch();
        Ok(())
    }
}
