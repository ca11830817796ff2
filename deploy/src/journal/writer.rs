//! The writer: the one thread that appends.
//!
//! In: everything the flow sends to the journal. Out: what was committed, in journal order; reads go on to the reader.
//! Always: a group of appends is one write and one sync, and only then acknowledged; the index learns of it after the sync;
//! a group is begun only when the one before it is durable; after a failure nothing more is written.

use super::batch::Batch;
use super::body;
use super::checkpoint::Mark;
use super::disk::Disk;
use super::error::JournalError;
use super::format::{FrameHead, Location, Row, SEGMENT_HEAD, kind};
use super::index::Entry;
use super::options::Options;
use super::reader::ToReader;
use super::recovery::{Position, begin_segment, failed};
use super::shared::{Counters, Shared};
use hashbrown::HashMap;
use slackwater_core::effect::Refusal;
use slackwater_core::id::{Number, ThreadId};
use slackwater_core::port::{FromJournal, Rest, ToJournal};
use slackwater_core::record::{Arrival, Committed};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

/// What the keeper asks of the writer, which alone changes the index.
#[derive(Debug)]
pub(super) enum ToWriter {
    /// These threads' chains begin at blocks now. Answered by those that have gone on meanwhile and were left as they are.
    Move(Vec<Move>, mpsc::Sender<Vec<ThreadId>>),
    /// Tell the flow that these rest, if they still do.
    Tell(Vec<Rest>),
    /// Go on in a new segment, unless this one is empty.
    Rotate(mpsc::Sender<()>),
}

/// A thread's chain begins elsewhere.
#[derive(Clone, Copy, Debug)]
pub(super) struct Move {
    pub(super) thread: ThreadId,
    pub(super) from: Entry,
    pub(super) to: Entry,
}

/// The writer's state between groups, and the group that it gathers.
pub(super) struct Writer {
    disk: Arc<dyn Disk>,
    options: Options,
    shared: Arc<Shared>,
    send: UnboundedSender<FromJournal>,
    reader: mpsc::Sender<ToReader>,
    position: Position,
    batch: Batch,
    /// What the group adds to the index once it is durable.
    fresh: HashMap<ThreadId, Entry>,
    committed: Vec<Committed>,
    /// Reads that must see the group.
    reads: Vec<ToReader>,
    /// Rests that wait for the next group.
    rests: VecDeque<Rest>,
    /// Those that are in the group: who, and through which record.
    resting: Vec<(ThreadId, Number)>,
    new_threads: u64,
}

