//! Packing: rewrites threads from the log's oldest segments, or from a pack that is half dead, into a new pack, and then
//! removes what it has replaced.
//!
//! In: what is to be freed. Out: a pack, moved chains, a manifest without what was freed. Always: in this order, each step on
//! stable storage before the next: the pack; a manifest that names it; the chains; a checkpoint; a manifest that does not
//! name what is freed; its removal. The power may fail after any of them.

use super::batch;
use super::body;
use super::chain::{Source, Unread};
use super::dictionary::{Dictionary, LEARNT_FROM_BYTES, Packing};
use super::disk::{Kind, number_of, of_kind, read_all};
use super::format::{FRAME_HEAD, SEGMENT_HEAD, kind};
use super::gather::{Gathered, leads_to};
use super::index::Entry;
use super::keeper::{Keeper, Stopped};
use super::pack::PackWriter;
use super::shared::Counters;
use super::writer::Move;
use slackwater_core::id::{CallId, Number, ThreadId};
use std::collections::BTreeMap;
use std::io;

/// How much of the log is packed at a time, and of how many threads: a segment more than this at the most.
const LOG_BYTES: u64 = 128 << 20;
const LOG_THREADS: usize = 1 << 16;
/// How many threads a dictionary is learnt from first; more, if these say little.
const SAMPLE_THREADS: usize = 256;
/// After so many packs a new dictionary is learnt.
const PACKS_A_DICTIONARY: usize = 64;

/// What is to be freed.
#[derive(Clone, Debug)]
pub(super) enum Freed {
    /// The segments of the log below this one.
    LogBelow(u32),
    /// A pack.
    Pack(u32),
}

/// What a thread has in what is to be freed.
#[derive(Debug, Default)]
struct Stake {
    /// Its last record there.
    last: Number,
    /// Its last rest hint there: through which record, and its timers.
    rest: Option<(Number, Vec<(CallId, u64)>)>,
}

type Stakes = BTreeMap<ThreadId, Stake>;

