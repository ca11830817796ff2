//! The packs, as the scan finds them, and how they and the log come together.
//!
//! In: the packs that the manifest names, and what the log says. Out: for each thread whose records are packed, where its
//! chain begins. Always: a thread has all its records or is refused: what only a damaged block holds is not made up for by an
//! older one.

use super::batch;
use super::block;
use super::damage::DamageEffect;
use super::disk::{Disk, Kind, is_lost, read_all};
use super::error::JournalError;
use super::format::{FRAME_HEAD, Location, SEGMENT_HEAD, SegmentHead, VERSION, kind};
use super::index::Entry;
use super::manifest::Pack;
use super::scan::Scan;
use slackwater_core::id::{CallId, Number, ThreadId};
use slackwater_core::port::Rest;

/// A block that was found.
#[derive(Debug)]
struct Block {
    thread: ThreadId,
    through: Number,
    location: Location,
    length: u32,
    /// The thread's timers, if it rests.
    rest: Option<Vec<(CallId, u64)>>,
    /// Which damage it is part of, if it is damaged.
    damage: Option<usize>,
}

/// All blocks of the packs that were read, by thread, number and place.
#[derive(Debug, Default)]
pub(super) struct Blocks(Vec<Block>);

impl Blocks {
    /// Whether there is a block at this place that holds this thread's records through this one.
    pub(super) fn has(&self, thread: ThreadId, through: Number, location: Location) -> bool {
        let key = (thread, through, location);
        Kind::of(location.segment) == Kind::Pack
            && self.0.binary_search_by_key(&key, |block| (block.thread, block.through, block.location)).is_ok()
    }
}

impl Scan {
    /// Reads the packs that are not known.
    ///
    /// # Errors
    /// When the disk fails, or one is of another version.
    pub(super) fn packs(&mut self, disk: &dyn Disk, known: &[u32]) -> Result<(), JournalError> {
        let packs = self.manifest.manifest.packs.clone();
        self.segments += packs.len();
        for pack in packs.iter().filter(|pack| !known.contains(&pack.segment)) {
            self.pack(disk, pack)?;
        }
        self.blocks.0.sort_unstable_by_key(|block| (block.thread, block.through, block.location));
        Ok(())
    }

    fn pack(&mut self, disk: &dyn Disk, pack: &Pack) -> Result<(), JournalError> {
        let &Pack { segment, bytes: length, .. } = pack;
        let place = disk.place(segment);
        let bytes = match read_all(disk, segment, u64::from(length)) {
            Ok(bytes) => bytes,
            Err(source) if source.kind() == std::io::ErrorKind::NotFound || is_lost(&source) => {
                let what = format!("the pack cannot be read: {source}");
                self.damaged(segment, &place, 0, what, DamageEffect::NotOpened, &[]);
                return Ok(());
            }
            Err(source) => return Err(JournalError::Disk { action: "read", place, source }),
        };
        match SegmentHead::read(&bytes) {
            Some(head) if head.version > VERSION => {
                return Err(JournalError::Version { place, found: head.version, known: VERSION });
            }
            Some(head) if head.segment == segment => {}
            _ => {
                let what = "the pack's header does not match its checksum, or is another's".to_owned();
                self.damaged(segment, &place, 0, what, DamageEffect::NothingLost, &[]);
            }
        }
        let (mut at, mut sequence) = (SEGMENT_HEAD, 1);
        while at < bytes.len() {
            let found = batch::find(&bytes, at, sequence).filter(|found| found.is_accounted_for());
            let Some(found) = found.filter(|found| found.end.sequence == sequence) else {
                // A pack that no manifest is known to name may never have been finished.
                if !self.manifest.is_damaged {
                    let what = format!("the last {} bytes of the pack cannot be read as a batch", bytes.len() - at);
                    self.damaged(segment, &place, at, what, DamageEffect::NotOpened, &[]);
                }
                break;
            };
            for flaw in &found.flaws {
                self.damaged(segment, &place, at, (*flaw).to_owned(), DamageEffect::NothingLost, &[]);
            }
            for frame in &found.frames {
                self.pack_frame(segment, &place, &bytes, frame);
            }
            at += found.end.length as usize;
            sequence += 1;
        }
        Ok(())
    }

