//! The scan: reads the log and the packs once and says what is there; from a checkpoint on, if there is one.
//!
//! In: a disk. Out: the index, the rests, all damage by place and thread, and the tail. Always: changes nothing on the
//! disk, decodes no record, and never takes damage for an end: only what nothing follows is a torn tail; what it comes to is
//! the same with a checkpoint and without.

use super::batch::{self, Found, kind_name};
use super::body;
use super::checkpoint::{Loaded, Mark};
use super::damage::{Damage, DamageEffect, TornTail};
use super::dictionary::Dictionaries;
use super::disk::{Disk, Kind, is_lost, of_kind};
use super::error::JournalError;
use super::format::{FrameHead, Location, SEGMENT_HEAD, SegmentHead, VERSION, kind};
use super::index::{Entry, Index};
use super::manifest::{self, Manifest};
use super::packs::Blocks;
use super::sleepers::Sleepers;
use hashbrown::HashMap;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::Rest;
use std::io;
use std::ops::Range;

/// In which pieces a segment is read when the disk has lost some of them: pages, as the system reads them.
const PIECE_BYTES: usize = 4096;

/// Where the next batch goes, and what is found there.
#[derive(Debug)]
pub(super) enum Tail {
    /// There is no segment yet.
    Nothing,
    /// Nothing follows the place from which the log was read.
    Mark(Mark),
    /// The last segment holds no batch; its header may be torn.
    Header { segment: u32 },
    /// The last segment's last batch.
    Batch { segment: u32, offset: usize, found: Found },
}

/// What was found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) index: Index,
    pub(super) manifest: manifest::Found,
    pub(super) dictionaries: Dictionaries,
    pub(super) blocks: Blocks,
    /// The last rest hint of each thread; void unless it covers the thread's last record.
    pub(super) rests: HashMap<ThreadId, Rest>,
    /// Those of a checkpoint, which the ones above replace.
    pub(super) rests_before: Sleepers,
    pub(super) damages: Vec<Damage>,
    /// Damages of records that count only if the thread's chain leads to them: thread, number, which damage.
    pub(super) suspects: Vec<(ThreadId, Number, usize)>,
    /// The threads whose first record that was found is not their first and follows on no block: its number, and where.
    pub(super) unanchored: HashMap<ThreadId, (Number, Location)>,
    /// The last record of a thread that follows on a block.
    pub(super) anchors: HashMap<ThreadId, Number>,
    /// Whether the index began as a checkpoint's.
    is_continued: bool,
    /// What the disk cannot read of the segment under way; it stands as zeros in its bytes.
    lost: Vec<Range<usize>>,
    pub(super) torn: Option<TornTail>,
    pub(super) tail: Tail,
    /// The last segment's bytes.
    pub(super) last: Vec<u8>,
    /// The number that the next batch gets; 0 while it is not known.
    pub(super) sequence: u64,
    /// Pieces of the log and packs.
    pub(super) segments: usize,
    /// The lengths of these segments.
    pub(super) bytes: u64,
    /// How many records, damaged ones included.
    pub(super) records: u64,
}

/// Reads everything.
///
/// # Errors
/// When the disk fails, or a segment is of another version.
pub(super) fn scan(disk: &dyn Disk) -> Result<Scan, JournalError> {
    let failed = |action| move |source| JournalError::Disk { action, place: disk.directory(), source };
    let segments = disk.segments().map_err(failed("list"))?;
    let manifest = Manifest::find(disk, &segments).map_err(failed("read the manifest of"))?;
    scan_from(disk, &segments, manifest, None)
}