impl Keeper {
    /// Packs the log's segments below this one, some at a time. Threads that do not rest are packed only if `all`. Whether
    /// all of these segments are gone.
    ///
    /// # Errors
    /// When the disk fails or the journal closes.
    pub(super) fn pack_log(&mut self, below: u32, all: bool) -> Result<bool, Stopped> {
        while self.manifest.oldest < below {
            let segments = self.disk.segments()?;
            let oldest = self.manifest.oldest;
            let (mut stakes, mut bytes, mut end) = (Stakes::new(), 0, oldest);
            for (segment, length) in
                of_kind(&segments, Kind::Log).filter(|(segment, _)| (oldest..below).contains(segment))
            {
                if bytes > 0 && (bytes + length > LOG_BYTES || stakes.len() > LOG_THREADS) {
                    break;
                }
                self.stakes(segment, length, &mut stakes)?;
                self.pace(length)?;
                (bytes, end) = (bytes + length, segment + 1);
            }
            if !self.rewrite(&stakes, &Freed::LogBelow(end), all)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Packs anew what lives in packs of which half is dead.
    ///
    /// # Errors
    /// When the disk fails or the journal closes.
    pub(super) fn pack_dead(&mut self) -> Result<(), Stopped> {
        let dead = |pack: &&super::manifest::Pack| u64::from(pack.dead) * 2 > u64::from(pack.bytes);
        let packs: Vec<_> = self.manifest.packs.iter().filter(dead).copied().collect();
        for pack in packs {
            let mut stakes = Stakes::new();
            self.stakes(pack.segment, u64::from(pack.bytes), &mut stakes)?;
            self.rewrite(&stakes, &Freed::Pack(pack.segment), true)?;
        }
        Ok(())
    }

    /// Who has what in a segment.
    fn stakes(&self, segment: u32, length: u64, stakes: &mut Stakes) -> Result<(), Stopped> {
        let bytes = read_all(&*self.disk, segment, length)?;
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{} is damaged", self.disk.place(segment)));
        let mut at = SEGMENT_HEAD;
        while at < bytes.len() {
            let found = batch::find(&bytes, at, 0).filter(|found| found.is_accounted_for()).ok_or_else(damaged)?;
            for frame in &found.frames {
                let stake = match frame.row.kind {
                    kind::DICTIONARY => continue,
                    _ => stakes.entry(frame.row.thread).or_default(),
                };
                if frame.row.kind == kind::REST {
                    let body = frame.head.map(|_| &bytes[frame.offset + FRAME_HEAD..][..frame.row.length as usize]);
                    stake.rest = body.and_then(|body| Some((frame.row.number, body::read_timers(body).ok()?)));
                } else {
                    stake.last = stake.last.max(frame.row.number);
                }
            }
            at += found.end.length as usize;
        }
        Ok(())
    }

    /// Packs these threads and frees what is to be freed. Whether it is gone: it stays when threads need it that go on.
    fn rewrite(&mut self, stakes: &Stakes, freed: &Freed, all: bool) -> Result<bool, Stopped> {
        let dictionary = self.dictionary(stakes)?;
        let mut packing = Packing::new(dictionary)?;
        let disk = self.disk.clone();
        let mut writer = PackWriter::begin(&*disk, &mut packing, self.manifest.last_pack)?;
        let segment = writer.segment();
        let packed = self.pack_threads(&mut writer, stakes, freed, all);
        let pack = packed.and_then(|packed| Ok((packed, writer.end()?)));
        let (Packed { moves, taken, mut is_free }, mut pack) = match pack {
            Ok(pack) => pack,
            Err(stopped) => {
                // What is left of it belongs to nothing, and is removed at the latest at the next opening.
                let _ = disk.remove(segment);
                return Err(stopped);
            }
        };
        if moves.is_empty() {
            disk.remove(segment)?;
        } else {
            self.shared.count(Counters { segments: 1, bytes: pack.bytes.into(), ..Counters::default() });
            let lengths: BTreeMap<ThreadId, u32> =
                moves.iter().map(|(moved, length)| (moved.thread, *length)).collect();
            let mut next = self.manifest.clone();
            next.packs.push(pack);
            next.last_pack = number_of(segment);
            self.store(next)?;
            let moves: Vec<Move> = moves.into_iter().map(|(moved, _)| moved).collect();
            let gone_on = self.move_chains(&moves)?;
            is_free &= gone_on.is_empty();
            pack.dead = gone_on.iter().map(|thread| lengths[thread]).sum();
            let mut next = self.manifest.clone();
            for (thread, from, bytes) in taken {
                // What was not moved is needed where it was.
                if let Some(of) = next.packs.iter_mut().find(|of| of.segment == from && !gone_on.contains(&thread)) {
                    of.dead = of.dead.saturating_add(bytes);
                }
            }
            if let Some(last) = next.packs.last_mut() {
                last.dead = pack.dead;
            }
            self.manifest = next;
        }
        if is_free {
            self.free(freed)?;
        }
        Ok(is_free)
    }

    fn pack_threads(
        &mut self,
        writer: &mut PackWriter<'_>,
        stakes: &Stakes,
        freed: &Freed,
        all: bool,
    ) -> Result<Packed, Stopped> {
        let mut packed = Packed { moves: Vec::new(), taken: Vec::new(), is_free: true };
        for (&thread, stake) in stakes {
            self.stop_if_closing()?;
            let Some(entry) = self.shared.index.get(&thread) else { continue };
            let source = Source { disk: &*self.disk, dictionaries: &self.shared.dictionaries };
            let is_hinted = stake.rest.as_ref().is_some_and(|(through, _)| *through == entry.last());
            let in_pack = Kind::of(entry.location.segment) == Kind::Pack;
            let gathered = match freed {
                _ if self.shared.index.damage(&thread).is_some() => Err(Unread::Damaged(String::new())),
                // Its chain begins at a block, which only may not know yet that it rests.
                Freed::LogBelow(_) if in_pack && (!is_hinted || entry.is_rest_in_block()) => continue,
                Freed::LogBelow(_) => Gathered::gather(source, thread, entry, in_pack),
                Freed::Pack(pack) => match leads_to(source, thread, entry, *pack) {
                    Ok(true) => Gathered::gather(source, thread, entry, true),
                    Ok(false) => continue,
                    Err(unread) => Err(unread),
                },
            };
            let gathered = match gathered {
                Ok(gathered) => gathered,
                Err(Unread::Disk(_, error)) => return Err(error.into()),
                Err(Unread::Damaged(what)) => {
                    // What is damaged is never removed; when it is recalled it is named.
                    tracing::debug!(%thread, what, "a damaged thread is not packed");
                    packed.is_free = false;
                    continue;
                }
                Err(Unread::Stopped) => return Err(Stopped::Closing),
            };
            // The log has nothing of it below its last block that is still needed.
            if matches!(freed, Freed::LogBelow(_)) && !in_pack && gathered.first_in_log > stake.last {
                continue;
            }
            if !all && !entry.is_at_rest() {
                packed.is_free = false;
                continue;
            }
            let rest = stake.rest.as_ref().filter(|_| is_hinted).map(|(_, timers)| timers.clone());
            // A pack says of its own threads that they rest; what it does not say, the log still does.
            let rest = match freed {
                Freed::Pack(_) if entry.is_rest_in_block() => self.rest_in_block(source, thread, entry)?,
                _ => rest,
            };
            let before = writer.bytes();
            let mut previous = gathered.previous;
            let mut last = None;
            for (first, through, run) in gathered.runs() {
                let rest = rest.clone().filter(|_| through == entry.last());
                let written = writer.push(thread, (first, through), previous, rest, run.bytes())?;
                previous = written.location;
                last = Some(written);
            }
            let Some(last) = last else { continue };
            let to = Entry::packed(last.location, entry.last(), last.length, rest.is_some());
            packed.moves.push((Move { thread, from: entry, to }, (writer.bytes().saturating_sub(before)) as u32));
            packed.taken.extend(gathered.taken.iter().map(|(from, bytes)| (thread, *from, *bytes)));
            self.pace(writer.bytes().saturating_sub(before))?;
        }
        Ok(packed)
    }

    fn rest_in_block(
        &self,
        source: Source<'_>,
        thread: ThreadId,
        entry: Entry,
    ) -> Result<Option<Vec<(CallId, u64)>>, Stopped> {
        match super::chain::Walk::new(source, thread, entry).step() {
            Ok(Some(super::chain::Piece::Block { head, .. })) => Ok(head.rest),
            Ok(_) => Ok(None),
            Err(Unread::Disk(_, error)) => Err(error.into()),
            Err(_) => Ok(None),
        }
    }

    /// What is packed is compressed with: the dictionary of the last pack, or one that is learnt of these threads.
    fn dictionary(&mut self, stakes: &Stakes) -> Result<Option<Dictionary>, Stopped> {
        if self.dictionary.is_some() && self.packs_of_dictionary < PACKS_A_DICTIONARY {
            self.packs_of_dictionary += 1;
            return Ok(self.dictionary.clone());
        }
        let (mut samples, mut bytes) = (Vec::new(), 0);
        // From all over them, however many it takes.
        let stride = (stakes.len() / SAMPLE_THREADS).max(1);
        for &thread in (0..stride).flat_map(|offset| stakes.keys().skip(offset).step_by(stride)) {
            if bytes >= LEARNT_FROM_BYTES {
                break;
            }
            self.stop_if_closing()?;
            let source = Source { disk: &*self.disk, dictionaries: &self.shared.dictionaries };
            let Some(entry) = self.shared.index.get(&thread) else { continue };
            if let Ok(gathered) = Gathered::gather(source, thread, entry, false) {
                for (_, _, run) in gathered.runs() {
                    bytes += run.bytes().len();
                    samples.push(run);
                }
            }
        }
        let pieces: Vec<&[u8]> = samples.iter().flat_map(|run| run.bytes().chunks(SAMPLE_BYTES)).collect();
        if let Some(dictionary) = Dictionary::learn(&pieces) {
            self.shared.dictionaries.add(dictionary.key, &dictionary.bytes);
            (self.dictionary, self.packs_of_dictionary) = (Some(dictionary), 1);
        }
        Ok(self.dictionary.clone())
    }

    /// Takes out of the manifest what is not needed any more, and removes it.
    fn free(&mut self, freed: &Freed) -> Result<(), Stopped> {
        self.checkpoint()?;
        let mut next = self.manifest.clone();
        match freed {
            Freed::LogBelow(end) => next.oldest = *end,
            Freed::Pack(pack) => next.packs.retain(|of| of.segment != *pack),
        }
        self.store(next)?;
        // Who reads along an old chain comes to its end first.
        drop(self.shared.reading.write());
        for (segment, length) in self.disk.segments()? {
            if matches!(Kind::of(segment), Kind::Log | Kind::Pack) && !self.manifest.holds(segment) {
                self.disk.remove(segment)?;
                self.shared.uncount(1, length);
            }
        }
        self.disk.sync_directory()?;
        Ok(())
    }
}

/// In which pieces samples are given for learning.
const SAMPLE_BYTES: usize = 4096;

/// What was packed.
struct Packed {
    /// The chains to be moved, and how long their blocks are.
    moves: Vec<(Move, u32)>,
    /// The blocks that were taken along: whose, in which pack, how long.
    taken: Vec<(ThreadId, u32, u32)>,
    /// Whether nothing that goes on needs what is to be freed.
    is_free: bool,
}
