//! The bytes of a segment: its header, the head and foot of a batch, a frame's head and a row of a batch's table.
//!
//! In: values. Out: bytes of fixed length, little-endian, and back. Always: every piece has a checksum of its own (CRC32C)
//! over all its other bytes; what does not match it is read as nothing. The page `deploy/docs/journal-format.md` says the
//! same in boxes.

use slackwater_core::id::{Number, ThreadId};

/// The version of all that is described here, in each segment's header. Those of version 1 have no packs, and are read.
pub(super) const VERSION: u16 = 2;

/// Where a frame begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Location {
    /// The segment, counted from 1; 0 stands for nowhere.
    pub(super) segment: u32,
    /// The byte in it.
    pub(super) offset: u32,
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SegmentHead {
    pub(super) version: u16,
    pub(super) segment: u32,
    /// The sequence number of its first batch.
    pub(super) first: u64,
}

pub(super) const SEGMENT_HEAD: usize = 32;
const SEGMENT_MAGIC: [u8; 8] = *b"\xffslackw\xfe";

impl SegmentHead {
    pub(super) fn write(self) -> [u8; SEGMENT_HEAD] {
        let mut bytes = [0; SEGMENT_HEAD];
        bytes[4..12].copy_from_slice(&SEGMENT_MAGIC);
        bytes[12..14].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.first.to_le_bytes());
        sum(&mut bytes);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let bytes = summed(bytes.get(..SEGMENT_HEAD)?)?;
        (bytes[4..12] == SEGMENT_MAGIC).then(|| Self {
            version: u16::from_le_bytes([bytes[12], bytes[13]]),
            segment: u32_at(bytes, 16),
            first: u64_at(bytes, 20),
        })
    }
}

/// What stands at both ends of a batch, so that one damaged place leaves the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BatchEnd {
    /// The whole batch in bytes, both ends included.
    pub(super) length: u32,
    /// How many frames.
    pub(super) count: u32,
    /// The batch's place in the journal, counted from 1 without a gap.
    pub(super) sequence: u64,
    /// The checksum of its table.
    pub(super) table_sum: u32,
}

pub(super) const BATCH_END: usize = 32;
/// The head's mark. It holds bytes that no UTF-8 text has, so that nothing a user writes can pass for it.
pub(super) const HEAD_MAGIC: [u8; 4] = *b"\xffSB\xfe";
/// The foot's mark.
pub(super) const FOOT_MAGIC: [u8; 4] = *b"\xffSE\xfe";

impl BatchEnd {
    pub(super) fn write(self, magic: [u8; 4]) -> [u8; BATCH_END] {
        let mut bytes = [0; BATCH_END];
        bytes[4..8].copy_from_slice(&magic);
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.count.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.table_sum.to_le_bytes());
        sum(&mut bytes);
        bytes
    }

    pub(super) fn read(bytes: &[u8], magic: [u8; 4]) -> Option<Self> {
        let bytes = bytes.get(..BATCH_END)?;
        if bytes[4..8] != magic {
            return None;
        }
        let bytes = summed(bytes)?;
        let end = Self {
            length: u32_at(bytes, 8),
            count: u32_at(bytes, 12),
            sequence: u64_at(bytes, 16),
            table_sum: u32_at(bytes, 24),
        };
        (u64::from(end.length) >= 2 * BATCH_END as u64 + u64::from(end.count) * (ROW + FRAME_HEAD) as u64)
            .then_some(end)
    }
}

/// What a frame is: the last byte of its name. Values that are not here are of later versions.
pub(super) mod kind {
    /// A record of a thread.
    pub(in super::super) const RECORD: u8 = 1;
    /// A hint that a thread had come to rest.
    pub(in super::super) const REST: u8 = 2;
    /// A run of a thread's records, packed; named by the last of them. In packs only.
    pub(in super::super) const BLOCK: u8 = 3;
    /// What the blocks of a pack were compressed with; its number is its key. In packs only.
    pub(in super::super) const DICTIONARY: u8 = 4;
}

/// A frame's name, as it stands in its head and again in its batch's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) thread: ThreadId,
    /// The record's number; of a rest, the number of the last record it covers. Below 2^56.
    pub(super) number: Number,
    pub(super) kind: u8,
    /// The body's length in bytes.
    pub(super) length: u32,
}

pub(super) const ROW: usize = 28;

impl Row {
    pub(super) fn write(self) -> [u8; ROW] {
        let mut bytes = [0; ROW];
        bytes[..4].copy_from_slice(&self.length.to_le_bytes());
        bytes[4..20].copy_from_slice(self.thread.as_bytes());
        bytes[20..28].copy_from_slice(&(self.number | u64::from(self.kind) << 56).to_le_bytes());
        bytes
    }

    pub(super) fn read(bytes: &[u8; ROW]) -> Self {
        let mut thread = [0; 16];
        thread.copy_from_slice(&bytes[4..20]);
        let name = u64_at(bytes, 20);
        Self {
            length: u32_at(bytes, 0),
            thread: ThreadId::from_bytes(thread),
            number: name & ((1 << 56) - 1),
            kind: (name >> 56) as u8,
        }
    }
}

/// What stands before a frame's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHead {
    pub(super) row: Row,
    /// The thread's previous record; of a block, the block before it.
    pub(super) previous: Location,
    /// When the record was received, in milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
}

pub(super) const FRAME_HEAD: usize = 48;

impl FrameHead {
    /// Completes a frame: its bytes begin with room for the head, and the body follows.
    pub(super) fn write(self, frame: &mut [u8]) {
        frame[4..32].copy_from_slice(&self.row.write());
        frame[32..36].copy_from_slice(&self.previous.segment.to_le_bytes());
        frame[36..40].copy_from_slice(&self.previous.offset.to_le_bytes());
        frame[40..48].copy_from_slice(&self.at_ms.to_le_bytes());
        sum(frame);
    }

    /// The body's length that a frame states, which nothing vouches for yet.
    pub(super) fn stated_length(bytes: &[u8]) -> Option<usize> {
        bytes.get(..8).map(|bytes| u32_at(bytes, 4) as usize)
    }

    /// The frame that these bytes begin with, and its body; nothing if it is not whole.
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let length = Self::stated_length(bytes)?;
        let frame = summed(bytes.get(..FRAME_HEAD.checked_add(length)?)?)?;
        let mut row = [0; ROW];
        row.copy_from_slice(&frame[4..32]);
        let head = Self {
            row: Row::read(&row),
            previous: Location { segment: u32_at(frame, 32), offset: u32_at(frame, 36) },
            at_ms: u64_at(frame, 40),
        };
        Some((head, &frame[FRAME_HEAD..]))
    }
}

/// Writes into the first four bytes the checksum of all others.
pub(super) fn sum(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&sum.to_le_bytes());
}

/// The bytes, if their first four are the checksum of the others.
pub(super) fn summed(bytes: &[u8]) -> Option<&[u8]> {
    (u32_at(bytes, 0) == crc32c::crc32c(&bytes[4..])).then_some(bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("invariant: four bytes"))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("invariant: eight bytes"))
}
