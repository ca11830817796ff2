//! A disk that fails on demand and whose power can be cut.
//!
//! In: what the journal does to a disk, and when it should go wrong. Out: what a disk would hold afterwards. Always: what
//! was synced is kept; what was not may be lost, kept, reordered or torn, and so may names be that were made or removed;
//! after a sync that failed, the written bytes are still read back and a later sync does not write them, as Linux does it.

use super::super::disk::Disk;
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
    /// Some of the changes and not others, whatever their order, by this seed.
    Reordered(u64),
}

/// What goes wrong at an operation that changes something; operations are counted from 0.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// The power fails. What is under way may have reached the disk.
    Power(usize),
    /// This operation fails, and those after it do not.
    Once(usize),
    /// The disk is full from here on: half of what is written gets there, and no name can be made.
    Full(usize),
}

/// A clone is the same disk.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultDisk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u32, File>,
    /// Which names are on stable storage.
    named: BTreeSet<u32>,
    /// What was removed and may come back.
    removed: BTreeMap<u32, File>,
    points: usize,
    fault: Option<Fault>,
    fail_writes: bool,
    fail_syncs: bool,
    syncs: usize,
    /// A place that cannot be read any more.
    lost: Option<std::ops::Range<u64>>,
    /// Every so many reads, one is short.
    short_reads: Option<usize>,
    reads: usize,
    bytes_read: usize,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// What is read back.
    seen: Vec<u8>,
    /// What is on stable storage.
    safe: Vec<u8>,
    /// What a sync would make safe.
    dirty: Vec<Change>,
    /// Whether a sync has failed: then what is read back is more than what a later sync makes safe.
    failed: bool,
}

#[derive(Clone, Debug)]
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

impl File {
    fn after(&self, cut: Cut) -> Vec<u8> {
        match cut {
            Cut::Lost => self.safe.clone(),
            Cut::Kept => self.seen.clone(),
            Cut::Torn(seed) => torn(&self.safe, &self.seen, seed),
            Cut::Reordered(seed) => {
                let mut bytes = self.safe.clone();
                let kept = self.dirty.iter().enumerate().filter(|(place, _)| coin(seed, *place as u64));
                kept.for_each(|(_, change)| change.apply(&mut bytes));
                bytes
            }
        }
    }
}

