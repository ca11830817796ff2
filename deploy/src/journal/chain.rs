//! A thread's records, read from the disk.
//!
//! In: where its last record is. Out: its records, oldest first. Always: all of them or words that say what is damaged;
//! what was checked when it was written is checked again when it is read: checksum, thread, number.

use super::body;
use super::disk::{Disk, is_lost};
use super::format::{FRAME_HEAD, FrameHead, kind};
use super::index::Entry;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::record::{Arrival, Committed};
use std::io;

/// How much is read at first; most frames are not longer.
const READ_BYTES: usize = 2048;

/// Why a thread's records were not read.
#[derive(Debug)]
pub(super) enum Unread {
    /// They are damaged; the words say where and how.
    Damaged(String),
    /// The disk failed.
    Disk(u32, io::Error),
    /// The journal is closing.
    Stopped,
}

/// Reads a thread's records with numbers below `before`. `stop` is asked before each.
///
/// # Errors
/// See [`Unread`].
pub(super) fn read(
    disk: &dyn Disk,
    thread: ThreadId,
    head: Entry,
    before: Number,
    mut stop: impl FnMut() -> bool,
) -> Result<Vec<Committed>, Unread> {
    let mut records = Vec::with_capacity(usize::try_from(head.last().min(before).min(4096)).unwrap_or(0));
    let mut buffer = Vec::new();
    let mut at = head.location;
    for number in (1..=head.last()).rev() {
        if stop() {
            return Err(Unread::Stopped);
        }
        let damaged =
            |what: String| Unread::Damaged(format!("{} at byte {}: {what}", disk.place(at.segment), at.offset));
        let length =
            fill(disk, at.segment, u64::from(at.offset), &mut buffer).map_err(|error| match is_lost(&error) {
                true => damaged(format!("record {number} cannot be read: {error}")),
                false => Unread::Disk(at.segment, error),
            })?;
        let Some((frame, body)) = FrameHead::read(&buffer[..length]) else {
            return Err(damaged(format!("record {number} does not match its checksum")));
        };
        if (frame.row.thread, frame.row.number, frame.row.kind) != (thread, number, kind::RECORD) {
            return Err(damaged(format!("record {number} should be here, and another one is")));
        }
        if number < before {
            let record = body::read_record(body).map_err(|what| damaged(format!("record {number}: {what}")))?;
            records.push(Committed { number, arrival: Arrival { ticket: None, thread, at_ms: frame.at_ms, record } });
        }
        at = frame.previous;
    }
    records.reverse();
    Ok(records)
}

/// What a thread inherits: its ancestors, the oldest first, each with the records that the next one inherits.
pub(super) type Ancestry = Vec<(ThreadId, Vec<Committed>)>;

/// A thread's ancestry and its records with numbers below `before`; `read` reads one thread's. Who the ancestors are is said
/// by first records.
///
/// # Errors
/// What `read` fails with.
pub(super) fn inherited<E>(
    thread: ThreadId,
    before: Number,
    mut read: impl FnMut(ThreadId, Number) -> Result<Vec<Committed>, E>,
) -> Result<(Ancestry, Vec<Committed>), E> {
    let base = |records: &[Committed]| records.first().and_then(|first| first.arrival.record.base());
    let mut records = read(thread, before.max(2))?;
    let mut ancestry = Ancestry::new();
    let mut next = base(&records);
    while let Some((ancestor, through)) = next {
        let shared = read(ancestor, through + 1)?;
        next = base(&shared);
        ancestry.push((ancestor, shared));
    }
    ancestry.reverse();
    records.retain(|record| record.number < before);
    Ok((ancestry, records))
}

/// Reads the frame at a place into the buffer, as far as there is one. Returns how many bytes were read.
fn fill(disk: &dyn Disk, segment: u32, offset: u64, buffer: &mut Vec<u8>) -> io::Result<usize> {
    buffer.resize(READ_BYTES, 0);
    let mut read = match disk.read_at(segment, offset, buffer) {
        // A location that leads nowhere is damage, not a failing disk.
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        read => read?,
    };
    let wanted = FRAME_HEAD + FrameHead::stated_length(&buffer[..read]).unwrap_or(0);
    // The length is not vouched for yet: no more memory is taken than twice what the segment really holds.
    while read == buffer.len() && read < wanted {
        buffer.resize(wanted.min(2 * read), 0);
        read += disk.read_at(segment, offset + read as u64, &mut buffer[read..])?;
    }
    Ok(read)
}
