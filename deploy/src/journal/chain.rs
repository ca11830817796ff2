//! A thread's records, read from the disk.
//!
//! In: where its last record is. Out: its records, oldest first. Always: all of them or words that say what is damaged;
//! what was checked when it was written is checked again when it is read: checksum, thread, number.

use super::block::{self, BlockHead, Run};
use super::body;
use super::dictionary::Dictionaries;
use super::disk::{Disk, Kind, is_lost};
use super::format::{FRAME_HEAD, FrameHead, Location, kind};
use super::index::Entry;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::record::{Arrival, Committed};
use std::io;

/// How much is read of a frame at first; most are not longer.
const READ_BYTES: usize = 2048;
/// A thread's records that lie as near to each other as this are read together, and so much at a time.
const NEAR_BYTES: u32 = 16 << 10;
const AHEAD_BYTES: u32 = 64 << 10;

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

/// Where records are read from.
#[derive(Clone, Copy)]
pub(super) struct Source<'a> {
    pub(super) disk: &'a dyn Disk,
    pub(super) dictionaries: &'a Dictionaries,
}

/// A walk along a thread's chain, from its last record to its first.
pub(super) struct Walk<'a> {
    source: Source<'a>,
    thread: ThreadId,
    /// Where the next piece is, and the number with which it must end.
    at: Location,
    number: Number,
    /// How much of the next piece is worth reading at once.
    guess: usize,
    /// The piece after it, if that is in the same segment.
    after: Option<u32>,
    window: Vec<u8>,
    window_at: Location,
}

/// A part of a chain.
#[derive(Debug)]
pub(super) enum Piece<'w> {
    /// One record, in the log.
    Record { at_ms: u64, body: &'w [u8] },
    /// A run of them, in a pack: its head, and the body that it is part of.
    Block { head: BlockHead, body: &'w [u8] },
}

impl<'a> Walk<'a> {
    pub(super) fn new(source: Source<'a>, thread: ThreadId, head: Entry) -> Self {
        let guess = match Kind::of(head.location.segment) {
            Kind::Pack => head.block_bytes(),
            _ => READ_BYTES,
        };
        let (window, window_at) = (Vec::new(), Location::default());
        Self { source, thread, at: head.location, number: head.last(), guess, after: None, window, window_at }
    }

    /// Where the next piece is, and the number of its last record; 0 when there is none.
    pub(super) fn next(&self) -> (Location, Number) {
        (self.at, self.number)
    }

    pub(super) fn damaged(&self, at: Location, what: &str) -> Unread {
        Unread::Damaged(format!("{} at byte {}: {what}", self.source.disk.place(at.segment), at.offset))
    }

    /// The next piece.
    ///
    /// # Errors
    /// See [`Unread`].
    pub(super) fn step(&mut self) -> Result<Option<Piece<'_>>, Unread> {
        let (at, number) = (self.at, self.number);
        if number == 0 {
            return Ok(None);
        }
        self.fill().map_err(|error| match is_lost(&error) {
            true => self.damaged(at, &format!("record {number} cannot be read: {error}")),
            false => Unread::Disk(at.segment, error),
        })?;
        let start = (at.offset - self.window_at.offset) as usize;
        let Some((frame, body)) = FrameHead::read(self.window.get(start..).unwrap_or_default()) else {
            return Err(self.damaged(at, &format!("record {number} does not match its checksum")));
        };
        let body = start + FRAME_HEAD..start + FRAME_HEAD + body.len();
        if (frame.row.thread, frame.row.number) != (self.thread, number) {
            return Err(self.damaged(at, &format!("record {number} should be here, and another one is")));
        }
        let block = match frame.row.kind {
            kind::RECORD => None,
            kind::BLOCK => {
                let head = block::read_head(&self.window[body.clone()]).map(|(head, _)| head);
                let head = head.and_then(|head| match (1..=number).contains(&head.first) {
                    true => Ok(head),
                    false => Err(format!("it holds records {} to {number}", head.first)),
                });
                Some(head.map_err(|what| self.damaged(at, &format!("record {number}: {what}")))?)
            }
            _ => return Err(self.damaged(at, &format!("record {number} should be here, and another frame is"))),
        };
        self.number = block.as_ref().map_or(number, |block| block.first) - 1;
        self.at = frame.previous;
        self.after = (at.segment == self.at.segment && self.at.offset < at.offset).then_some(at.offset);
        // Of a block that others follow nothing is known; it may well be long.
        self.guess = if Kind::of(self.at.segment) == Kind::Pack { AHEAD_BYTES as usize / 4 } else { READ_BYTES };
        let body = &self.window[body];
        Ok(Some(match block {
            Some(head) => Piece::Block { head, body },
            None => Piece::Record { at_ms: frame.at_ms, body },
        }))
    }

    /// Has the window hold the next piece, as far as there is one.
    fn fill(&mut self) -> io::Result<()> {
        let Location { segment, offset } = self.at;
        // The thread's next record is here and near: this one ends before it, and those before this one may be near too.
        if let Some(after) = self.after.filter(|after| after - offset <= NEAR_BYTES) {
            if self.window_at.segment == segment && self.window_at.offset <= offset {
                return Ok(());
            }
            let from = after.saturating_sub(AHEAD_BYTES).min(offset);
            return self.read(Location { segment, offset: from }, (after - from) as usize);
        }
        self.read(self.at, self.guess)?;
        let wanted = FRAME_HEAD + FrameHead::stated_length(&self.window).unwrap_or(0);
        // The length is not vouched for yet: no more memory is taken than twice what the segment really holds.
        let mut read = self.window.len();
        while read < wanted && read >= self.guess {
            let length = wanted.min(2 * read);
            self.window.resize(length, 0);
            let more = self.source.disk.read_at(segment, u64::from(offset) + read as u64, &mut self.window[read..])?;
            self.window.truncate(read + more);
            if self.window.len() < length {
                break;
            }
            read = length;
        }
        Ok(())
    }

    fn read(&mut self, at: Location, length: usize) -> io::Result<()> {
        self.window_at = at;
        self.window.resize(length, 0);
        let read = match self.source.disk.read_at(at.segment, u64::from(at.offset), &mut self.window) {
            // A location that leads nowhere is damage, not a failing disk.
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            read => read?,
        };
        self.window.truncate(read);
        Ok(())
    }
}

