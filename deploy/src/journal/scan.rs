//! The scan: reads every segment once and says what is there.
//!
//! In: a disk. Out: the index, the rests, all damage by place and thread, and the tail. Always: changes nothing on the
//! disk, decodes no body, and never takes damage for an end: only what nothing follows is a torn tail.

use super::batch::{self, Found, kind_name};
use super::body;
use super::damage::{Damage, DamageEffect, TornTail};
use super::disk::{Disk, is_lost};
use super::error::JournalError;
use super::format::{FrameHead, Location, SEGMENT_HEAD, SegmentHead, VERSION, kind};
use super::index::{Entry, Index};
use hashbrown::HashMap;
use slackwater_core::id::ThreadId;
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
    /// The last segment holds no batch; its header may be torn.
    Header { segment: u32 },
    /// The last segment's last batch.
    Batch { segment: u32, offset: usize, found: Found },
}

/// What was found.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) index: Index,
    /// The last rest hint with timers of each thread; void unless it covers the thread's last record.
    pub(super) rests: HashMap<ThreadId, Rest>,
    pub(super) damages: Vec<Damage>,
    /// What the disk cannot read of the segment under way; it stands as zeros in its bytes.
    lost: Vec<Range<usize>>,
    pub(super) torn: Option<TornTail>,
    pub(super) tail: Tail,
    /// The last segment's bytes.
    pub(super) last: Vec<u8>,
    /// The number that the next batch gets.
    pub(super) sequence: u64,
    pub(super) segments: usize,
    /// The lengths of all segments.
    pub(super) bytes: u64,
    /// How many records, damaged ones included.
    pub(super) records: u64,
}

/// Reads all segments.
///
/// # Errors
/// When the disk fails, or a segment is of another version.
pub(super) fn scan(disk: &dyn Disk) -> Result<Scan, JournalError> {
    let failed = |action, place| move |source| JournalError::Disk { action, place, source };
    let segments = disk.segments().map_err(failed("list", disk.directory()))?;
    let mut scan = Scan {
        index: Index::default(),
        rests: HashMap::new(),
        damages: Vec::new(),
        lost: Vec::new(),
        torn: None,
        tail: Tail::Nothing,
        last: Vec::new(),
        sequence: 1,
        segments: segments.len(),
        bytes: segments.iter().map(|(_, length)| length).sum(),
        records: 0,
    };
    for (position, &(segment, length)) in segments.iter().enumerate() {
        scan.last.resize(length as usize, 0);
        scan.read(disk, segment).map_err(failed("read", disk.place(segment)))?;
        let bytes = std::mem::take(&mut scan.last);
        scan.segment(disk, segment, &bytes, position + 1 == segments.len())?;
        scan.last = bytes;
    }
    Ok(scan)
}

impl Scan {
    /// Reads a segment's bytes into `last`. What the disk has lost becomes zeros, which no checksum matches.
    fn read(&mut self, disk: &dyn Disk, segment: u32) -> io::Result<()> {
        self.lost.clear();
        let error = match disk.read_at(segment, 0, &mut self.last) {
            Ok(read) if read == self.last.len() => return Ok(()),
            // The segment was that long a moment ago. To take what is missing for a torn tail would be to cut it.
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if is_lost(&error) => error,
            Err(error) => return Err(error),
        };
        for (index, piece) in self.last.chunks_mut(PIECE_BYTES).enumerate() {
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

    fn segment(&mut self, disk: &dyn Disk, segment: u32, bytes: &[u8], is_last: bool) -> Result<(), JournalError> {
        let place = disk.place(segment);
        self.tail = Tail::Header { segment };
        self.segment_head(segment, &place, bytes, is_last)?;
        let mut at = SEGMENT_HEAD;
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
        match SegmentHead::read(bytes) {
            Some(head) if head.version != VERSION => {
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
                let effect = match frame.row.kind {
                    kind::REST => DamageEffect::NothingLost,
                    _ => DamageEffect::ThreadsRefused,
                };
                self.damaged(segment, place, frame.offset, what, effect, &[frame.row.thread]);
                if frame.row.kind == kind::RECORD {
                    self.records += 1;
                    *self.index.change(frame.row.thread) = Entry::new(location, frame.row.number);
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
        self.records += 1;
        let (thread, number) = (head.row.thread, head.row.number);
        let entry = self.index.change(thread);
        let before = (entry.last(), entry.location);
        *entry = Entry::new(location, number);
        if (number.wrapping_sub(1), head.previous) != before {
            let what = format!("record {number} does not follow on record {}, the last one before it", before.0);
            let effect = DamageEffect::ThreadsRefused;
            self.damaged(location.segment, place, location.offset as usize, what, effect, &[thread]);
        }
    }

    fn rest(&mut self, place: &str, location: Location, head: &FrameHead, bytes: &[u8]) {
        let (thread, through) = (head.row.thread, head.row.number);
        let Some(mut entry) = self.index.get(&thread).filter(|entry| entry.last() == through) else { return };
        let body = FrameHead::read(&bytes[location.offset as usize..]).map(|(_, body)| body).unwrap_or_default();
        match body::read_timers(body) {
            Ok(timers) => {
                entry.set_at_rest();
                self.index.set(thread, entry);
                self.set_rest(Rest { thread, through, timers });
            }
            Err(what) => {
                let effect = DamageEffect::NothingLost;
                self.damaged(location.segment, place, location.offset as usize, what, effect, &[thread]);
            }
        }
    }

    fn set_rest(&mut self, rest: Rest) {
        if rest.timers.is_empty() {
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

    fn damaged(
        &mut self,
        segment: u32,
        place: &str,
        at: usize,
        what: String,
        effect: DamageEffect,
        threads: &[ThreadId],
    ) {
        if effect == DamageEffect::ThreadsRefused {
            for &thread in threads {
                self.index.set_damaged(thread, format!("{place} at byte {at}: {what}"));
            }
        }
        let threads = threads.iter().map(ToString::to_string).collect();
        self.damages.push(Damage { segment, place: place.to_owned(), offset: at as u64, what, effect, threads });
    }

    /// The rests that hold, by thread.
    pub(super) fn resting(&mut self) -> Vec<Rest> {
        let holds = |rest: &Rest| {
            self.index.get(&rest.thread).is_some_and(|entry| entry.is_at_rest() && entry.last() == rest.through)
        };
        let mut rests: Vec<Rest> = std::mem::take(&mut self.rests).into_values().filter(holds).collect();
        rests.sort_unstable_by_key(|rest| rest.thread);
        rests
    }
}
