//! What the journal's threads and its handle share.
//!
//! In: what became durable, and the first failure. Out: the index, counters, and the failure for whoever waits for it.
//! Always: after the first failure nothing is acknowledged.

use super::checkpoint::Mark;
use super::dictionary::Dictionaries;
use super::error::JournalError;
use super::index::Index;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use tokio::sync::watch;

/// Shared by the writer, the reader and the handle.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) index: Index,
    pub(super) dictionaries: Dictionaries,
    /// Held while a chain is read, so that nothing that it leads to is removed meanwhile.
    pub(super) reading: RwLock<()>,
    /// The end of what is durable.
    durable: Mutex<Mark>,
    /// Set when the journal closes for whatever reason: what is not begun is not begun any more.
    pub(super) closing: AtomicBool,
    failure: watch::Sender<Option<Arc<JournalError>>>,
    threads: AtomicU64,
    records: AtomicU64,
    bytes: AtomicU64,
    segments: AtomicU64,
    syncs: AtomicU64,
}

/// What a journal holds, and what it has done since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Threads.
    pub threads: u64,
    /// Records.
    pub records: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Segments.
    pub segments: u64,
    /// Groups that were written and synced since the opening.
    pub syncs: u64,
}

impl Shared {
    pub(super) fn new(index: Index, dictionaries: Dictionaries, durable: Mark, counters: Counters) -> Self {
        Self {
            index,
            dictionaries,
            reading: RwLock::new(()),
            durable: Mutex::new(durable),
            closing: AtomicBool::new(false),
            failure: watch::Sender::new(None),
            threads: AtomicU64::new(counters.threads),
            records: AtomicU64::new(counters.records),
            bytes: AtomicU64::new(counters.bytes),
            segments: AtomicU64::new(counters.segments),
            syncs: AtomicU64::new(counters.syncs),
        }
    }

    /// Adds to the counters.
    pub(super) fn count(&self, more: Counters) {
        self.threads.fetch_add(more.threads, Ordering::Relaxed);
        self.records.fetch_add(more.records, Ordering::Relaxed);
        self.bytes.fetch_add(more.bytes, Ordering::Relaxed);
        self.segments.fetch_add(more.segments, Ordering::Relaxed);
        self.syncs.fetch_add(more.syncs, Ordering::Relaxed);
    }

    pub(super) fn counters(&self) -> Counters {
        Counters {
            threads: self.threads.load(Ordering::Relaxed),
            records: self.records.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
            segments: self.segments.load(Ordering::Relaxed),
            syncs: self.syncs.load(Ordering::Relaxed),
        }
    }

    /// The end of what is durable: what the index holds is before it, or was so a moment ago.
    pub(super) fn durable(&self) -> Mark {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_durable(&self, mark: Mark) {
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = mark;
    }

    /// Counts what was removed.
    pub(super) fn uncount(&self, segments: u64, bytes: u64) {
        self.segments.fetch_sub(segments, Ordering::Relaxed);
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Notes the failure that ends the journal. The first is kept.
    pub(super) fn fail(&self, error: JournalError) {
        self.closing.store(true, Ordering::Release);
        tracing::error!("{error}");
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            if first {
                *failure = Some(Arc::new(error));
            }
            first
        });
    }

    pub(super) fn failure(&self) -> watch::Receiver<Option<Arc<JournalError>>> {
        self.failure.subscribe()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }
}
