//! Server-sent events: a provider's stream as a sequence of events.
//!
//! In: bytes, cut anywhere; or the whole answer of a provider that does not stream. Out: the data of each event. Always: a provider that says nothing for too long, says too much
//! or breaks off is an error that may pass; a comment counts as a sign of life.

use super::{Limits, ModelError};
use bytes::Bytes;
use futures::stream::{BoxStream, Stream, StreamExt};
use slackwater_core::record::FailureClass;
use sse_stream::SseByteStream;
use std::time::Duration;

/// The events of one answer.
pub(super) struct Events(Source);

enum Source {
    Stream(Box<SseByteStream<Chunks>>),
    Whole(Chunks),
    Over,
}

type Chunks = BoxStream<'static, Result<Bytes, Broken>>;

/// Why the bytes end before the answer does.
#[derive(Debug, thiserror::Error)]
enum Broken {
    #[error("it said nothing for {0:?}")]
    Silent(Duration),
    #[error("its answer is longer than {0} bytes, which is more than answer_bytes_max allows")]
    TooLong(usize),
    #[error("the connection broke off: {0}")]
    Line(String),
}

impl Events {
    /// The events in these bytes.
    pub(super) fn new<E: std::error::Error + Send + 'static>(
        bytes: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        limits: &Limits,
    ) -> Self {
        Self(Source::Stream(Box::new(SseByteStream::new(bounded(bytes, limits)))))
    }

    /// All of these bytes as one event.
    pub(super) fn whole<E: std::error::Error + Send + 'static>(
        bytes: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
        limits: &Limits,
    ) -> Self {
        Self(Source::Whole(bounded(bytes, limits)))
    }

    /// The data of the next event that has any; nothing at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<String>, ModelError> {
        match &mut self.0 {
            Source::Over => Ok(None),
            Source::Whole(chunks) => {
                let mut all = Vec::new();
                while let Some(chunk) = chunks.next().await {
                    all.extend_from_slice(&chunk.map_err(|broken| not_whole(Some(&broken)))?);
                }
                self.0 = Source::Over;
                String::from_utf8(all).map(Some).map_err(|_| not_whole(None))
            }
            Source::Stream(events) => loop {
                match events.next().await {
                    None => return Ok(None),
                    Some(Ok(event)) => match event.data {
                        Some(data) if !data.is_empty() => return Ok(Some(data)),
                        _ => {}
                    },
                    Some(Err(sse_stream::Error::Body(broken))) => return Err(not_whole(broken.downcast_ref())),
                    Some(Err(_)) => return Err(not_whole(None)),
                }
            },
        }
    }
}

/// The bytes, as long as they keep coming and are not too many.
fn bounded<E: std::error::Error + Send + 'static>(
    bytes: impl Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    limits: &Limits,
) -> Chunks {
    let silence = Duration::from_millis(limits.chunk_timeout_ms);
    let most = limits.answer_bytes_max;
    futures::stream::unfold((bytes, 0_usize), move |(mut bytes, so_far)| async move {
        let next = match tokio::time::timeout(silence, bytes.next()).await {
            Err(_) => Err(Broken::Silent(silence)),
            Ok(None) => return None,
            Ok(Some(Err(error))) => Err(Broken::Line(causes(&error))),
            Ok(Some(Ok(chunk))) if so_far + chunk.len() > most => Err(Broken::TooLong(most)),
            Ok(Some(Ok(chunk))) => Ok(chunk),
        };
        let so_far = so_far + next.as_ref().map_or(0, Bytes::len);
        Some((next, (bytes, so_far)))
    })
    .boxed()
}

fn not_whole(broken: Option<&Broken>) -> ModelError {
    let class = match broken {
        // Another attempt at an answer that is too long would be paid for and as long.
        Some(Broken::TooLong(_)) => FailureClass::Fatal,
        _ => FailureClass::Transient,
    };
    let what = broken.map_or_else(|| "it is not made of UTF-8 text".to_owned(), Broken::to_string);
    ModelError::new(class, format!("the provider's answer was not whole: {what}"))
}

/// An error and what it comes from, in one line.
pub(super) fn causes(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_line = cause.to_string();
        if !line.contains(&cause_line) {
            line = format!("{line}: {cause_line}");
        }
        source = cause.source();
    }
    line
}