/// Reads what a checkpoint does not say, or everything without one.
///
/// # Errors
/// See [`scan`].
pub(super) fn scan_from(
    disk: &dyn Disk,
    segments: &[(u32, u64)],
    found: manifest::Found,
    loaded: Option<Loaded>,
) -> Result<Scan, JournalError> {
    let failed = |segment| move |source| JournalError::Disk { action: "read", place: disk.place(segment), source };
    let oldest = found.manifest.oldest;
    let logs: Vec<_> = of_kind(segments, Kind::Log).filter(|(segment, _)| *segment >= oldest).collect();
    let held = segments.iter().filter(|(segment, _)| found.manifest.holds(*segment));
    let bytes = held.map(|(_, length)| length).sum();
    let mut scan = Scan {
        index: Index::default(),
        manifest: found,
        dictionaries: Dictionaries::default(),
        blocks: Blocks::default(),
        rests: HashMap::new(),
        rests_before: Sleepers::default(),
        damages: Vec::new(),
        suspects: Vec::new(),
        unanchored: HashMap::new(),
        anchors: HashMap::new(),
        is_continued: false,
        lost: Vec::new(),
        torn: None,
        tail: Tail::Nothing,
        last: Vec::new(),
        sequence: u64::from(oldest == 1),
        segments: logs.len(),
        bytes,
        records: 0,
    };
    let (mut start, mut known) = (Mark::default(), Vec::new());
    if let Some(loaded) = loaded {
        (start, known) = (loaded.start, loaded.packs);
        scan.index = loaded.index;
        scan.rests_before = loaded.rests;
        scan.sequence = start.sequence;
        scan.tail = Tail::Mark(start);
        scan.is_continued = true;
        let all = &scan.manifest.manifest;
        scan.dictionaries.load(disk, all).map_err(failed(Kind::Pack.segment(0)))?;
    }
    scan.packs(disk, &known)?;
    if oldest > 1 && logs.first().is_none_or(|(segment, _)| *segment != oldest) {
        let what = "this segment is missing".to_owned();
        scan.damaged(oldest, &disk.place(oldest), 0, what, DamageEffect::NotOpened, &[]);
    }
    let last = logs.last().map(|(segment, _)| *segment);
    for (segment, length) in logs.into_iter().filter(|(segment, _)| *segment >= start.segment) {
        let from = if segment == start.segment { start.end as usize } else { 0 };
        scan.last.clear();
        scan.last.resize(length as usize, 0);
        scan.read(disk, segment, from).map_err(failed(segment))?;
        let bytes = std::mem::take(&mut scan.last);
        scan.segment(disk, segment, &bytes, from, Some(segment) == last)?;
        scan.last = bytes;
    }
    scan.settle(disk);
    Ok(scan)
}

impl Scan {
    /// Reads a segment's bytes into `last`. What the disk has lost becomes zeros, which no checksum matches.
    fn read(&mut self, disk: &dyn Disk, segment: u32, from: usize) -> io::Result<()> {
        self.lost.clear();
        let length = self.last.len();
        let error = match disk.read_at(segment, from as u64, &mut self.last[from.min(length)..]) {
            Ok(read) if from + read == length => return Ok(()),
            // The segment was that long a moment ago. To take what is missing for a torn tail would be to cut it.
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if is_lost(&error) => error,
            Err(error) => return Err(error),
        };
        for (index, piece) in self.last.chunks_mut(PIECE_BYTES).enumerate().skip(from / PIECE_BYTES) {
            let start = index * PIECE_BYTES;
            match disk.read_at(segment, start as u64, piece) {
                Ok(read) if read < piece.len() => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => {}
                Err(error) if is_lost(&error) => {
                    piece.fill(0);
                    self.lost.push(start..start + piece.len());
                }
                Err(error) => return Err(error),
            }
        }
        let place = disk.place(segment);
        for lost in self.lost.clone() {
            let what = format!("the disk cannot read {} bytes: {error}; what they held is named apart", lost.len());
            self.damaged(segment, &place, lost.start, what, DamageEffect::NothingLost, &[]);
        }
        Ok(())
    }

    fn segment(
        &mut self,
        disk: &dyn Disk,
        segment: u32,
        bytes: &[u8],
        from: usize,
        is_last: bool,
    ) -> Result<(), JournalError> {
        let place = disk.place(segment);
        if from == 0 {
            self.tail = Tail::Header { segment };
            self.segment_head(segment, &place, bytes, is_last)?;
        }
        let mut at = from.max(SEGMENT_HEAD);
        while at < bytes.len() {
            let Some(found) = batch::find(bytes, at, self.sequence) else {
                match batch::find_next_head(bytes, at + 1, self.sequence) {
                    Some(next) => {
                        let what = format!("{} bytes cannot be read as a batch", next - at);
                        self.damaged(segment, &place, at, what, DamageEffect::NotOpened, &[]);
                        at = next;
                        continue;
                    }
                    None if is_last => self.torn(segment, &place, at, bytes.len()),
                    None => {
                        let what = format!("the last {} bytes cannot be read as a batch", bytes.len() - at);
                        self.damaged(segment, &place, at, what, DamageEffect::NotOpened, &[]);
                    }
                }
                break;
            };
            let end = at + found.end.length as usize;
            // Each batch is synced before the next is begun: one that another follows was whole once.
            let is_final = is_last && end >= bytes.len();
            if is_final && !found.is_whole() {
                self.torn(segment, &place, at, bytes.len());
                break;
            }
            self.batch(segment, &place, at, bytes, &found, is_final);
            self.tail = Tail::Batch { segment, offset: at, found };
            at = end;
        }
        Ok(())
    }

