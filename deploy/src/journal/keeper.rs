//! The keeper: the one thread that writes down the index and packs threads, while others go on.
//!
//! In: time passing, and what it is asked. Out: checkpoints, packs, and free space. Always: slower than it is allowed to be,
//! so that a commit does not wait for it; a failure of its own ends nothing but what it was doing: all that it makes can be
//! done without.

use super::batch;
use super::body;
use super::checkpoint::{self, Mark, Writing};
use super::dictionary::Dictionary;
use super::disk::{Disk, Kind, of_kind, read_all};
use super::format::{FRAME_HEAD, SEGMENT_HEAD, kind};
use super::manifest::Manifest;
use super::options::Options;
use super::shared::Shared;
use super::sleepers::Sleepers;
use super::writer::{Move, ToWriter};
use hashbrown::HashMap;
use slackwater_core::id::ThreadId;
use slackwater_core::port::Rest;
use std::io;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

/// How often it looks whether there is something to do.
const LOOK_MS: u64 = 500;
/// After a failure nothing is tried for so long.
const PAUSE_MS: u64 = 60_000;
/// So many full segments are left to threads that do not rest.
const SEGMENTS_LEFT: u32 = 4;
/// How many chains are moved at once.
const MOVED_AT_ONCE: usize = 1024;
/// How many sleepers are told at once after an opening, and the pause until the next.
pub(super) const TOLD_AT_ONCE: usize = 4096;
const TOLD_EVERY_MS: u64 = 4;
/// How much less than others it is given of the processor.
const NICENESS: i32 = 10;
/// The longest time that it sleeps at once to be slow enough.
const SLEEP_MS: u64 = 50;

/// What the keeper is asked. Each answer says whether it was done.
#[derive(Debug)]
pub(super) enum Asked {
    /// Write a checkpoint now.
    Checkpoint(oneshot::Sender<bool>),
    /// Pack all threads now, as fast as possible.
    Pack(oneshot::Sender<bool>),
    /// The journal closes.
    End,
}

/// Why the keeper did not do something.
#[derive(Debug)]
pub(super) enum Stopped {
    /// The journal closes.
    Closing,
    /// The disk failed.
    Disk(io::Error),
}

impl From<io::Error> for Stopped {
    fn from(error: io::Error) -> Self {
        Self::Disk(error)
    }
}

/// What the next checkpoint's timers begin with.
#[derive(Clone, Copy, Debug)]
pub(super) enum Base {
    /// Those of this checkpoint, which begins here.
    Checkpoint(u32, Mark),
    /// None: the log has all of them.
    Log,
    /// It is not known which, so none is written.
    Unknown,
}

pub(super) struct Keeper {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) options: Options,
    pub(super) shared: Arc<Shared>,
    pub(super) manifest: Manifest,
    pub(super) base: Base,
    /// Who slept at the opening; the first of them have been told.
    pub(super) resting: Sleepers,
    pub(super) writer: UnboundedSender<ToWriter>,
    pub(super) dictionary: Option<Dictionary>,
    pub(super) packs_of_dictionary: usize,
    /// Whether it may be as fast as it can.
    pub(super) is_hurried: bool,
}

impl Keeper {
    /// Works until the journal closes.
    pub(super) fn run(mut self, asked: &mpsc::Receiver<Asked>) {
        // Of this thread alone, on Linux: who commits goes first. Where it cannot be had, the pace alone has to do.
        let _ = rustix::process::setpriority_process(None, NICENESS);
        if self.tell_sleepers().is_err() {
            return;
        }
        let mut sealed: HashMap<u32, Instant> = HashMap::new();
        let mut pause_until = Instant::now();
        loop {
            let next = match asked.recv_timeout(Duration::from_millis(LOOK_MS)) {
                Err(mpsc::RecvTimeoutError::Disconnected) => {
                    // Nobody can ask any more; the journal runs until its flow lets go.
                    std::thread::sleep(Duration::from_millis(SLEEP_MS));
                    None
                }
                next => next.ok(),
            };
            if matches!(next, Some(Asked::End)) || self.stop_if_closing().is_err() {
                return;
            }
            let outcome = match next {
                Some(Asked::Checkpoint(answer)) => {
                    let outcome = self.checkpoint();
                    let _ = answer.send(outcome.is_ok());
                    outcome
                }
                Some(Asked::Pack(answer)) => {
                    self.is_hurried = true;
                    let outcome = self.pack_all();
                    self.is_hurried = false;
                    let _ = answer.send(matches!(outcome, Ok(true)));
                    outcome.map(drop)
                }
                _ if Instant::now() < pause_until => Ok(()),
                _ => self.look(&mut sealed),
            };
            match outcome {
                Ok(()) => {}
                Err(Stopped::Closing) => return,
                Err(Stopped::Disk(error)) => {
                    tracing::warn!(directory = self.disk.directory(), %error, "the journal was not packed or its index not written down; it is tried again later, and nothing is lost");
                    pause_until = Instant::now() + Duration::from_millis(PAUSE_MS);
                }
            }
        }
    }

