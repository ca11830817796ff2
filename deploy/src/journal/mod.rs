//! The journal: the append-only log of a shard, behind `ToJournal` and `FromJournal`.
//!
//! In: records as they arrive. Out: the same records once they are on stable storage, in one order; a thread's records
//! again; answers about what is durable. Always: nothing is told before it is synced; damage is named and never looks like
//! an end; after a failed write or sync nothing more is acknowledged.
//!
//! | part | what |
//! | --- | --- |
//! | [`disk`], [`directory`], `memory` | the seam under everything, a directory as a disk, and a segment in memory |
//! | `format`, `body`, `batch` | the bytes; `deploy/docs/journal-format.md` draws them |
//! | `index` | where each thread's last record is |
//! | `manifest`, `checkpoint` | which packs there are; the index as it was |
//! | `pack`, `block`, `dictionary` | threads' records, together and compressed |
//! | `keeper`, `repack`, `gather` | the thread that writes the index down and packs |
//! | `scan`, `packs`, `damage`, `recovery` | what a disk holds, what is wrong with it, and how it is made ready |
//! | `writer` | group commit |
//! | `reader`, `chain`, `query` | recalls and answers |
//! | [`inspect`](mod@inspect), `still` | what `doctor` says; answers about a directory that nobody uses |
//! | [`inspect`](mod@inspect), [`repair`](mod@repair) | what `doctor` says and does |
//! | [`snapshot`], [`backup`](mod@backup), [`transfer`] | what is read while a runtime runs: copies, and threads as text |
//!
//! ```text
//! Journal::open(disk, options)?.start()? -> (FromAdapter<FromJournal>, ToAdapter<ToJournal>, JournalHandle)
//! ```

pub mod backup;
mod batch;
mod block;
mod body;
mod chain;
mod checkpoint;
mod damage;
mod dictionary;
pub mod directory;
pub mod disk;
mod error;
mod format;
mod gather;
mod handle;
mod index;
pub mod inspect;
mod keeper;
mod manifest;
mod memory;
mod options;
mod pack;
mod packs;
mod query;
mod reader;
mod recovery;
mod repack;
pub mod repair;
mod scan;
mod shared;
mod sleepers;
pub mod snapshot;
mod still;
#[cfg(test)]
mod tests;
pub mod transfer;
mod writer;

pub use backup::{Backup, backup};
pub use damage::{Damage, DamageEffect, TornTail};
pub use directory::FileDisk;
pub use disk::{Disk, MemoryDisk};
pub use error::JournalError;
pub use handle::JournalHandle;
pub use inspect::{CheckpointState, Progress, Report, inspect, inspect_watched};
pub use options::Options;
pub use repair::{Repaired, repair};
pub use shared::Counters;
pub use snapshot::Snapshot;
pub use still::Still;
pub use transfer::{Line, TransferError, export, import};

use crate::port::{FromAdapter, Inside, ToAdapter, ends};
use dictionary::Dictionary;
use handle::Running;
use keeper::{Base, Keeper};
use manifest::Manifest;
use reader::Reader;
use recovery::{Position, Recovered, recover};
use shared::Shared;
use slackwater_core::id::ThreadId;
use slackwater_core::port::{FromJournal, ToJournal};
use sleepers::Sleepers;
use std::sync::{Arc, mpsc};
use tokio::sync::Notify;
use writer::Writer;

/// A journal that was recovered and does not run yet.
pub struct Journal {
    disk: Arc<dyn Disk>,
    options: Options,
    shared: Arc<Shared>,
    position: Position,
    manifest: Manifest,
    base: Base,
    dictionary: Option<Dictionary>,
    unsettled: Vec<ThreadId>,
    resting: Sleepers,
    damages: Vec<Damage>,
    torn: Option<TornTail>,
}