    fn pack_frame(&mut self, segment: u32, place: &str, bytes: &[u8], frame: &batch::FoundFrame) {
        let row = frame.row;
        let body = frame.head.map(|_| &bytes[frame.offset + FRAME_HEAD..][..row.length as usize]);
        if row.kind == kind::DICTIONARY {
            if body.is_none_or(|body| self.dictionaries.add(row.number as u32, body).is_none()) {
                let what = "a copy of the pack's dictionary is damaged; the other one is used".to_owned();
                self.damaged(segment, place, frame.offset, what, DamageEffect::NothingLost, &[]);
            }
            return;
        }
        let head = match body.map(block::read_head) {
            Some(Ok((head, _))) if row.kind == kind::BLOCK => Ok(head),
            Some(Ok(_)) => Err(format!("a frame has kind {}, which has no place in a pack", row.kind)),
            Some(Err(what)) => Err(what),
            None => Err(format!("the block through record {} does not match its checksum", row.number)),
        };
        let location = Location { segment, offset: frame.offset as u32 };
        let length = FRAME_HEAD as u32 + row.length;
        let (rest, damage) = match head {
            Ok(head) => (head.rest, None),
            Err(what) => {
                self.damaged(segment, place, frame.offset, what, DamageEffect::NothingLost, &[row.thread]);
                (None, Some(self.damages.len() - 1))
            }
        };
        self.blocks.0.push(Block { thread: row.thread, through: row.number, location, length, rest, damage });
    }

    /// Decides for each thread where its chain begins, and which damages it leads to.
    pub(super) fn settle(&mut self, disk: &dyn Disk) {
        let mut blocks = std::mem::take(&mut self.blocks.0);
        for of_thread in blocks.chunk_by_mut(|one, other| one.thread == other.thread) {
            // Of those that end with the same record, the last whole one; they were packed one after another.
            let through = of_thread.last().expect("invariant: a chunk is not empty").through;
            let newest = of_thread.iter_mut().rev().take_while(|block| block.through == through);
            let mut newest: Vec<_> = newest.collect();
            let chosen = newest.iter().position(|block| block.damage.is_none()).unwrap_or(0);
            self.settle_thread(disk, newest.swap_remove(chosen));
        }
        self.blocks.0 = blocks;
        for (thread, (number, location)) in std::mem::take(&mut self.unanchored) {
            let what = format!("record {number} follows on records that are missing");
            let effect = DamageEffect::ThreadsRefused;
            let place = disk.place(location.segment);
            self.damaged(location.segment, &place, location.offset as usize, what, effect, &[thread]);
        }
        for (thread, number, damage) in std::mem::take(&mut self.suspects) {
            let from = match self.index.get(&thread) {
                Some(entry) if Kind::of(entry.location.segment) == Kind::Pack => Number::MAX,
                _ => self.anchors.get(&thread).copied().unwrap_or(0),
            };
            if number < from {
                self.damages[damage].effect = DamageEffect::NothingLost;
            }
        }
        for damage in self.damages.iter().filter(|damage| damage.effect == DamageEffect::ThreadsRefused) {
            for thread in &damage.threads {
                let thread = thread.parse().expect("invariant: a thread's name reads back");
                let words = format!("{} at byte {}: {}", damage.place, damage.offset, damage.what);
                self.index.set_damaged(thread, words);
            }
        }
        self.records = (0..super::index::PARTS)
            .flat_map(|part| self.index.part_entries(part))
            .map(|(_, entry)| entry.last())
            .sum();
    }

    /// `block` is the newest of its thread.
    fn settle_thread(&mut self, disk: &dyn Disk, block: &mut Block) {
        let (thread, location) = (block.thread, block.location);
        let in_log = self.index.get(&thread);
        let is_anchored = !self.unanchored.contains_key(&thread);
        if in_log.is_some_and(|entry| entry.last() > block.through || is_anchored && block.damage.is_some()) {
            // The log leads on from it or from another one; or it leads to all, and does not need this one.
            let follows =
                self.anchors.contains_key(&thread) && in_log.is_some_and(|entry| entry.last() > block.through);
            if let Some(damage) = block.damage.filter(|_| follows) {
                self.damages[damage].effect = DamageEffect::ThreadsRefused;
            }
            return;
        }
        self.unanchored.remove(&thread);
        let rests = block.rest.is_some();
        let mut entry = Entry::packed(location, block.through, block.length, rests);
        let is_hinted = self.rests.get(&thread).is_some_and(|rest| rest.through == block.through);
        if is_hinted || in_log.is_some_and(Entry::is_at_rest) {
            entry.set_at_rest();
        }
        self.index.set(thread, entry);
        if let Some(timers) = block.rest.take() {
            self.set_rest(Rest { thread, through: block.through, timers });
        }
        if let Some(damage) = block.damage {
            tracing::debug!(%thread, place = disk.place(location.segment), "a damaged block is all there is");
            self.damages[damage].effect = DamageEffect::ThreadsRefused;
        }
    }
}
