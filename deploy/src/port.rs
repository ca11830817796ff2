//! The two ends of an adapter: what it sends to the flow, and what the flow sends to it.
//!
//! In: items. Out: the same items, in order. Always: unbounded, because a flow cannot wait; what is in them is bounded by
//! what the gateway lets in. A closed end is an adapter that has stopped: what is sent to it is gone, as in a crash.

use futures::Sink;
use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;

/// The stream of what an adapter sends to the flow.
pub type FromAdapter<T> = UnboundedReceiverStream<T>;

/// The sink of what the flow sends to an adapter.
#[derive(Debug)]
pub struct ToAdapter<T>(mpsc::UnboundedSender<T>);

impl<T> Clone for ToAdapter<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T> ToAdapter<T> {
    /// Sends an item at once.
    pub fn put(&self, item: T) {
        // The adapter has stopped: the host notices by its own end, and recovery repeats what was asked.
        let _ = self.0.send(item);
    }
}

impl<T> Sink<T> for ToAdapter<T> {
    type Error = Infallible;

    fn poll_ready(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn start_send(self: Pin<&mut Self>, item: T) -> Result<(), Infallible> {
        self.put(item);
        Ok(())
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }
}

/// What an adapter holds of its two ends.
#[derive(Debug)]
pub struct Inside<From, To> {
    /// Where it puts what it sends to the flow.
    pub send: mpsc::UnboundedSender<From>,
    /// Where it takes what the flow sends to it.
    pub receive: mpsc::UnboundedReceiver<To>,
}

/// What is put into the sink comes out of the stream, in order: the loop that a flow does not close by itself.
pub fn loopback<T>() -> (FromAdapter<T>, ToAdapter<T>) {
    let (to, from) = mpsc::unbounded_channel();
    (UnboundedReceiverStream::new(from), ToAdapter(to))
}

/// Makes the ends of an adapter: those for the flow, and those that the adapter keeps.
pub fn ends<From, To>() -> (FromAdapter<From>, ToAdapter<To>, Inside<From, To>) {
    let (send, from) = mpsc::unbounded_channel();
    let (to, receive) = mpsc::unbounded_channel();
    (UnboundedReceiverStream::new(from), ToAdapter(to), Inside { send, receive })
}