    fn segment_head(&mut self, segment: u32, place: &str, bytes: &[u8], is_last: bool) -> Result<(), JournalError> {
        let head = SegmentHead::read(bytes);
        if self.sequence == 0 {
            // The first one that is left says itself where the log begins.
            let first = batch::find_next_head(bytes, SEGMENT_HEAD, 0).and_then(|at| batch::find(bytes, at, 0));
            self.sequence = head.map_or_else(|| first.map_or(1, |first| first.end.sequence), |head| head.first);
        }
        match head {
            Some(head) if head.version == 0 || head.version > VERSION => {
                return Err(JournalError::Version { place: place.to_owned(), found: head.version, known: VERSION });
            }
            Some(head) if head.segment != segment => {
                let what = format!("its header says that it is segment {}", head.segment);
                self.damaged(segment, place, 0, what, DamageEffect::NotOpened, &[]);
            }
            Some(head) if head.first != self.sequence => {
                self.out_of_order(segment, place, 0, head.first);
                self.sequence = self.sequence.max(head.first);
            }
            Some(_) => {}
            None if is_last && bytes.len() <= SEGMENT_HEAD => {}
            None => {
                let what = "the segment's header does not match its checksum".to_owned();
                self.damaged(segment, place, 0, what, DamageEffect::NothingLost, &[]);
            }
        }
        Ok(())
    }

    fn batch(&mut self, segment: u32, place: &str, at: usize, bytes: &[u8], found: &Found, is_final: bool) {
        if found.end.sequence != self.sequence {
            self.out_of_order(segment, place, at, found.end.sequence);
        }
        self.sequence = found.end.sequence + 1;
        // The last batch is written again, whole, when the journal opens.
        for flaw in found.flaws.iter().filter(|_| !is_final) {
            self.damaged(segment, place, at, (*flaw).to_owned(), DamageEffect::NothingLost, &[]);
        }
        for frame in &found.frames {
            let location = Location { segment, offset: frame.offset as u32 };
            let Some(head) = frame.head else {
                let what = format!("{} {} does not match its checksum", kind_name(frame.row.kind), frame.row.number);
                if frame.row.kind == kind::RECORD {
                    self.damaged_record(place, location, frame.row.thread, frame.row.number, what);
                } else {
                    let effect = match frame.row.kind {
                        kind::REST => DamageEffect::NothingLost,
                        _ => DamageEffect::ThreadsRefused,
                    };
                    self.damaged(segment, place, frame.offset, what, effect, &[frame.row.thread]);
                }
                continue;
            };
            match head.row.kind {
                kind::RECORD => self.record(place, location, &head),
                kind::REST => self.rest(place, location, &head, bytes),
                other => {
                    let what = format!("a frame has kind {other}, which this program does not know");
                    self.damaged(segment, place, frame.offset, what, DamageEffect::ThreadsRefused, &[head.row.thread]);
                }
            }
        }
        if !found.is_accounted_for() {
            let what = format!(
                "{} of the {} frames of a batch cannot be named: they and its table do not match their checksums, or disagree",
                found.end.count as usize - found.frames.len(),
                found.end.count
            );
            self.damaged(segment, place, found.frames_end, what, DamageEffect::NotOpened, &[]);
        }
    }

    fn record(&mut self, place: &str, location: Location, head: &FrameHead) {
        let (thread, number) = (head.row.thread, head.row.number);
        let before = self.index.get(&thread);
        if self.is_continued && before.is_some_and(|entry| number <= entry.last()) {
            // The checkpoint was written while this was appended.
            return;
        }
        let follows_on_block = self.blocks.has(thread, number.wrapping_sub(1), head.previous);
        let follows = match before {
            _ if follows_on_block => before.is_none_or(|entry| entry.last() + 1 == number),
            // What it followed on was packed again since, with this one.
            _ if !self.manifest.manifest.holds(head.previous.segment) && head.previous.segment > 0 => true,
            Some(entry) => (entry.last() + 1, entry.location) == (number, head.previous),
            None => number == 1 && head.previous == Location::default() || self.begins_late(),
        };
        if !follows {
            let last = before.map_or(0, Entry::last);
            let what = format!("record {number} does not follow on record {last}, the last one before it");
            return self.damaged_record(place, location, thread, number, what);
        }
        if follows_on_block {
            self.anchors.insert(thread, number);
            self.unanchored.remove(&thread);
        } else if number > 1 && before.is_none_or(|entry| entry.location != head.previous) {
            self.unanchored.insert(thread, (number, location));
        }
        self.index.set(thread, Entry::new(location, number));
    }