impl Writer {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        options: Options,
        shared: Arc<Shared>,
        send: UnboundedSender<FromJournal>,
        reader: mpsc::Sender<ToReader>,
        position: Position,
    ) -> Self {
        let mut writer = Self {
            disk,
            options,
            shared,
            send,
            reader,
            position,
            batch: Batch::default(),
            fresh: HashMap::new(),
            committed: Vec::new(),
            reads: Vec::new(),
            rests: VecDeque::new(),
            resting: Vec::new(),
            new_threads: 0,
        };
        writer.begin();
        writer
    }

    /// Works until the flow is gone or `stop` is notified, and then writes what it still has.
    ///
    /// # Errors
    /// When a write or sync failed. Nothing of that group is acknowledged.
    pub(super) fn run(
        mut self,
        mut receive: UnboundedReceiver<ToJournal>,
        mut keeper: UnboundedReceiver<ToWriter>,
        stop: &Notify,
    ) -> Result<(), JournalError> {
        enum Next {
            Item(Option<ToJournal>),
            Kept(ToWriter),
        }
        loop {
            let next = futures::executor::block_on(async {
                tokio::select! {
                    biased;
                    item = receive.recv() => Next::Item(item),
                    () = stop.notified() => {
                        receive.close();
                        Next::Item(receive.recv().await)
                    }
                    Some(asked) = keeper.recv() => Next::Kept(asked),
                }
            });
            let item = match next {
                Next::Item(Some(item)) => item,
                // The channel is closed and empty.
                Next::Item(None) => break,
                Next::Kept(asked) => {
                    self.keep(asked)?;
                    continue;
                }
            };
            if self.shared.is_closing() {
                // The reader has failed.
                return Ok(());
            }
            while let Ok(asked) = keeper.try_recv() {
                self.keep(asked)?;
            }
            self.take(item)?;
            while let Ok(item) = receive.try_recv() {
                self.take(item)?;
            }
            self.commit()?;
        }
        self.finish()
    }

    /// Between groups: there is nothing that the index does not know yet.
    fn keep(&mut self, asked: ToWriter) -> Result<(), JournalError> {
        debug_assert!(self.fresh.is_empty(), "a group is under way");
        // Nobody waits for an answer any more when the journal is closing.
        match asked {
            ToWriter::Move(moves, answer) => {
                let index = &self.shared.index;
                let mut gone_on = Vec::new();
                for Move { thread, from, mut to } in moves {
                    match index.get(&thread).filter(|now| (now.location, now.last()) == (from.location, to.last())) {
                        Some(now) => {
                            if now.is_at_rest() {
                                to.set_at_rest();
                            }
                            index.set(thread, to);
                        }
                        None => gone_on.push(thread),
                    }
                }
                let _ = answer.send(gone_on);
            }
            ToWriter::Tell(resting) => {
                for rest in resting {
                    let entry = self.shared.index.get(&rest.thread);
                    if entry.is_some_and(|entry| entry.is_at_rest() && entry.last() == rest.through) {
                        self.tell(FromJournal::Resting(rest));
                    }
                }
            }
            ToWriter::Rotate(answer) => {
                if self.position.end > SEGMENT_HEAD as u64 {
                    self.begin_segment()?;
                }
                let _ = answer.send(());
            }
        }
        Ok(())
    }

    fn take(&mut self, item: ToJournal) -> Result<(), JournalError> {
        match item {
            ToJournal::Append(arrivals) => arrivals.into_iter().try_for_each(|arrival| self.append(arrival))?,
            ToJournal::Recall { thread, before } => self.read(Some(thread), ToReader::Recall { thread, before }),
            ToJournal::Rest(rest) => self.rests.push_back(rest),
            ToJournal::Query(ticket, query) => self.read(query.thread(), ToReader::Query(ticket, query)),
        }
        Ok(())
    }

    /// Passes a read on: at once, unless the group under way holds something that it must see.
    fn read(&mut self, thread: Option<ThreadId>, read: ToReader) {
        let waits = match thread {
            Some(thread) => self.fresh.contains_key(&thread),
            None => !self.fresh.is_empty(),
        };
        if waits {
            self.reads.push(read);
        } else {
            self.pass(read);
        }
    }

    fn pass(&self, read: ToReader) {
        // The reader is gone only when the journal is closing.
        let _ = self.reader.send(read);
    }

    fn tell(&self, item: FromJournal) {
        // The flow is gone: there is nobody to tell, and what is durable stays.
        let _ = self.send.send(item);
    }

    fn append(&mut self, arrival: Arrival) -> Result<(), JournalError> {
        if self.shared.index.damage(&arrival.thread).is_some() {
            self.tell(FromJournal::Refused(arrival, Refusal::Damaged));
            return Ok(());
        }
        let known = self.last(&arrival.thread);
        if known.is_none() && !arrival.record.creates_thread() {
            self.tell(FromJournal::Refused(arrival, Refusal::UnknownThread));
            return Ok(());
        }
        if self.batch.length() >= self.options.group_max_bytes {
            self.commit()?;
        }
        let mut entry = self.push_record(known, &arrival);
        if self.overflows() {
            self.batch.undo();
            self.commit()?;
            self.begin_segment()?;
            entry = self.push_record(known, &arrival);
        }
        self.new_threads += u64::from(known.is_none());
        self.fresh.insert(arrival.thread, entry);
        self.committed.push(Committed { number: entry.last(), arrival });
        Ok(())
    }

    /// The thread's last record, whether it is durable or in the group under way.
    fn last(&self, thread: &ThreadId) -> Option<Entry> {
        self.fresh.get(thread).copied().or_else(|| self.shared.index.get(thread))
    }

    fn push_record(&mut self, known: Option<Entry>, arrival: &Arrival) -> Entry {
        let known = known.unwrap_or_default();
        let number = known.last() + 1;
        let row = Row { thread: arrival.thread, number, kind: kind::RECORD, length: 0 };
        let head = FrameHead { row, previous: known.location, at_ms: arrival.at_ms };
        Entry::new(self.batch.push(head, |bytes| body::write_record(&arrival.record, bytes)), number)
    }

    /// Whether the batch is too long for the segment. A single frame never is when it has the segment for itself.
    fn overflows(&self) -> bool {
        let alone = self.position.end == SEGMENT_HEAD as u64 && self.batch.count() == 1;
        self.position.end + self.batch.length() as u64 > self.options.segment_max_bytes && !alone
    }

    /// Adds the rests that wait and still hold, as many as there is room for.
    fn add_rests(&mut self) {
        while let Some(rest) = self.rests.pop_front() {
            // One that a later record has made void would only be read to be thrown away.
            if self.last(&rest.thread).is_none_or(|entry| entry.last() != rest.through) {
                continue;
            }
            let row = Row { thread: rest.thread, number: rest.through, kind: kind::REST, length: 0 };
            let head = FrameHead { row, previous: Location::default(), at_ms: 0 };
            self.batch.push(head, |bytes| body::write_timers(&rest.timers, bytes));
            if self.overflows() {
                self.batch.undo();
                self.rests.push_front(rest);
                break;
            }
            self.resting.push((rest.thread, rest.through));
            if self.batch.length() >= self.options.group_max_bytes {
                break;
            }
        }
    }

    /// Makes the group durable, and only then tells of it.
    fn commit(&mut self) -> Result<(), JournalError> {
        if !self.batch.is_empty() {
            self.add_rests();
        }
        self.write()?;
        if !self.committed.is_empty() {
            let committed = std::mem::take(&mut self.committed);
            self.tell(FromJournal::Committed(committed));
        }
        for read in std::mem::take(&mut self.reads) {
            self.pass(read);
        }
        Ok(())
    }

    /// One write and one sync; then the index may know.
    fn write(&mut self) -> Result<(), JournalError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let Position { segment, end, sequence } = self.position;
        let bytes = self.batch.seal(sequence);
        self.disk.write_at(segment, end, bytes).map_err(failed("write", &*self.disk, segment))?;
        self.disk.sync(segment).map_err(failed("sync", &*self.disk, segment))?;
        self.position = Position { segment, end: end + bytes.len() as u64, sequence: sequence + 1 };
        let foot = bytes[bytes.len() - 32..].try_into().expect("invariant: a batch ends with a foot");
        self.shared.count(Counters {
            threads: self.new_threads,
            records: self.committed.len() as u64,
            bytes: bytes.len() as u64,
            segments: 0,
            syncs: 1,
        });
        self.new_threads = 0;
        for (thread, entry) in self.fresh.drain() {
            self.shared.index.set(thread, entry);
        }
        for (thread, through) in self.resting.drain(..) {
            if let Some(mut entry) = self.shared.index.get(&thread).filter(|entry| entry.last() == through) {
                entry.set_at_rest();
                self.shared.index.set(thread, entry);
            }
        }
        let Position { segment, end, sequence } = self.position;
        self.shared.set_durable(Mark { segment, end, sequence, foot });
        self.begin();
        Ok(())
    }

    fn begin(&mut self) {
        let Position { segment, end, .. } = self.position;
        let offset = u32::try_from(end).expect("invariant: a segment is below 4 GiB");
        self.batch.begin(Location { segment, offset });
    }

    fn begin_segment(&mut self) -> Result<(), JournalError> {
        self.position = begin_segment(&*self.disk, self.position.segment + 1, self.position.sequence)?;
        self.shared.count(Counters { segments: 1, bytes: SEGMENT_HEAD as u64, ..Counters::default() });
        self.shared.set_durable(self.position.mark(&*self.disk)?);
        self.begin();
        Ok(())
    }

    /// At the end: writes the rests that no group has taken along.
    fn finish(&mut self) -> Result<(), JournalError> {
        while !self.rests.is_empty() {
            self.add_rests();
            if self.batch.is_empty() && !self.rests.is_empty() {
                self.begin_segment()?;
            }
            self.write()?;
        }
        Ok(())
    }
}
