//! A disk that fails on demand and whose power can be cut.
//!
//! In: what the journal does to a disk, and when it should go wrong. Out: what a disk would hold afterwards. Always: what
//! was synced is kept; what was not may be lost, kept or torn; after a sync that failed, the written bytes are still read
//! back and a later sync does not write them, as Linux does it.

use super::super::disk::{Disk, read_from, write_into};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

/// How much of the unsynced survives a power cut.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cut {
    /// None of it.
    Lost,
    /// All of it.
    Kept,
    /// Of each 64 bytes either the old or the new, by this seed.
    Torn(u64),
}

/// A clone is the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    /// What is read back.
    seen: BTreeMap<u32, Vec<u8>>,
    /// What is on stable storage, and which names are.
    safe: BTreeMap<u32, Vec<u8>>,
    named: BTreeSet<u32>,
    /// What a sync would make safe.
    dirty: BTreeMap<u32, Vec<Change>>,
    points: usize,
    off_at: Option<usize>,
    fail_writes: bool,
    fail_syncs: bool,
    syncs: usize,
    /// A place that cannot be read any more.
    lost: Option<std::ops::Range<u64>>,
}

#[derive(Debug)]
enum Change {
    Write(u64, Vec<u8>),
    Truncate(u64),
}

impl Change {
    fn apply(&self, bytes: &mut Vec<u8>) {
        match self {
            Change::Write(offset, new) => write_into(bytes, *offset, new),
            Change::Truncate(length) => bytes.truncate(*length as usize),
        }
    }
}

impl FaultDisk {
    /// A disk that holds these segments, safely.
    pub(super) fn holding(segments: &BTreeMap<u32, Vec<u8>>) -> Self {
        let state = State {
            seen: segments.clone(),
            safe: segments.clone(),
            named: segments.keys().copied().collect(),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// The power fails at the operation with this number, counted from 0.
    pub(super) fn off_at(self, point: usize) -> Self {
        self.lock().off_at = Some(point);
        self
    }

    pub(super) fn fail_writes(&self) {
        self.lock().fail_writes = true;
    }

    pub(super) fn fail_syncs(&self, fail: bool) {
        self.lock().fail_syncs = fail;
    }

    /// This place cannot be read any more, in any segment.
    pub(super) fn lose(&self, place: std::ops::Range<u64>) {
        self.lock().lost = Some(place);
    }

    /// How many operations there were that change something.
    pub(super) fn points(&self) -> usize {
        self.lock().points
    }

    /// How often a segment was synced.
    pub(super) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    /// What is read back.
    pub(super) fn image(&self) -> BTreeMap<u32, Vec<u8>> {
        self.lock().seen.clone()
    }

    /// The disk after a power cut.
    pub(super) fn after(&self, cut: Cut) -> Self {
        let state = self.lock();
        let mut segments = BTreeMap::new();
        for (&segment, seen) in &state.seen {
            let nothing = Vec::new();
            let safe = state.safe.get(&segment).unwrap_or(&nothing);
            let bytes = match cut {
                Cut::Lost if !state.named.contains(&segment) => continue,
                Cut::Lost => safe.clone(),
                Cut::Kept => seen.clone(),
                Cut::Torn(seed) => torn(safe, seen, seed ^ u64::from(segment)),
            };
            segments.insert(segment, bytes);
        }
        Self::holding(&segments)
    }
}

fn torn(safe: &[u8], seen: &[u8], seed: u64) -> Vec<u8> {
    let new = |block: usize| (seed ^ block as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60 & 1 == 1;
    let length = if new(usize::MAX) { seen.len() } else { seen.len().min(safe.len().max(seen.len() / 2)) };
    (0..length).map(|at| if new(at / 64) { seen[at] } else { safe.get(at).copied().unwrap_or(0) }).collect()
}

impl State {
    fn point(&mut self) -> io::Result<()> {
        self.points += 1;
        match self.off_at {
            Some(off) if self.points > off => Err(io::Error::other("the power is off")),
            _ => Ok(()),
        }
    }

    fn change(&mut self, segment: u32, change: Change) -> io::Result<()> {
        let last_moment = self.off_at == Some(self.points);
        let power = self.point();
        if power.is_ok() || last_moment {
            // What is under way when the power fails may have reached the disk.
            change.apply(self.seen.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?);
            self.dirty.entry(segment).or_default().push(change);
        }
        power
    }
}

impl Disk for FaultDisk {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        Ok(self.lock().seen.iter().map(|(&segment, bytes)| (segment, bytes.len() as u64)).collect())
    }

    fn create(&self, segment: u32) -> io::Result<()> {
        let mut state = self.lock();
        state.point()?;
        assert!(state.seen.insert(segment, Vec::new()).is_none(), "a segment is made once");
        Ok(())
    }

    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.lock();
        if state.fail_writes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        state.change(segment, Change::Write(offset, bytes.to_vec()))
    }

    fn sync(&self, segment: u32) -> io::Result<()> {
        let mut state = self.lock();
        state.point()?;
        state.syncs += 1;
        let changes = state.dirty.remove(&segment).unwrap_or_default();
        if state.fail_syncs {
            return Err(io::Error::other("input/output error"));
        }
        let safe = state.safe.entry(segment).or_default();
        changes.iter().for_each(|change| change.apply(safe));
        Ok(())
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let state = self.lock();
        if state.lost.as_ref().is_some_and(|lost| lost.start < offset + buffer.len() as u64 && offset < lost.end) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        Ok(read_from(state.seen.get(&segment).ok_or(io::ErrorKind::NotFound)?, offset, buffer))
    }

    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.lock().change(segment, Change::Truncate(length))
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        let mut state = self.lock();
        state.point()?;
        state.seen.remove(&segment);
        Ok(())
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.point()?;
        state.named = state.seen.keys().copied().collect();
        Ok(())
    }

    fn directory(&self) -> String {
        "/the/disk".to_owned()
    }
}