/// Heads or tails.
fn coin(seed: u64, toss: u64) -> bool {
    let mixed = (seed ^ toss.rotate_left(32)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 60 & 1 == 1
}

fn torn(safe: &[u8], seen: &[u8], seed: u64) -> Vec<u8> {
    let new = |block: usize| coin(seed, block as u64);
    let length = if new(usize::MAX) { seen.len() } else { seen.len().min(safe.len().max(seen.len() / 2)) };
    (0..length).map(|at| if new(at / 64) { seen[at] } else { safe.get(at).copied().unwrap_or(0) }).collect()
}

impl FaultDisk {
    /// A disk that holds these segments, safely.
    pub(super) fn holding(segments: &BTreeMap<u32, Vec<u8>>) -> Self {
        let file = |bytes: &Vec<u8>| File { seen: bytes.clone(), safe: bytes.clone(), ..File::default() };
        let state = State {
            files: segments.iter().map(|(&segment, bytes)| (segment, file(bytes))).collect(),
            named: segments.keys().copied().collect(),
            ..State::default()
        };
        Self(Arc::new(Mutex::new(state)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    /// Something goes wrong.
    pub(super) fn with(self, fault: Fault) -> Self {
        self.lock().fault = Some(fault);
        self
    }

    /// Nothing goes wrong any more.
    pub(super) fn well(self) -> Self {
        self.lock().fault = None;
        self
    }

    /// The power fails at the operation with this number, counted from 0.
    pub(super) fn off_at(self, point: usize) -> Self {
        self.with(Fault::Power(point))
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

    /// One of so many reads brings less than was asked for, against the contract.
    pub(super) fn read_short(&self, one_of: usize) {
        self.lock().short_reads = Some(one_of);
    }

    /// How many operations there were that change something.
    pub(super) fn points(&self) -> usize {
        self.lock().points
    }

    /// How often a segment was synced.
    pub(super) fn syncs(&self) -> usize {
        self.lock().syncs
    }

    /// How often something was read.
    pub(super) fn reads(&self) -> usize {
        self.lock().reads
    }

    /// How many bytes were read.
    pub(super) fn bytes_read(&self) -> usize {
        self.lock().bytes_read
    }

    /// What is read back.
    pub(super) fn image(&self) -> BTreeMap<u32, Vec<u8>> {
        self.lock().files.iter().map(|(&segment, file)| (segment, file.seen.clone())).collect()
    }

    /// The disk after a power cut.
    pub(super) fn after(&self, cut: Cut) -> Self {
        let state = self.lock();
        // Whether a change of the directory that was not synced has happened.
        let happened = |segment: u32| match cut {
            Cut::Lost => false,
            Cut::Kept => true,
            Cut::Torn(seed) | Cut::Reordered(seed) => coin(!seed, u64::from(segment)),
        };
        let back = state.removed.iter().filter(|(segment, _)| !happened(**segment));
        let there = state.files.iter().filter(|(segment, _)| state.named.contains(segment) || happened(**segment));
        let seeded = |segment: u32| match cut {
            Cut::Torn(seed) => Cut::Torn(seed ^ u64::from(segment)),
            Cut::Reordered(seed) => Cut::Reordered(seed ^ u64::from(segment)),
            cut => cut,
        };
        let after = back.chain(there).map(|(&segment, file)| (segment, file.after(seeded(segment))));
        Self::holding(&after.collect())
    }
}

impl State {
    /// An operation that changes something. Whether it is the last moment before the power fails.
    fn point(&mut self) -> io::Result<()> {
        let point = self.points;
        self.points += 1;
        match self.fault {
            Some(Fault::Power(at)) if point >= at => Err(io::Error::other("the power is off")),
            Some(Fault::Once(at)) if point == at => Err(io::Error::other("a fault of the disk")),
            _ => Ok(()),
        }
    }

    fn is_full(&self) -> bool {
        matches!(self.fault, Some(Fault::Full(at)) if self.points > at)
    }

    fn change(&mut self, segment: u32, change: Change) -> io::Result<()> {
        let last_moment = matches!(self.fault, Some(Fault::Power(at)) if at == self.points);
        let power = self.point();
        let full = self.is_full();
        if power.is_ok() || last_moment {
            let file = self.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
            let change = match change {
                Change::Write(offset, bytes) if full => Change::Write(offset, bytes[..bytes.len() / 2].to_vec()),
                change => change,
            };
            change.apply(&mut file.seen);
            let is_write = matches!(change, Change::Write(..));
            file.dirty.push(change);
            if full && is_write {
                return Err(io::ErrorKind::StorageFull.into());
            }
        }
        power
    }
}

impl Disk for FaultDisk {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        Ok(self.lock().files.iter().map(|(&segment, file)| (segment, file.seen.len() as u64)).collect())
    }

    fn create(&self, segment: u32) -> io::Result<()> {
        let mut state = self.lock();
        let last_moment = matches!(state.fault, Some(Fault::Power(at)) if at == state.points);
        let power = state.point();
        if state.is_full() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if power.is_ok() || last_moment {
            assert!(state.files.insert(segment, File::default()).is_none(), "a segment is made once");
        }
        power
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
        let power = state.point();
        let off = matches!(state.fault, Some(Fault::Power(_))) && power.is_err();
        state.syncs += 1;
        let fails = state.fail_syncs || power.is_err();
        let file = state.files.get_mut(&segment).ok_or(io::ErrorKind::NotFound)?;
        if fails {
            // A sync that fails while there is power throws away what it was to save, and the cache still shows it.
            if !off {
                file.dirty.clear();
                file.failed = true;
            }
            return Err(power.err().unwrap_or_else(|| io::Error::other("input/output error")));
        }
        for change in std::mem::take(&mut file.dirty) {
            change.apply(&mut file.safe);
        }
        assert!(file.failed || file.safe == file.seen, "what is synced is what is read back");
        Ok(())
    }

    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut state = self.lock();
        state.reads += 1;
        if state.lost.as_ref().is_some_and(|lost| lost.start < offset + buffer.len() as u64 && offset < lost.end) {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error()));
        }
        let read = read_from(&state.files.get(&segment).ok_or(io::ErrorKind::NotFound)?.seen, offset, buffer);
        state.bytes_read += read;
        let short = state.short_reads.is_some_and(|one_of| state.reads.is_multiple_of(one_of));
        Ok(if short { read / 2 } else { read })
    }

    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.lock().change(segment, Change::Truncate(length))
    }

    fn remove(&self, segment: u32) -> io::Result<()> {
        let mut state = self.lock();
        let last_moment = matches!(state.fault, Some(Fault::Power(at)) if at == state.points);
        let power = state.point();
        if power.is_ok() || last_moment {
            let file = state.files.remove(&segment).ok_or(io::ErrorKind::NotFound)?;
            if state.named.contains(&segment) {
                state.removed.entry(segment).or_insert(file);
            }
        }
        power
    }

    fn sync_directory(&self) -> io::Result<()> {
        let mut state = self.lock();
        state.point()?;
        state.named = state.files.keys().copied().collect();
        state.removed.clear();
        Ok(())
    }

    fn directory(&self) -> String {
        "/the/disk".to_owned()
    }
}

/// Writes into a segment that is held in memory, growing it with zeros as a file would.
fn write_into(segment: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let offset = offset as usize;
    let end = offset + bytes.len();
    if segment.len() < end {
        segment.resize(end, 0);
    }
    segment[offset..end].copy_from_slice(bytes);
}

/// Reads from a segment that is held in memory.
fn read_from(segment: &[u8], offset: u64, buffer: &mut [u8]) -> usize {
    let rest = segment.get(offset as usize..).unwrap_or_default();
    let length = rest.len().min(buffer.len());
    buffer[..length].copy_from_slice(&rest[..length]);
    length
}
