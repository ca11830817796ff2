//! Recovery: makes a disk ready for the next batch.
//!
//! In: a disk as the last run left it, by a clean end or not. Out: a segment and a place in it to write on. Always: what
//! was acknowledged is there or is named as damaged; what is kept is on stable storage before anybody is told of it.

use super::batch::{self, Batch};
use super::checkpoint::{self, Mark};
use super::damage::DamageEffect;
use super::disk::{Disk, Kind};
use super::error::JournalError;
use super::format::{Location, SEGMENT_HEAD, SegmentHead, VERSION};
use super::manifest::{Found, Manifest};
use super::scan::{Scan, Tail, scan_from};

/// Where the writer goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) segment: u32,
    /// The length of the segment.
    pub(super) end: u64,
    /// The number of the next batch.
    pub(super) sequence: u64,
}

impl Position {
    /// The place, with what stands before it.
    ///
    /// # Errors
    /// When the disk fails.
    pub(super) fn mark(self, disk: &dyn Disk) -> Result<Mark, JournalError> {
        let mut foot = [0; 32];
        disk.read_at(self.segment, self.end - 32, &mut foot).map_err(failed("read", disk, self.segment))?;
        Ok(Mark { segment: self.segment, end: self.end, sequence: self.sequence, foot })
    }
}

/// A disk that is ready.
pub(super) struct Recovered {
    pub(super) scan: Scan,
    pub(super) position: Position,
    /// The checkpoint from which it was read, and where that begins.
    pub(super) checkpoint: Option<(u32, Mark)>,
}

/// Reads the disk, cuts a torn tail and makes the end of the journal whole.
///
/// # Errors
/// When the disk fails, and when damage cannot be put down to certain threads.
pub(super) fn recover(disk: &dyn Disk) -> Result<Recovered, JournalError> {
    // (a) What is there.
    let (scan, checkpoint) = read(disk)?;
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
        Tail::Nothing => begin_segment(disk, scan.manifest.manifest.oldest, sequence)?,
        Tail::Header { segment } => begin_again(disk, *segment, sequence)?,
        // A checkpoint is written of what is durable only, so there is nothing to write again.
        Tail::Mark(Mark { segment, end, .. }) => {
            disk.truncate(*segment, *end).map_err(failed("cut", disk, *segment))?;
            disk.sync(*segment).map_err(failed("sync", disk, *segment))?;
            Position { segment: *segment, end: *end, sequence }
        }
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
    // (c) What belongs to nothing: left by a run that ended before it was finished with it.
    remove_leftovers(disk, &scan.manifest, checkpoint.map(|(segment, _)| segment))?;
    disk.sync_directory().map_err(failed("sync the directory of", disk, position.segment))?;
    Ok(Recovered { scan, position, checkpoint })
}

/// Reads the disk: from a checkpoint on, if there is one and all is well after it.
///
/// # Errors
/// When the disk fails.
pub(super) fn read(disk: &dyn Disk) -> Result<(Scan, Option<(u32, Mark)>), JournalError> {
    let failed = |action| move |source| JournalError::Disk { action, place: disk.directory(), source };
    let segments = disk.segments().map_err(failed("list"))?;
    let manifest = Manifest::find(disk, &segments).map_err(failed("read the manifest of"))?;
    if let Some(loaded) = checkpoint::load(disk, &segments, &manifest.manifest) {
        let (segment, start, finish) = (loaded.segment, loaded.start, loaded.finish);
        let scan = scan_from(disk, &segments, manifest.clone(), Some(loaded))?;
        if scan.damages.is_empty() && scan.sequence >= finish.sequence {
            return Ok((scan, Some((segment, start))));
        }
        tracing::warn!(place = %disk.place(segment), "what follows the checkpoint is not what it says; all of the log is read instead");
    }
    Ok((scan_from(disk, &segments, manifest, None)?, None))
}

fn remove_leftovers(disk: &dyn Disk, manifest: &Found, checkpoint: Option<u32>) -> Result<(), JournalError> {
    if let Some(segment) = manifest.segment {
        // Written again for the same reason as the last batch: what it does not name is about to be removed.
        manifest.manifest.write(disk, segment).map_err(failed("write", disk, segment))?;
        disk.sync_directory().map_err(failed("sync the directory of", disk, segment))?;
    }
    let segments = disk.segments().map_err(failed("list", disk, 1))?;
    for (segment, _) in segments {
        let is_left_over = match Kind::of(segment) {
            Kind::Log | Kind::Pack => !manifest.is_damaged && !manifest.manifest.holds(segment),
            Kind::Manifest => !manifest.is_damaged && Some(segment) != manifest.segment,
            Kind::Checkpoint => Some(segment) != checkpoint,
        };
        if is_left_over {
            disk.remove(segment).map_err(failed("remove", disk, segment))?;
        }
    }
    Ok(())
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
