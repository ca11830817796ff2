//! The reader: the one thread that recalls threads and answers questions.
//!
//! In: recalls and queries, passed on by the writer. Out: the records, the replies. Always: sees only what is durable, and
//! never holds up a commit; a damaged thread is an answer, never an empty history.

use super::chain::{self, Ancestry, Source, Unread};
use super::disk::Disk;
use super::error::JournalError;
use super::query;
use super::shared::Shared;
use slackwater_core::id::{Number, ThreadId, Ticket};
use slackwater_core::port::{FromJournal, Query, Reply};
use slackwater_core::record::Committed;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use tokio::sync::mpsc::UnboundedSender;

/// What the reader is asked.
#[derive(Debug)]
pub(super) enum ToReader {
    Recall { thread: ThreadId, before: Number },
    Query(Ticket, Query),
}

pub(super) struct Reader {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) shared: Arc<Shared>,
    pub(super) send: UnboundedSender<FromJournal>,
}

/// A thread's ancestry and its records; words if any of them are damaged.
type Inherited = Result<(Ancestry, Vec<Committed>), String>;

/// A thread's records; nothing if there is no such thread; words if they are damaged.
pub(super) type Records = Result<Option<Vec<Committed>>, String>;

impl Reader {
    /// Works until the writer is gone or the journal closes.
    ///
    /// # Errors
    /// When the disk cannot be read. A history that cannot be read now may be whole, so it is not called damaged: the
    /// journal stops, as it does when it cannot write.
    pub(super) fn run(self, receive: &Receiver<ToReader>) -> Result<(), JournalError> {
        while let Ok(read) = receive.recv() {
            let answer = match read {
                ToReader::Recall { thread, before } => match self.inherited(thread, before)? {
                    Some(Ok((ancestry, records))) => FromJournal::Recalled { thread, records: Ok(records), ancestry },
                    Some(Err(what)) => FromJournal::Recalled { thread, records: Err(what), ancestry: Vec::new() },
                    None => return Ok(()),
                },
                ToReader::Query(ticket, query) => match self.reply(query)? {
                    Some(reply) => FromJournal::Reply(ticket, reply),
                    None => return Ok(()),
                },
            };
            if self.send.send(answer).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// A thread's ancestry and its records with numbers below `before`; nothing when the journal is closing, words when any
    /// of them are damaged.
    fn inherited(&self, thread: ThreadId, before: Number) -> Result<Option<Inherited>, JournalError> {
        enum Unavailable {
            Closing,
            Damaged(String),
            Failed(JournalError),
        }
        let read = chain::inherited(thread, before, |thread, before| match self.records(thread, before) {
            Ok(Some(Ok(records))) => Ok(records.unwrap_or_default()),
            Ok(Some(Err(what))) => Err(Unavailable::Damaged(what)),
            Ok(None) => Err(Unavailable::Closing),
            Err(error) => Err(Unavailable::Failed(error)),
        });
        match read {
            Ok(read) => Ok(Some(Ok(read))),
            Err(Unavailable::Damaged(what)) => Ok(Some(Err(what))),
            Err(Unavailable::Closing) => Ok(None),
            Err(Unavailable::Failed(error)) => Err(error),
        }
    }

    /// Nothing when the journal is closing.
    fn records(&self, thread: ThreadId, before: Number) -> Result<Option<Records>, JournalError> {
        if let Some(what) = self.shared.index.damage(&thread) {
            return Ok(Some(Err(what)));
        }
        let _reading = self.shared.reading.read();
        let Some(head) = self.shared.index.get(&thread) else { return Ok(Some(Ok(None))) };
        let source = Source { disk: &*self.disk, dictionaries: &self.shared.dictionaries };
        match chain::read(source, thread, head, before, || self.shared.is_closing()) {
            Ok(records) => Ok(Some(Ok(Some(records)))),
            Err(Unread::Stopped) => Ok(None),
            Err(Unread::Damaged(what)) => {
                tracing::error!(%thread, "journal damage: {what}");
                self.shared.index.set_damaged(thread, what.clone());
                Ok(Some(Err(what)))
            }
            Err(Unread::Disk(segment, source)) => {
                Err(JournalError::Disk { action: "read", place: self.disk.place(segment), source })
            }
        }
    }

    /// Nothing when the journal is closing.
    pub(super) fn reply(&self, question: Query) -> Result<Option<Reply>, JournalError> {
        let thread = match (question.thread(), &question) {
            (Some(thread), _) => thread,
            (None, Query::Threads { after, limit, .. }) => return self.threads(*after, *limit),
            (None, _) => return Ok(Some(Reply::UnknownThread)),
        };
        let (ancestry, records) = match self.inherited(thread, Number::MAX)? {
            Some(Ok((_, records))) if records.is_empty() => return Ok(Some(Reply::UnknownThread)),
            Some(Ok(read)) => read,
            Some(Err(what)) => return Ok(Some(Reply::Damaged(what))),
            None => return Ok(None),
        };
        Ok(Some(query::reply(question, thread, ancestry, records)))
    }

    /// The standings of the first threads by id. A damaged thread has none and is passed over; its own query names the
    /// damage.
    fn threads(&self, mut after: Option<ThreadId>, limit: usize) -> Result<Option<Reply>, JournalError> {
        let limit = limit.min(query::THREADS_MAX);
        let mut standings = Vec::new();
        while standings.len() < limit {
            let page = self.shared.index.page(after, limit - standings.len());
            let Some(&last) = page.last() else { break };
            after = Some(last);
            for thread in page {
                match self.inherited(thread, Number::MAX)? {
                    Some(Ok((ancestry, records))) => {
                        standings.push(query::standing(thread, ancestry, records));
                    }
                    Some(Err(_)) => {}
                    None => return Ok(None),
                }
            }
        }
        Ok(Some(Reply::Threads(standings)))
    }
}