impl Journal {
    /// Reads a disk and makes it ready: cuts a torn tail, names what is damaged.
    ///
    /// # Errors
    /// When the disk fails, an option cannot work, or damage cannot be put down to certain threads.
    pub fn open(disk: impl Disk + 'static, options: Options) -> Result<Self, JournalError> {
        options.check()?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let Recovered { mut scan, position, checkpoint } = recover(&*disk)?;
        let mut resting = scan.resting();
        resting.retain(|thread, _| scan.index.damage(&thread).is_none());
        let mut unsettled = scan.index.unsettled();
        unsettled.retain(|thread| scan.index.damage(thread).is_none());
        let counters = Counters {
            threads: scan.index.len() as u64,
            records: scan.records,
            // A journal's first segment is made when it is opened.
            bytes: (scan.bytes - scan.torn.as_ref().map_or(0, |torn| torn.bytes)).max(format::SEGMENT_HEAD as u64),
            segments: scan.segments.max(1) as u64,
            syncs: 0,
        };
        let mark = position.mark(&*disk)?;
        let manifest = scan.manifest.manifest;
        let base = match checkpoint {
            Some((segment, start)) => Base::Checkpoint(segment, start),
            None if manifest == Manifest::default() && counters.bytes < options.checkpoint_bytes => Base::Log,
            None => begin_checkpoints(&*disk, mark, &manifest, &scan.index, &resting),
        };
        // It is learnt again when it cannot be read.
        let dictionary = scan.dictionaries.load(&*disk, &manifest).unwrap_or_default();
        Ok(Self {
            disk,
            options,
            shared: Arc::new(Shared::new(scan.index, scan.dictionaries, mark, counters)),
            position,
            manifest,
            base,
            dictionary,
            unsettled,
            resting,
            damages: scan.damages,
            torn: scan.torn,
        })
    }

    /// What was found damaged. The threads it concerns are refused.
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// What was cut at the end, if the last write had not come to its end.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// Starts the writer and the reader. The stream begins with `Wake` for each thread whose last record no rest hint
    /// covers, and `Resting` for those that rest and have timers; if there are very many, some of these come later.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(self) -> Result<(FromAdapter<FromJournal>, ToAdapter<ToJournal>, JournalHandle), JournalError> {
        let Self { disk, options, shared, position, manifest, base, dictionary, unsettled, resting, .. } = self;
        let (from, to, Inside { send, receive }) = ends();
        for thread in unsettled {
            let last = shared.index.get(&thread).map_or(0, |entry| entry.last());
            let _ = send.send(FromJournal::Wake { thread, last });
        }
        // More than these are told a little later and some at a time, so that they are not all in memory at once.
        for rest in resting.iter().take(keeper::TOLD_AT_ONCE) {
            let _ = send.send(FromJournal::Resting(rest));
        }
        let (to_reader, from_writer) = mpsc::channel();
        let reader = Reader { disk: disk.clone(), shared: shared.clone(), send: send.clone() };
        let stop = Arc::new(Notify::new());
        let reader = Running::start("journal-reader", &shared, &stop, move || reader.run(&from_writer))?;
        let stopped = stop.clone();
        let (to_writer, from_keeper) = tokio::sync::mpsc::unbounded_channel();
        let (to_keeper, asked) = mpsc::channel();
        let keeper = Keeper {
            disk: disk.clone(),
            options: options.clone(),
            shared: shared.clone(),
            manifest,
            base,
            resting,
            writer: to_writer,
            dictionary,
            packs_of_dictionary: 1,
            is_hurried: false,
        };
        let writer = Writer::new(disk, options, shared.clone(), send, to_reader, position);
        let writer =
            Running::start("journal-writer", &shared, &stop, move || writer.run(receive, from_keeper, &stopped))?;
        let keeper = Running::start("journal-keeper", &shared, &stop, move || {
            keeper.run(&asked);
            Ok(())
        })?;
        Ok((from, to, JournalHandle { shared, stop, writer, reader, keeper, to_keeper }))
    }
}

/// Writes down an index that took long to make, so that the next opening is faster and later checkpoints can follow on it.
fn begin_checkpoints(
    disk: &dyn Disk,
    mark: checkpoint::Mark,
    manifest: &Manifest,
    index: &index::Index,
    resting: &Sleepers,
) -> Base {
    if index.is_any_damaged() {
        return Base::Unknown;
    }
    let written = checkpoint::Writing::begin(disk, mark, index.len() as u64, manifest).and_then(|mut writing| {
        writing.entries(index, |_| Ok::<_, std::io::Error>(()))?;
        writing.rests(resting.iter())?;
        writing.end(mark)
    });
    match written {
        Ok(segment) => Base::Checkpoint(segment, mark),
        Err(error) => {
            tracing::warn!(directory = disk.directory(), %error, "the index could not be written down; the next start reads all of the log");
            Base::Unknown
        }
    }
}