    /// Whether the log has not all records: those of its first segments are in packs.
    fn begins_late(&self) -> bool {
        self.manifest.manifest.oldest > 1
    }

    /// A record that is damaged, or not where it should be. It counts only if the thread's chain leads to it.
    fn damaged_record(&mut self, place: &str, location: Location, thread: ThreadId, number: Number, what: String) {
        self.suspects.push((thread, number, self.damages.len()));
        let effect = DamageEffect::ThreadsRefused;
        self.damaged(location.segment, place, location.offset as usize, what, effect, &[thread]);
        if self.index.get(&thread).is_none() && number > 1 && self.begins_late() {
            self.unanchored.insert(thread, (number, location));
        }
        self.index.set(thread, Entry::new(location, number.max(1)));
    }

    fn rest(&mut self, place: &str, location: Location, head: &FrameHead, bytes: &[u8]) {
        let (thread, through) = (head.row.thread, head.row.number);
        let entry = self.index.get(&thread);
        if entry.is_some_and(|entry| entry.last() != through) || entry.is_none() && !self.begins_late() {
            return;
        }
        let body = FrameHead::read(&bytes[location.offset as usize..]).map(|(_, body)| body).unwrap_or_default();
        match body::read_timers(body) {
            Ok(timers) => {
                if let Some(mut entry) = entry {
                    entry.set_at_rest();
                    self.index.set(thread, entry);
                    self.set_rest(Rest { thread, through, timers });
                } else {
                    // Its record may be packed, and then the hint holds.
                    self.rests.insert(thread, Rest { thread, through, timers });
                }
            }
            Err(what) => {
                let effect = DamageEffect::NothingLost;
                self.damaged(location.segment, place, location.offset as usize, what, effect, &[thread]);
            }
        }
    }

    pub(super) fn set_rest(&mut self, rest: Rest) {
        if rest.timers.is_empty() && self.rests_before.is_empty() {
            self.rests.remove(&rest.thread);
        } else {
            self.rests.insert(rest.thread, rest);
        }
    }

    fn out_of_order(&mut self, segment: u32, place: &str, at: usize, found: u64) {
        let what = format!("batch {} should be here and {found} is; what lies between is missing", self.sequence);
        self.damaged(segment, place, at, what, DamageEffect::NotOpened, &[]);
    }

    fn torn(&mut self, segment: u32, place: &str, at: usize, length: usize) {
        if self.lost.iter().any(|lost| lost.end > at) {
            // It may be whole on a disk that reads it again.
            let what = "the journal's end cannot be read".to_owned();
            return self.damaged(segment, place, at, what, DamageEffect::NotOpened, &[]);
        }
        self.torn = Some(TornTail { segment, offset: at as u64, bytes: (length - at) as u64 });
    }

    pub(super) fn damaged(
        &mut self,
        segment: u32,
        place: &str,
        at: usize,
        what: String,
        effect: DamageEffect,
        threads: &[ThreadId],
    ) {
        let threads = threads.iter().map(ToString::to_string).collect();
        self.damages.push(Damage { segment, place: place.to_owned(), offset: at as u64, what, effect, threads });
    }

    /// The rests with timers that hold.
    pub(super) fn resting(&mut self) -> Sleepers {
        let holds = |thread: ThreadId, through: Number| {
            self.index.get(&thread).is_some_and(|entry| entry.is_at_rest() && entry.last() == through)
        };
        let after = std::mem::take(&mut self.rests);
        let mut resting = std::mem::take(&mut self.rests_before);
        resting.retain(|thread, through| !after.contains_key(&thread) && holds(thread, through));
        after.into_values().filter(|rest| holds(rest.thread, rest.through)).for_each(|rest| resting.push(rest));
        resting.sort();
        resting
    }
}
