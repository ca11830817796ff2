//! Memory: what a shard may keep of the threads that rest.
//!
//! In: what the journal sends, and a bound in bytes. Out: the same, in its order, with the bound before it. Always: when
//! nothing has come for a while, the shard is told to keep nothing, and then told the bound again; so a silent shard holds
//! no thread that rests, and is not woken a second time.

use crate::port::FromAdapter;
use futures::{FutureExt as _, Stream, StreamExt as _, ready};
use slackwater_core::port::FromJournal;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long nothing has come when a shard is silent.
const SILENT_AFTER: Duration = Duration::from_secs(2);

/// How many bytes of threads that rest are kept if nothing else is said: 256 MiB, about 2,700 threads of 20 turns. Only who
/// comes back within seconds is kept, and nobody when nothing happens, so this is what a busy shard takes and no idle one.
pub const WARM_MAX_BYTES: usize = 256 << 20;

/// What a journal sends, and what may be kept.
#[derive(Debug)]
pub struct Remembering {
    journal: FromAdapter<FromJournal>,
    max_bytes: usize,
    silent_after: Duration,
    /// What is to be said next.
    say: Option<usize>,
    state: State,
    /// When the shard is silent, while it may become so. Made when it is first needed, within the runtime that it needs.
    alarm: Option<Pin<Box<Sleep>>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    /// The journal sends.
    Busy,
    /// Nothing comes just now.
    Waiting,
    /// Nothing has come for a while, and the shard knows.
    Silent,
}

/// Puts the bound before and between what the journal sends.
pub fn remembering(journal: FromAdapter<FromJournal>, max_bytes: usize) -> Remembering {
    Remembering {
        journal,
        max_bytes,
        silent_after: SILENT_AFTER,
        say: Some(max_bytes),
        state: State::Silent,
        alarm: None,
    }
}

impl Stream for Remembering {
    type Item = FromJournal;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<FromJournal>> {
        if let Some(max_bytes) = self.say.take() {
            return Poll::Ready(Some(FromJournal::KeepWarm { max_bytes }));
        }
        if let Poll::Ready(item) = self.journal.poll_next_unpin(context) {
            self.state = State::Busy;
            return Poll::Ready(item);
        }
        if self.state == State::Silent {
            return Poll::Pending;
        }
        let begins = self.state == State::Busy;
        self.state = State::Waiting;
        let silent_after = self.silent_after;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(silent_after)));
        if begins {
            alarm.as_mut().reset(Instant::now() + silent_after);
        }
        ready!(alarm.poll_unpin(context));
        self.state = State::Silent;
        self.say = Some(self.max_bytes);
        Poll::Ready(Some(FromJournal::KeepWarm { max_bytes: 0 }))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use crate::port::ends;
    use slackwater_core::id::ThreadId;

    fn wake(last: u64) -> FromJournal {
        FromJournal::Wake { thread: ThreadId::from_bytes([1; 16]), last }
    }

    fn bound(max_bytes: usize) -> FromJournal {
        FromJournal::KeepWarm { max_bytes }
    }

    #[tokio::test]
    async fn a_silent_shard_keeps_nothing_and_is_told_so_once() {
        let (from, _to, inside) = ends::<FromJournal, ()>();
        let mut remembering = Remembering { silent_after: Duration::from_millis(20), ..remembering(from, 7) };
        assert_eq!(remembering.next().await, Some(bound(7)));
        for last in [1, 3] {
            inside.send.send(wake(last)).unwrap();
            inside.send.send(wake(last + 1)).unwrap();
            assert_eq!(remembering.next().await, Some(wake(last)));
            assert_eq!(remembering.next().await, Some(wake(last + 1)));
            assert_eq!(remembering.next().await, Some(bound(0)));
            assert_eq!(remembering.next().await, Some(bound(7)));
            assert!(tokio::time::timeout(Duration::from_millis(200), remembering.next()).await.is_err());
        }
        drop(inside);
        assert_eq!(remembering.next().await, None);
    }
}
