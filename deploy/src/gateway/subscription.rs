//! A subscription: one reader of one thread's outputs.
//!
//! In: live outputs and chunks through a bounded buffer, and pages of durable outputs. Out: [`Event`]s in order. Always: each
//! numbered output once and none left out, whatever is lost on the way: when the buffer overflows or the shard was
//! restarted, what is missing is read from what is durable. Chunks are shown while they come and may be lost; a text
//! that has a hole is declared void.

use super::buffer::{Buffer, Live, Taken};
use super::shards::{Shards, SubmitError};
use futures::Stream;
use slackwater_core::effect::{Output, Shown};
use slackwater_core::id::{Number, OutputId, ThreadId};
use slackwater_core::port::{Chunk, Part, Query, Reply};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

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
                Taken::Nothing => self.buffer.changed().await,
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
            Ok(_) => unreachable!("invariant: a question about outputs or a standing is answered with them"),
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
