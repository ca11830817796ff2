//! Recovery: makes a disk ready for the next batch.
//!
//! In: a disk as the last run left it, by a clean end or not. Out: a segment and a place in it to write on. Always: what
//! was acknowledged is there or is named as damaged; what is kept is on stable storage before anybody is told of it.

use super::batch::{self, Batch};
use super::damage::DamageEffect;
use super::disk::Disk;
use super::error::JournalError;
use super::format::{Location, SEGMENT_HEAD, SegmentHead, VERSION};
use super::scan::{Scan, Tail, scan};

/// Where the writer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: u32,
    /// The length of the segment.
    pub(super) end: u64,
    /// The number of the next batch.
    pub(super) sequence: u64,
}

/// Reads the disk, cuts a torn tail and makes the end of the journal whole.
///
/// # Errors
/// When the disk fails, and when damage cannot be put down to certain threads.
pub(super) fn recover(disk: &dyn Disk) -> Result<(Scan, Position), JournalError> {
    // (a) What is there.
    let scan = scan(disk)?;
    for damage in &scan.damages {
        tracing::error!(place = %damage.place, offset = damage.offset, threads = ?damage.threads, effect = ?damage.effect, "journal damage: {}", damage.what);
    }
    if let Some(damage) = scan.damages.iter().find(|damage| damage.effect == DamageEffect::NotOpened) {
        return Err(JournalError::Damaged {
            place: damage.place.clone(),
            offset: damage.offset,
            what: damage.what.clone(),
            directory: disk.directory(),
        });
    }
    if let Some(torn) = &scan.torn {
        tracing::warn!(place = %disk.place(torn.segment), offset = torn.offset, bytes = torn.bytes, "cut the torn tail of the journal: the last write did not come to its end, and nothing in it was acknowledged");
    }
    // (b) The end, made whole and durable. It is written again even if it looks whole: after a sync that failed the
    // system's cache may show bytes that never reached the disk, and only a new write makes a sync try again.
    let sequence = scan.sequence;
    let position = match &scan.tail {
        Tail::Nothing => return Ok((scan, begin_segment(disk, 1, sequence)?)),
        Tail::Header { segment } => begin_again(disk, *segment, sequence)?,
        Tail::Batch { segment, offset, found } => {
            let mut batch = Batch::default();
            let bytes = if found.is_whole() {
                batch::refill(&mut batch, &scan.last, Location { segment: *segment, offset: *offset as u32 }, found);
                batch.seal(found.end.sequence)
            } else {
                &scan.last[*offset..*offset + found.end.length as usize]
            };
            let end = *offset as u64 + bytes.len() as u64;
            disk.write_at(*segment, *offset as u64, bytes).map_err(failed("write", disk, *segment))?;
            disk.truncate(*segment, end).map_err(failed("cut", disk, *segment))?;
            disk.sync(*segment).map_err(failed("sync", disk, *segment))?;
            Position { segment: *segment, end, sequence }
        }
    };
    disk.sync_directory().map_err(failed("sync the directory of", disk, position.segment))?;
    Ok((scan, position))
}

/// Makes a segment and its name durable.
///
/// # Errors
/// When the disk fails.
pub(super) fn begin_segment(disk: &dyn Disk, segment: u32, sequence: u64) -> Result<Position, JournalError> {
    disk.create(segment).map_err(failed("make", disk, segment))?;
    let position = begin_again(disk, segment, sequence)?;
    disk.sync_directory().map_err(failed("sync the directory of", disk, segment))?;
    Ok(position)
}

fn begin_again(disk: &dyn Disk, segment: u32, sequence: u64) -> Result<Position, JournalError> {
    let head = SegmentHead { version: VERSION, segment, first: sequence }.write();
    disk.write_at(segment, 0, &head).map_err(failed("write", disk, segment))?;
    disk.truncate(segment, SEGMENT_HEAD as u64).map_err(failed("cut", disk, segment))?;
    disk.sync(segment).map_err(failed("sync", disk, segment))?;
    Ok(Position { segment, end: SEGMENT_HEAD as u64, sequence })
}

/// Names what failed on which segment.
pub(super) fn failed<'a>(
    action: &'static str,
    disk: &'a dyn Disk,
    segment: u32,
) -> impl FnOnce(std::io::Error) -> JournalError + use<'a> {
    move |source| JournalError::Disk { action, place: disk.place(segment), source }
}
