//! A subscription: one reader of one thread's outputs.
//!
//! In: live outputs and chunks through a bounded buffer, and pages of durable outputs. Out: [`Event`]s in order. Always: each
//! numbered output once and none left out, whatever is lost on the way: when the buffer overflows or the shard was
//! restarted, what is missing is read from what is durable. Chunks are shown while they come and may be lost; a text
//! that has a hole is declared void.

use super::shards::{Shards, SubmitError};
use futures::Stream;
use slackwater_core::effect::{Output, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::{Number, OutputId, ThreadId};
use slackwater_core::port::{Chunk, Part, Query, Reply};
use slackwater_core::record::{Block, Content};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// How many outputs are asked for at once.
const PAGE_LENGTH: usize = 100;

/// How long to wait before a question is repeated that nobody could answer.
const AGAIN_MS: u64 = 200;

/// What a subscriber sees.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A numbered output.
    Output(Output),
    /// A piece of a completion that is still streaming. One whose `seen` had no [`Part::Started`] goes on with a text whose
    /// beginning was missed; the whole text comes with the turn.
    Chunk(Chunk),
    /// The stream ends, and why. Nothing follows.
    End(String),
}

/// One reader of one thread's outputs. Dropping it ends it.
pub struct Subscription {
    shards: Shards,
    thread: ThreadId,
    buffer: Arc<Buffer>,
    /// The last output delivered; nothing while it is not known where "now" is.
    after: Option<OutputId>,
    /// Durable outputs that are still to be delivered.
    page: VecDeque<Output>,
    /// Whether there may be more durable outputs before the live ones.
    behind: bool,
    /// The prompt whose chunks were delivered last, while its turn has not come.
    streaming: Option<Number>,
    /// The record of the last turn delivered: chunks of prompts before it are stale.
    turn: Number,
    ended: bool,
}

impl Subscription {
    pub(super) fn new(shards: Shards, thread: ThreadId, after: Option<OutputId>, buffer: Arc<Buffer>) -> Self {
        Self {
            shards,
            thread,
            buffer,
            after,
            page: VecDeque::new(),
            behind: true,
            streaming: None,
            turn: 0,
            ended: false,
        }
    }

    /// The next event; nothing after [`Event::End`]. It may be dropped and called again without loss.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            if self.ended {
                return None;
            }
            if let Some(output) = self.page.pop_front() {
                if let Some(event) = self.output(output) {
                    return Some(event);
                }
                continue;
            }
            match self.buffer.take(self.behind) {
                Taken::End(reason) => {
                    self.ended = true;
                    return Some(Event::End(reason));
                }
                Taken::Missed => {
                    self.behind = true;
                    if let Some(seen) = self.streaming.take() {
                        return Some(Event::Chunk(Chunk { thread: self.thread, seen, part: Part::Void }));
                    }
                }
                Taken::Nothing if self.behind => {
                    if let Some(end) = self.catch_up().await {
                        return Some(end);
                    }
                }
                Taken::Nothing => self.buffer.changed.notified().await,
                Taken::Live(Live::Output(output)) => {
                    if let Some(event) = self.output(output) {
                        return Some(event);
                    }
                }
                Taken::Live(Live::Chunk(chunk)) => {
                    if let Some(event) = self.chunk(chunk) {
                        return Some(event);
                    }
                }
            }
        }
    }

    /// The subscription as a stream.
    pub fn into_stream(self) -> impl Stream<Item = Event> + Send {
        futures::stream::unfold(self, |mut subscription| async move {
            subscription.next().await.map(|event| (event, subscription))
        })
    }

    fn output(&mut self, output: Output) -> Option<Event> {
        if self.after.is_some_and(|after| output.id <= after) {
            return None;
        }
        self.after = Some(output.id);
        if matches!(output.shown, Shown::Turn { .. } | Shown::Failure { .. }) {
            self.turn = output.id.number;
            self.streaming = None;
        }
        Some(Event::Output(output))
    }

    fn chunk(&mut self, chunk: Chunk) -> Option<Event> {
        // A prompt is sent when the turn before has been recorded, so it has seen that record.
        if chunk.seen < self.turn {
            return None;
        }
        self.streaming = (chunk.part != Part::Void).then_some(chunk.seen);
        Some(Event::Chunk(chunk))
    }

    /// Reads the next page of durable outputs; an end if there cannot be one.
    async fn catch_up(&mut self) -> Option<Event> {
        let reply = match self.after {
            Some(after) => self.shards.ask(Query::Outputs { thread: self.thread, after, limit: PAGE_LENGTH }).await,
            None => self.shards.ask(Query::Thread(self.thread)).await,
        };
        match reply {
            Ok(Reply::Outputs(page, all)) => {
                self.behind = !all;
                self.page = page.into();
            }
            Ok(Reply::Thread(standing)) => {
                self.after = Some(OutputId { number: standing.last, index: u16::MAX });
            }
            Ok(Reply::UnknownThread) => {
                self.after.get_or_insert_default();
                self.behind = false;
            }
            Ok(Reply::Damaged(reason)) => {
                self.ended = true;
                return Some(Event::End(format!("the thread cannot be read: {reason}")));
            }
            Ok(Reply::Threads(_)) => unreachable!("invariant: a question about one thread is not answered with a list"),
            // New ends may be there already.
            Err(SubmitError::Interrupted(_)) => {}
            // The shard is being started again, or the process stops, which the buffer says.
            Err(_) => tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await,
        }
        None
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.shards.unsubscribe(self.thread, &self.buffer);
    }
}

