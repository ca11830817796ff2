//! A journal that nobody uses, asked as one that runs.
//!
//! In: a directory. Out: answers to questions. Always: changes nothing; while it is looked at, no runtime can take the
//! directory.

use super::checkpoint::Mark;
use super::directory::FileDisk;
use super::disk::Disk;
use super::error::JournalError;
use super::reader::Reader;
use super::recovery;
use super::shared::{Counters, Shared};
use slackwater_core::port::{Query, Reply};
use std::path::Path;
use std::sync::Arc;
use tokio::sync::mpsc;

/// A journal that nobody uses.
pub struct Still {
    reader: Reader,
    segments: usize,
}

impl Still {
    /// Looks at the journal in a directory. Costs what opening it costs.
    ///
    /// # Errors
    /// When there is none, a process runs on it, a segment is of another version, or the disk fails. Damage is no error.
    pub fn open(directory: &Path) -> Result<Self, JournalError> {
        let disk: Arc<dyn Disk> = Arc::new(FileDisk::open_to_read(directory)?);
        let (scan, _) = recovery::read(&*disk)?;
        // Nothing is written here, so nobody asks how far that is durable.
        let shared = Arc::new(Shared::new(scan.index, scan.dictionaries, Mark::default(), Counters::default()));
        let (send, _) = mpsc::unbounded_channel();
        Ok(Self { reader: Reader { disk, shared, send }, segments: scan.segments })
    }

    /// Whether there is no journal in the directory at all.
    pub fn is_empty(&self) -> bool {
        self.segments == 0
    }

    /// Answers a question.
    ///
    /// # Errors
    /// When the disk cannot be read.
    pub fn ask(&self, question: Query) -> Result<Reply, JournalError> {
        let reply = self.reader.reply(question)?;
        Ok(reply.expect("invariant: a journal that does not run is not closing"))
    }
}