/// Reads a thread's records with numbers below `before`. `stop` is asked before each piece.
///
/// # Errors
/// See [`Unread`].
pub(super) fn read(
    source: Source<'_>,
    thread: ThreadId,
    head: Entry,
    before: Number,
    mut stop: impl FnMut() -> bool,
) -> Result<Vec<Committed>, Unread> {
    let mut records = Vec::with_capacity(usize::try_from(head.last().min(before).min(4096)).unwrap_or(0));
    let mut add = |number: Number, at_ms: u64, body: &[u8]| {
        if number >= before {
            return Ok(());
        }
        let record = body::read_record(body).map_err(|what| format!("record {number}: {what}"))?;
        records.push(Committed { number, arrival: Arrival { ticket: None, thread, at_ms, record } });
        Ok(())
    };
    let mut walk = Walk::new(source, thread, head);
    let mut run = Run::default();
    loop {
        if stop() {
            return Err(Unread::Stopped);
        }
        let (at, number) = walk.next();
        let outcome = match walk.step()? {
            None => break,
            Some(Piece::Record { at_ms, body }) => add(number, at_ms, body),
            Some(Piece::Block { head, body }) if head.first < before => {
                block::read(body, number, source.dictionaries, &mut run).and_then(|head| {
                    (0..run.count()).rev().try_for_each(|index| {
                        let (at_ms, body) = run.get(index);
                        add(head.first + index as u64, at_ms, body)
                    })
                })
            }
            Some(Piece::Block { .. }) => Ok(()),
        };
        outcome.map_err(|what| walk.damaged(at, &what))?;
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