/// What comes live.
#[derive(Debug)]
pub(super) enum Live {
    /// A numbered output.
    Output(Output),
    /// A piece of a completion.
    Chunk(Chunk),
}

/// What a subscriber finds in its buffer.
enum Taken {
    Live(Live),
    Missed,
    Nothing,
    End(String),
}

/// What has come live and was not read yet.
pub(super) struct Buffer {
    events_max: usize,
    bytes_max: usize,
    state: Mutex<BufferState>,
    changed: Notify,
}

#[derive(Default)]
struct BufferState {
    live: VecDeque<Live>,
    bytes: usize,
    /// Something was dropped: the reader has to ask for it.
    missed: bool,
    ended: Option<String>,
}

impl Buffer {
    pub(super) fn new(events_max: usize, bytes_max: usize) -> Self {
        Self { events_max, bytes_max, state: Mutex::default(), changed: Notify::new() }
    }

    pub(super) fn push(&self, live: Live) {
        let mut state = self.state();
        // What comes after a hole is found by asking as well.
        if state.missed {
            return;
        }
        state.bytes += live.byte_length();
        state.live.push_back(live);
        if state.live.len() > self.events_max || state.bytes > self.bytes_max {
            state.miss();
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Declares that something may have been lost on the way.
    pub(super) fn miss(&self) {
        self.state().miss();
        self.changed.notify_one();
    }

    pub(super) fn end(&self, reason: &str) {
        self.state().ended = Some(reason.to_owned());
        self.changed.notify_one();
    }

    /// Takes what is next. While the reader is behind, live ones stay.
    fn take(&self, behind: bool) -> Taken {
        let mut state = self.state();
        if let Some(reason) = &state.ended {
            return Taken::End(reason.clone());
        }
        if std::mem::take(&mut state.missed) {
            return Taken::Missed;
        }
        match if behind { None } else { state.live.pop_front() } {
            Some(live) => {
                state.bytes -= live.byte_length();
                Taken::Live(live)
            }
            None => Taken::Nothing,
        }
    }

    fn state(&self) -> MutexGuard<'_, BufferState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BufferState {
    fn miss(&mut self) {
        self.missed = true;
        self.live = VecDeque::new();
        self.bytes = 0;
    }
}

impl Live {
    /// About how much memory it holds.
    fn byte_length(&self) -> usize {
        let content = |content: &[Content]| content.iter().map(Content::byte_length).sum::<usize>();
        let shown = match self {
            Live::Chunk(Chunk { part: Part::Text(text) | Part::Reasoning(text), .. }) => text.len(),
            Live::Chunk(_) => 0,
            Live::Output(output) => match &output.shown {
                Shown::Message(item) | Shown::Turn { item, .. } | Shown::Result(item) | Shown::Event(item) => {
                    match &**item {
                        Item::User { content: pieces, .. } => content(pieces),
                        Item::Assistant { blocks, .. } => blocks
                            .iter()
                            .map(|block| match block {
                                Block::Text(text) | Block::Reasoning { text, .. } => text.len(),
                                Block::Call { arguments, .. } => arguments.len(),
                            })
                            .sum(),
                        Item::Result(answer) => content(&answer.content),
                        Item::Event(event) => content(&event.content),
                    }
                }
                Shown::Failure { message, .. } => message.len(),
                Shown::Waiting(_) | Shown::Stopped => 0,
            },
        };
        shown + size_of::<Self>()
    }
}
