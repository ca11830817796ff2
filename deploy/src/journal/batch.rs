//! A batch: the frames that are written and synced together.
//!
//! In: frames, one after another. Out: one contiguous run of bytes for one write. Always: frames begin right after the
//! head, so they are found without it; the table and the foot repeat what finding them needs.

use super::format::{BATCH_END, BatchEnd, FOOT_MAGIC, FRAME_HEAD, FrameHead, HEAD_MAGIC, Location, ROW, Row, kind};

/// A batch that is being filled. Its memory is used again for the next one.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    rows: Vec<Row>,
    at: Location,
}

impl Batch {
    /// Empties it; it will be written at this place.
    pub(super) fn begin(&mut self, at: Location) {
        self.bytes.clear();
        self.bytes.resize(BATCH_END, 0);
        self.rows.clear();
        self.at = at;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// Its length in bytes when it is sealed.
    pub(super) fn length(&self) -> usize {
        self.bytes.len() + self.rows.len() * ROW + BATCH_END
    }

    /// Appends a frame whose body `write` appends. Returns where the frame will be.
    pub(super) fn push(&mut self, head: FrameHead, write: impl FnOnce(&mut Vec<u8>)) -> Location {
        let start = self.bytes.len();
        self.bytes.resize(start + FRAME_HEAD, 0);
        write(&mut self.bytes);
        let length = u32::try_from(self.bytes.len() - start - FRAME_HEAD).expect("invariant: a body is below 4 GiB");
        let head = FrameHead { row: Row { length, ..head.row }, ..head };
        head.write(&mut self.bytes[start..]);
        self.rows.push(head.row);
        Location { segment: self.at.segment, offset: self.at.offset + start as u32 }
    }

    /// Takes the last frame back.
    pub(super) fn undo(&mut self) {
        if let Some(row) = self.rows.pop() {
            self.bytes.truncate(self.bytes.len() - FRAME_HEAD - row.length as usize);
        }
    }

    /// The bytes to be written.
    pub(super) fn seal(&mut self, sequence: u64) -> &[u8] {
        let table = self.bytes.len();
        self.rows.iter().for_each(|row| self.bytes.extend_from_slice(&row.write()));
        let end = BatchEnd {
            length: u32::try_from(self.bytes.len() + BATCH_END).expect("invariant: a batch is below 4 GiB"),
            count: self.rows.len() as u32,
            sequence,
            table_sum: crc32c::crc32c(&self.bytes[table..]),
        };
        self.bytes[..BATCH_END].copy_from_slice(&end.write(HEAD_MAGIC));
        self.bytes.extend_from_slice(&end.write(FOOT_MAGIC));
        &self.bytes
    }
}

/// A batch as it was found.
#[derive(Debug)]
pub(super) struct Found {
    /// What its head says, or its foot where the head is damaged.
    pub(super) end: BatchEnd,
    /// Its frames in order, as far as they are known.
    pub(super) frames: Vec<FoundFrame>,
    /// Where its frames end, from the segment's beginning.
    pub(super) frames_end: usize,
    /// What is damaged beside the frames.
    pub(super) flaws: Vec<&'static str>,
}

/// A frame as it was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundFrame {
    /// Where it begins in its segment.
    pub(super) offset: usize,
    /// Its name, from itself or from the table.
    pub(super) row: Row,
    /// Itself, if it is whole.
    pub(super) head: Option<FrameHead>,
}

impl Found {
    /// Whether each of its records is whole.
    pub(super) fn is_whole(&self) -> bool {
        self.is_accounted_for() && self.frames.iter().all(|frame| frame.head.is_some())
    }

    /// Whether each of its frames is known at least by name.
    pub(super) fn is_accounted_for(&self) -> bool {
        self.frames.len() == self.end.count as usize
    }
}