    /// Has the writer tell of the sleepers that were not told at the opening.
    fn tell_sleepers(&mut self) -> Result<(), Stopped> {
        let resting = std::mem::take(&mut self.resting);
        for first in (TOLD_AT_ONCE..resting.len()).step_by(TOLD_AT_ONCE) {
            let some = (first..resting.len()).take(TOLD_AT_ONCE).filter_map(|place| resting.get(place)).collect();
            self.stop_if_closing()?;
            self.writer.send(ToWriter::Tell(some)).map_err(|_| Stopped::Closing)?;
            std::thread::sleep(Duration::from_millis(TOLD_EVERY_MS));
        }
        Ok(())
    }

    /// Does what is due.
    fn look(&mut self, sealed: &mut HashMap<u32, Instant>) -> Result<(), Stopped> {
        let now = Instant::now();
        let durable = self.shared.durable();
        if self.options.pack_after_ms > 0 {
            let full = self.manifest.oldest..durable.segment;
            let due = Duration::from_millis(self.options.pack_after_ms);
            sealed.retain(|segment, _| full.contains(segment));
            for segment in full.clone() {
                sealed.entry(segment).or_insert(now);
            }
            let below = full.clone().take_while(|segment| now.duration_since(sealed[segment]) >= due).count() as u32;
            if below > 0 {
                self.pack_log(self.manifest.oldest + below, below > SEGMENTS_LEFT)?;
                self.pack_dead()?;
                // Who does not rest yet is asked again after as long a time.
                sealed.extend(full.map(|segment| (segment, Instant::now())));
            }
        }
        let behind = match self.base {
            Base::Checkpoint(_, mark) => self.bytes_since(mark, durable),
            Base::Log => self.bytes_since(Mark::default(), durable),
            Base::Unknown => return Ok(()),
        };
        let index_bytes = self.shared.counters().threads * 32;
        if behind >= self.options.checkpoint_bytes.max(index_bytes) {
            self.checkpoint()?;
        }
        Ok(())
    }

    /// How much of the log lies between two places, at most.
    fn bytes_since(&self, from: Mark, to: Mark) -> u64 {
        let segments = u64::from(to.segment - from.segment.clamp(self.manifest.oldest, to.segment));
        (segments * self.options.segment_max_bytes + to.end).saturating_sub(from.end)
    }

    /// Writes the index down. Not while damage is known, so that it is found and named again at the next opening.
    ///
    /// # Errors
    /// When the disk fails or the journal closes.
    pub(super) fn checkpoint(&mut self) -> Result<(), Stopped> {
        if self.shared.index.is_any_damaged() || matches!(self.base, Base::Unknown) {
            return Ok(());
        }
        let start = self.shared.durable();
        let mut fresh = self.rests_until(start)?;
        let disk = self.disk.clone();
        let mut writing = Writing::begin(&*disk, start, self.shared.index.len() as u64, &self.manifest)?;
        writing.entries(&self.shared.index, |bytes| self.pace(bytes))?;
        if let Base::Checkpoint(before, _) = self.base {
            checkpoint::read_rests(&*disk, before, |mut rests| {
                rests.retain(|rest| !fresh.contains_key(&rest.thread) && self.holds(rest));
                writing.rests(rests.into_iter())
            })?;
        }
        fresh.retain(|_, rest| !rest.timers.is_empty() && self.holds(rest));
        let mut fresh: Vec<Rest> = fresh.into_values().collect();
        fresh.sort_unstable_by_key(|rest| rest.thread);
        writing.rests(fresh.into_iter())?;
        // What the index held when it was written is durable now, and before this place.
        self.wait_for_writer()?;
        let segment = writing.end(self.shared.durable())?;
        self.base = Base::Checkpoint(segment, start);
        Ok(())
    }

