//! The clock that a runtime goes by: the system's, or one that is set by hand.
//!
//! In: nothing, or a hand. Out: the time, and that it was moved. Always: what arrives is stamped by the clock that the timers
//! read, so that a record never comes before the moment that it is about. How long a capability is good for is a matter of
//! the world, and read from the system's clock in every case.

use crate::port::{self, FromAdapter};
use futures::StreamExt as _;
use slackwater_core::record::Arrival;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::watch;

/// A clock. A clone is the same clock.
///
/// ```
/// use slackwater::clock::Clock;
///
/// let clock = Clock::manual(1_900_000_000_000);
/// clock.advance(8 * 3_600_000);
/// assert_eq!(clock.now_ms(), 1_900_028_800_000);
/// ```
#[derive(Clone)]
pub struct Clock(Kind);

#[derive(Clone)]
enum Kind {
    System,
    Manual(Arc<watch::Sender<u64>>),
}

impl Clock {
    /// The system's clock.
    pub fn system() -> Self {
        Self(Kind::System)
    }

    /// A clock that stands at this moment (milliseconds since the Unix epoch) until it is moved.
    pub fn manual(start_ms: u64) -> Self {
        Self(Kind::Manual(Arc::new(watch::Sender::new(start_ms))))
    }

    /// The time, in milliseconds since the Unix epoch.
    pub fn now_ms(&self) -> u64 {
        match &self.0 {
            Kind::System => SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64),
            Kind::Manual(hand) => *hand.borrow(),
        }
    }

    /// Moves the clock on by so many milliseconds. Timers that have come due by then fire.
    ///
    /// # Panics
    /// When it is the system's.
    pub fn advance(&self, by_ms: u64) {
        self.hand().send_modify(|now_ms| *now_ms = now_ms.saturating_add(by_ms));
    }

    /// Sets the clock, forward or back.
    ///
    /// # Panics
    /// When it is the system's.
    pub fn set(&self, now_ms: u64) {
        self.hand().send_replace(now_ms);
    }

    fn hand(&self) -> &watch::Sender<u64> {
        match &self.0 {
            Kind::System => panic!("the system's clock goes by itself; make one with Clock::manual"),
            Kind::Manual(hand) => hand,
        }
    }

    /// Somebody who waits by this clock.
    pub(crate) fn watch(&self) -> Watch {
        match &self.0 {
            Kind::System => Watch::System,
            Kind::Manual(hand) => Watch::Manual(hand.subscribe()),
        }
    }

    /// What an adapter sends, stamped by this clock. Adapters go by the system's, so then it is the same stream.
    pub(crate) fn stamp<T: Send + 'static>(
        &self,
        mut from: FromAdapter<T>,
        arrival: impl Fn(&mut T) -> Option<&mut Arrival> + Send + 'static,
    ) -> FromAdapter<T> {
        if matches!(self.0, Kind::System) {
            return from;
        }
        let clock = self.clone();
        let (stamped, _, inside) = port::ends::<T, ()>();
        tokio::spawn(async move {
            while let Some(mut item) = from.next().await {
                if let Some(arrival) = arrival(&mut item) {
                    arrival.at_ms = clock.now_ms();
                }
                if inside.send.send(item).is_err() {
                    return;
                }
            }
        });
        stamped
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::System => f.write_str("Clock::system()"),
            Kind::Manual(hand) => write!(f, "Clock::manual({})", *hand.borrow()),
        }
    }
}

/// Somebody who waits by a clock.
pub(crate) enum Watch {
    System,
    Manual(watch::Receiver<u64>),
}

impl Watch {
    /// The time, in milliseconds since the Unix epoch.
    pub(crate) fn now_ms(&mut self) -> u64 {
        match self {
            Watch::System => Clock::system().now_ms(),
            Watch::Manual(hand) => *hand.borrow_and_update(),
        }
    }

    /// Waits until so much time may have passed since it was last asked for; or, of a clock that is moved by hand, until it
    /// was moved since.
    pub(crate) async fn pause(&mut self, pause_ms: u64) {
        match self {
            Watch::System => tokio::time::sleep(Duration::from_millis(pause_ms)).await,
            Watch::Manual(hand) => {
                if hand.changed().await.is_err() {
                    // Nobody is left who could move it.
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}
