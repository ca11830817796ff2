//! What is to be packed of a thread: the records that the log has of it, and of its blocks those that are small beside them.
//!
//! In: a thread's chain. Out: its records from some number on, and the block that they follow on. Always: what is gathered
//! and what it follows on are the whole thread; how often a record is packed again grows with the logarithm of its thread's
//! length, because a block is taken along only when it is at most twice as long as what follows it.

use super::block::{self, Run};
use super::chain::{Piece, Source, Unread, Walk};
use super::disk::Kind;
use super::format::Location;
use super::index::Entry;
use slackwater_core::id::{Number, ThreadId};

/// How much longer than what follows a block may be to be taken along.
const TAKEN_ALONG: usize = 2;
/// A block longer than this, not compressed, is left for itself.
const BLOCK_RAW_MAX: usize = 16 << 20;

/// Records of a thread, the newest first.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    /// Of each record when it was received, and where its body ends.
    records: Vec<(u64, usize)>,
    /// The number of the oldest of them.
    pub(super) first: Number,
    /// The number of the oldest one that the log has; above all of them if it has none.
    pub(super) first_in_log: Number,
    /// The block that they follow on.
    pub(super) previous: Location,
    /// The blocks that they were in: which pack, and how many bytes.
    pub(super) taken: Vec<(u32, u32)>,
}

impl Gathered {
    fn push(&mut self, at_ms: u64, body: &[u8]) {
        self.bytes.extend_from_slice(body);
        self.records.push((at_ms, self.bytes.len()));
    }

    /// Gathers what is to be packed of a thread; all of it if `whole`.
    ///
    /// # Errors
    /// When the disk fails or a record is damaged.
    pub(super) fn gather(source: Source<'_>, thread: ThreadId, head: Entry, whole: bool) -> Result<Self, Unread> {
        let mut gathered = Self { first: head.last() + 1, first_in_log: head.last() + 1, ..Self::default() };
        let mut walk = Walk::new(source, thread, head);
        let mut run = Run::default();
        loop {
            let (at, through) = walk.next();
            let outcome = match walk.step()? {
                None => return Ok(gathered),
                Some(Piece::Record { at_ms, body }) => {
                    gathered.push(at_ms, body);
                    (gathered.first, gathered.first_in_log) = (through, through);
                    Ok(())
                }
                Some(Piece::Block { head, body }) => {
                    let limit = (gathered.bytes.len() * TAKEN_ALONG).min(BLOCK_RAW_MAX);
                    if !whole && head.raw as usize > limit {
                        gathered.previous = at;
                        return Ok(gathered);
                    }
                    gathered.taken.push((at.segment, super::format::FRAME_HEAD as u32 + body.len() as u32));
                    block::read(body, through, source.dictionaries, &mut run).map(|head| {
                        for index in (0..run.count()).rev() {
                            let (at_ms, body) = run.get(index);
                            gathered.push(at_ms, body);
                        }
                        gathered.first = head.first;
                    })
                }
            };
            outcome.map_err(|what| walk.damaged(at, &what))?;
        }
    }

    /// Cuts it into runs that are not too long, the oldest first, and gives each with its first and last number.
    pub(super) fn runs(&self) -> Vec<(Number, Number, Run)> {
        let mut runs = Vec::new();
        let mut run = Run::default();
        let mut first = self.first;
        for index in (0..self.records.len()).rev() {
            let (at_ms, end) = self.records[index];
            let start = index.checked_sub(1).map_or(0, |before| self.records[before].1);
            run.push(at_ms, &self.bytes[start..end]);
            let number = self.first + (self.records.len() - 1 - index) as u64;
            if run.bytes().len() >= BLOCK_RAW_MAX || index == 0 {
                runs.push((first, number, std::mem::take(&mut run)));
                first = number + 1;
            }
        }
        runs
    }
}

/// Whether a thread's chain leads to a block in this pack. Reads what it leads along.
///
/// # Errors
/// When the disk fails or a record is damaged.
pub(super) fn leads_to(source: Source<'_>, thread: ThreadId, head: Entry, pack: u32) -> Result<bool, Unread> {
    let mut walk = Walk::new(source, thread, head);
    loop {
        let (at, number) = walk.next();
        if number > 0 && at.segment == pack {
            return Ok(true);
        }
        if Kind::of(at.segment) == Kind::Pack && at.segment < pack || walk.step()?.is_none() {
            return Ok(false);
        }
    }
}