/// Reads the batch that begins at `at` in a segment. `sequence` is what its number should be, by which a foot without a
/// head is recognised. Nothing if neither its head nor its foot is there.
pub(super) fn find(segment: &[u8], at: usize, sequence: u64) -> Option<Found> {
    let mut flaws = Vec::new();
    let end = match BatchEnd::read(segment.get(at..)?, HEAD_MAGIC) {
        Some(end) => end,
        None => {
            flaws.push("the head of a batch does not match its checksum; its foot was used");
            find_foot(segment, at, sequence)?
        }
    };
    let stop = at + end.length as usize;
    if segment.get(stop - BATCH_END..).and_then(|foot| BatchEnd::read(foot, FOOT_MAGIC)) != Some(end) {
        flaws.push("the foot of a batch is damaged");
    }
    let table_at = stop - BATCH_END - end.count as usize * ROW;
    let table = segment.get(table_at..stop - BATCH_END).filter(|table| crc32c::crc32c(table) == end.table_sum);
    if table.is_none() {
        flaws.push("the table of a batch is damaged; its frames were used");
    }
    let mut frames = Vec::with_capacity(end.count as usize);
    let mut offset = at + BATCH_END;
    let within = &segment[..table_at.min(segment.len())];
    for index in 0..end.count as usize {
        let row =
            table.map(|table| Row::read(table[index * ROW..][..ROW].try_into().expect("invariant: a row's bytes")));
        let head = within.get(offset..).and_then(FrameHead::read).map(|(head, _)| head);
        // Either names the frame. That both are whole and disagree is a fault of a program; then neither is believed.
        let row = match (row, head) {
            (Some(row), Some(head)) if row != head.row => break,
            (Some(row), _) => row,
            (None, Some(head)) => head.row,
            (None, None) => break,
        };
        frames.push(FoundFrame { offset, row, head });
        offset += FRAME_HEAD + row.length as usize;
    }
    Some(Found { end, frames, frames_end: offset, flaws })
}

/// Looks for the foot of the batch that begins at `at`. It is this batch's only if it says so itself, by length and number.
fn find_foot(segment: &[u8], at: usize, sequence: u64) -> Option<BatchEnd> {
    marks(segment, at + BATCH_END, FOOT_MAGIC).find_map(|foot| {
        BatchEnd::read(&segment[foot..], FOOT_MAGIC)
            .filter(|end| end.sequence == sequence && foot + BATCH_END - at == end.length as usize)
    })
}

/// Where the next batch begins whose head is whole and whose number is at least `sequence`.
pub(super) fn find_next_head(segment: &[u8], from: usize, sequence: u64) -> Option<usize> {
    marks(segment, from, HEAD_MAGIC)
        .find(|&head| BatchEnd::read(&segment[head..], HEAD_MAGIC).is_some_and(|end| end.sequence >= sequence))
}

/// Where batch ends with this mark may begin.
fn marks(segment: &[u8], from: usize, magic: [u8; 4]) -> impl Iterator<Item = usize> + '_ {
    let from = from.min(segment.len());
    segment[from..].windows(8).enumerate().filter(move |(_, bytes)| bytes[4..] == magic).map(move |(at, _)| from + at)
}

/// Fills a batch again with the frames of one that was found whole, so that its ends and table are whole too.
pub(super) fn refill(batch: &mut Batch, segment: &[u8], at: Location, found: &Found) {
    batch.begin(at);
    for frame in &found.frames {
        let Some(head) = frame.head else { continue };
        let body = &segment[frame.offset + FRAME_HEAD..][..head.row.length as usize];
        batch.push(head, |bytes| bytes.extend_from_slice(body));
    }
}

/// The name of what a frame holds, for people.
pub(super) fn kind_name(kind: u8) -> &'static str {
    match kind {
        kind::RECORD => "record",
        kind::REST => "rest hint",
        kind::BLOCK => "block through record",
        kind::DICTIONARY => "dictionary",
        _ => "frame of a later version",
    }
}
