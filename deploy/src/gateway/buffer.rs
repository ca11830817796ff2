//! The buffer of a subscription: what has come live and was not read yet.
//!
//! In: live outputs and chunks, as they come. Out: the same, in order, or the word that some were missed. Always: bounded; when
//! it overflows it is emptied, because its reader has to ask for what is missing anyway.

use slackwater_core::effect::{Output, Shown};
use slackwater_core::history::Item;
use slackwater_core::port::{Chunk, Part};
use slackwater_core::record::{Asks, Block, Content, Decision};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// What comes live.
#[derive(Debug)]
pub(super) enum Live {
    /// A numbered output.
    Output(Output),
    /// A piece of a completion.
    Chunk(Chunk),
}

/// What a subscriber finds in its buffer.
pub(super) enum Taken {
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

    /// Waits until something has changed since this was awaited last.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes what is next. While the reader is behind, live ones stay.
    pub(super) fn take(&self, behind: bool) -> Taken {
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
                Shown::Message(item)
                | Shown::Turn { item, .. }
                | Shown::Result(item)
                | Shown::Event(item)
                | Shown::Report { item, .. } => match &**item {
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
                    Item::Summary(_) => item.byte_length(),
                },
                Shown::Question { arguments, asks, .. } => {
                    arguments.len()
                        + match asks {
                            Asks::Approval { reason } => reason.len(),
                            Asks::Choice { prompt, choices, .. } => {
                                prompt.len() + choices.iter().map(String::len).sum::<usize>()
                            }
                            Asks::Authorization { url } => url.len(),
                        }
                }
                Shown::Verdict { answer, .. } => match answer {
                    Decision::Deny { reason } => reason.as_ref().map_or(0, String::len),
                    Decision::Approve | Decision::Choose { .. } => 0,
                },
                Shown::View { content, .. } => content.len(),
                Shown::Failure { message: words, .. } | Shown::NotCompacted { why: words } => words.len(),
                Shown::Waiting(_)
                | Shown::Stopped
                | Shown::Spawned { .. }
                | Shown::Born { .. }
                | Shown::Closed { .. }
                | Shown::Undelivered { .. }
                | Shown::Compacting { .. }
                | Shown::Compacted { .. } => 0,
            },
        };
        shown + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use slackwater_core::id::ThreadId;

    fn text(length: usize) -> Live {
        Live::Chunk(Chunk { thread: ThreadId::from_bytes([1; 16]), seen: 1, part: Part::Text("x".repeat(length)) })
    }

    #[test]
    fn every_queue_is_bounded() {
        let buffer = Buffer::new(3, 10_000);
        (0..3).for_each(|_| buffer.push(text(1)));
        assert!(matches!(buffer.take(false), Taken::Live(_)));
        // Room for one more, and then for none.
        (0..2).for_each(|_| buffer.push(text(1)));
        assert_eq!(buffer.state().live.len(), 0);
        assert_eq!(buffer.state().bytes, 0);
        buffer.push(text(1));
        assert!(matches!(buffer.take(false), Taken::Missed), "what comes after a hole waits behind it");
        assert!(matches!(buffer.take(false), Taken::Nothing));
        buffer.push(text(9_000));
        buffer.push(text(2_000));
        assert!(matches!(buffer.take(false), Taken::Missed));
        buffer.push(text(9_000));
        assert!(matches!(buffer.take(true), Taken::Nothing), "live ones wait until the reader has caught up");
        assert!(matches!(buffer.take(false), Taken::Live(_)));
        assert_eq!(buffer.state().bytes, 0);
    }
}
