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
//! | `scan`, `damage`, `recovery` | what a disk holds, what is wrong with it, and how it is made ready |
//! | `writer` | group commit |
//! | `reader`, `chain`, `query` | recalls and answers |
//! | [`inspect`](mod@inspect) | what `doctor` says |
//!
//! ```text
//! Journal::open(disk, options)?.start()? -> (FromAdapter<FromJournal>, ToAdapter<ToJournal>, JournalHandle)
//! ```

mod batch;
mod body;
mod chain;
mod damage;
pub mod directory;
pub mod disk;
mod error;
mod format;
mod handle;
mod index;
pub mod inspect;
mod memory;
mod options;
mod query;
mod reader;
mod recovery;
mod scan;
mod shared;
#[cfg(test)]
mod tests;
mod writer;

pub use damage::{Damage, DamageEffect, TornTail};
pub use directory::FileDisk;
pub use disk::{Disk, MemoryDisk};
pub use error::JournalError;
pub use handle::JournalHandle;
pub use inspect::{Report, inspect};
pub use options::Options;
pub use shared::Counters;

use crate::port::{FromAdapter, Inside, ToAdapter, ends};
use handle::Running;
use reader::Reader;
use recovery::{Position, recover};
use shared::Shared;
use slackwater_core::id::ThreadId;
use slackwater_core::port::{FromJournal, Rest, ToJournal};
use std::sync::{Arc, mpsc};
use tokio::sync::Notify;
use writer::Writer;

/// A journal that was recovered and does not run yet.
pub struct Journal {
    disk: Arc<dyn Disk>,
    options: Options,
    shared: Arc<Shared>,
    position: Position,
    unsettled: Vec<ThreadId>,
    resting: Vec<Rest>,
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
        let (mut scan, position) = recover(&*disk)?;
        let mut resting = scan.resting();
        resting.retain(|rest| scan.index.damage(&rest.thread).is_none());
        let mut unsettled = scan.index.unsettled();
        unsettled.retain(|thread| scan.index.damage(thread).is_none());
        let counters = Counters {
            threads: scan.index.len() as u64,
            records: scan.records,
            bytes: scan.bytes - scan.torn.as_ref().map_or(0, |torn| torn.bytes),
            segments: scan.segments.max(1) as u64,
            syncs: 0,
        };
        Ok(Self {
            disk,
            options,
            shared: Arc::new(Shared::new(scan.index, counters)),
            position,
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
    /// covers, and `Resting` for each that rests and has timers.
    ///
    /// # Errors
    /// When the system refuses a thread.
    pub fn start(self) -> Result<(FromAdapter<FromJournal>, ToAdapter<ToJournal>, JournalHandle), JournalError> {
        let Self { disk, options, shared, position, unsettled, resting, .. } = self;
        let (from, to, Inside { send, receive }) = ends();
        for thread in unsettled {
            let last = shared.index.get(&thread).map_or(0, |entry| entry.last());
            let _ = send.send(FromJournal::Wake { thread, last });
        }
        for rest in resting {
            let _ = send.send(FromJournal::Resting(rest));
        }
        let (to_reader, from_writer) = mpsc::channel();
        let reader = Reader { disk: disk.clone(), shared: shared.clone(), send: send.clone() };
        let stop = Arc::new(Notify::new());
        let reader = Running::start("journal-reader", &shared, &stop, move || reader.run(&from_writer))?;
        let stopped = stop.clone();
        let writer = Writer::new(disk, options, shared.clone(), send, to_reader, position);
        let writer = Running::start("journal-writer", &shared, &stop, move || writer.run(receive, &stopped))?;
        Ok((from, to, JournalHandle { shared, stop, writer, reader }))
    }
}