    fn holds(&self, rest: &Rest) -> bool {
        self.shared.index.get(&rest.thread).is_some_and(|entry| entry.last() == rest.through)
    }

    /// The last rest hint of each thread that the log has since the last checkpoint.
    fn rests_until(&self, end: Mark) -> Result<HashMap<ThreadId, Rest>, Stopped> {
        let start = match self.base {
            Base::Checkpoint(_, mark) => mark,
            _ => Mark { segment: self.manifest.oldest, ..Mark::default() },
        };
        let mut rests = HashMap::new();
        for (segment, length) in of_kind(&self.disk.segments()?, Kind::Log) {
            if !(start.segment..=end.segment).contains(&segment) {
                continue;
            }
            let until = if segment == end.segment { end.end } else { length };
            let bytes = read_all(&*self.disk, segment, until)?;
            let mut at = if segment == start.segment { (start.end as usize).max(SEGMENT_HEAD) } else { SEGMENT_HEAD };
            while at < bytes.len() {
                let Some(found) = batch::find(&bytes, at, 0) else {
                    let what = format!("{} is damaged", self.disk.place(segment));
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what).into());
                };
                for frame in found.frames.iter().filter(|frame| frame.row.kind == kind::REST && frame.head.is_some()) {
                    let body = &bytes[frame.offset + FRAME_HEAD..][..frame.row.length as usize];
                    let (thread, through) = (frame.row.thread, frame.row.number);
                    if let Ok(timers) = body::read_timers(body) {
                        rests.insert(thread, Rest { thread, through, timers });
                    }
                }
                at += found.end.length as usize;
            }
            self.pace(until)?;
        }
        Ok(rests)
    }

    /// Packs everything.
    fn pack_all(&mut self) -> Result<bool, Stopped> {
        let (answer, rotated) = mpsc::channel();
        self.writer.send(ToWriter::Rotate(answer)).map_err(|_| Stopped::Closing)?;
        rotated.recv().map_err(|_| Stopped::Closing)?;
        let is_free = self.pack_log(self.shared.durable().segment, true)?;
        self.pack_dead()?;
        Ok(is_free)
    }

    /// Has the writer move these chains, some at a time, between which it commits. Those that have gone on meanwhile are left,
    /// and named.
    pub(super) fn move_chains(&self, moves: &[Move]) -> Result<Vec<ThreadId>, Stopped> {
        let mut gone_on = Vec::new();
        for some in moves.chunks(MOVED_AT_ONCE) {
            gone_on.extend(self.ask_to_move(some.to_vec())?);
        }
        Ok(gone_on)
    }

    /// Returns when what the index held before is durable and before `Shared::durable`: when the writer is between two groups.
    fn wait_for_writer(&self) -> Result<(), Stopped> {
        self.ask_to_move(Vec::new()).map(drop)
    }

    fn ask_to_move(&self, moves: Vec<Move>) -> Result<Vec<ThreadId>, Stopped> {
        let (answer, moved) = mpsc::channel();
        self.writer.send(ToWriter::Move(moves, answer)).map_err(|_| Stopped::Closing)?;
        moved.recv().map_err(|_| Stopped::Closing)
    }

    /// Makes this the manifest.
    pub(super) fn store(&mut self, next: Manifest) -> Result<(), Stopped> {
        next.store(&*self.disk)?;
        self.manifest = next;
        Ok(())
    }

    pub(super) fn stop_if_closing(&self) -> Result<(), Stopped> {
        if self.shared.is_closing() || self.writer.is_closed() { Err(Stopped::Closing) } else { Ok(()) }
    }

    /// Waits as long as so many bytes may take.
    pub(super) fn pace(&self, bytes: u64) -> Result<(), Stopped> {
        let mut left_ms = match self.is_hurried {
            true => 0,
            false => bytes.saturating_mul(1000) / self.options.pack_bytes_per_second,
        };
        while left_ms > 0 {
            self.stop_if_closing()?;
            let now_ms = left_ms.min(SLEEP_MS);
            std::thread::sleep(Duration::from_millis(now_ms));
            left_ms -= now_ms;
        }
        self.stop_if_closing()
    }
}
