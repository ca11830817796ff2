//! The handle of a running journal: how its host learns that it failed, and ends it.
//!
//! In: the host's wish to close. Out: the failure, the counters. Always: after `close` nothing of the journal runs and the
//! directory is free.

use super::error::JournalError;
use super::index::PARTS;
use super::keeper::Asked;
use super::shared::{Counters, Shared};
use slackwater_core::id::{Number, ThreadId};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use tokio::sync::{Notify, oneshot};

/// A running journal. Dropping it leaves the journal running until the flow lets go of its sink.
#[derive(Debug)]
pub struct JournalHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: Arc<Notify>,
    pub(super) writer: Running,
    pub(super) reader: Running,
    pub(super) keeper: Running,
    pub(super) to_keeper: mpsc::Sender<Asked>,
}

/// A thread of the operating system, and the sign that it has let go of everything.
#[derive(Debug)]
pub(super) struct Running {
    thread: JoinHandle<()>,
    done: oneshot::Receiver<()>,
}

impl Running {
    /// Starts a thread whose failure ends the journal.
    pub(super) fn start(
        name: &str,
        shared: &Arc<Shared>,
        stop: &Arc<Notify>,
        work: impl FnOnce() -> Result<(), JournalError> + Send + 'static,
    ) -> Result<Self, JournalError> {
        let (ended, done) = oneshot::channel();
        let (shared, stop) = (shared.clone(), stop.clone());
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                // What the work holds is dropped before anybody is told that it has ended.
                let failure = match std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)) {
                    Ok(ended) => ended.err(),
                    Err(panic) => {
                        let words = panic.downcast_ref::<String>().map(String::as_str);
                        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
                        Some(JournalError::Fault(words.unwrap_or("unknown").to_owned()))
                    }
                };
                if let Some(failure) = failure {
                    shared.fail(failure);
                    stop.notify_one();
                }
                let _ = ended.send(());
            })
            .map_err(JournalError::Start)?;
        Ok(Self { thread, done })
    }

    async fn end(self) {
        let _ = self.done.await;
        // It has said so as its last act; a panic was already noted as the failure.
        let _ = self.thread.join();
    }
}

impl JournalHandle {
    /// Waits until the journal has failed; for ever, if it does not. From then on nothing is acknowledged, and the
    /// directory must be opened again.
    pub fn failed(&self) -> impl Future<Output = Arc<JournalError>> + Send + 'static + use<> {
        let mut failure = self.shared.failure();
        async move {
            loop {
                if let Some(error) = failure.borrow_and_update().clone() {
                    return error;
                }
                if failure.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }

    /// What the journal holds and has done.
    pub fn counters(&self) -> Counters {
        self.shared.counters()
    }

    /// The threads, each with the number of its last durable record, by id.
    pub fn threads(&self) -> Vec<(ThreadId, Number)> {
        let of_part = |part| self.shared.index.part_entries(part).into_iter();
        let mut threads: Vec<_> = (0..PARTS).flat_map(of_part).map(|(thread, entry)| (thread, entry.last())).collect();
        threads.sort_unstable();
        threads
    }

    /// Writes the index down now, as it is otherwise done from time to time. Whether it was done: not while damage is known,
    /// and not when the journal closes or the disk fails.
    pub async fn checkpoint(&self) -> bool {
        self.ask(Asked::Checkpoint).await
    }

    /// Packs all threads now and frees what that leaves behind, as it is otherwise done in time with those that rest.
    /// Whether nothing was left: threads that go on meanwhile and damaged ones keep what they need.
    pub async fn pack(&self) -> bool {
        self.ask(Asked::Pack).await
    }

    async fn ask(&self, what: impl FnOnce(oneshot::Sender<bool>) -> Asked) -> bool {
        let (answer, done) = oneshot::channel();
        self.to_keeper.send(what(answer)).is_ok() && done.await.unwrap_or(false)
    }

    /// Commits what was sent before, with the hints that wait for a commit; ends; and frees the directory.
    ///
    /// # Errors
    /// When the journal has failed, now or before.
    pub async fn close(self) -> Result<(), Arc<JournalError>> {
        self.stop.notify_one();
        self.writer.end().await;
        // Everything is written; a recall that is still under way would be for nobody.
        self.shared.closing.store(true, Ordering::Release);
        self.reader.end().await;
        // It may have ended with the writer.
        let _ = self.to_keeper.send(Asked::End);
        self.keeper.end().await;
        match self.shared.failure().borrow().clone() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}
