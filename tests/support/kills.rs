//! What the tests that kill have in common.

#![allow(dead_code, reason = "each test uses its part")]

pub mod client;
pub mod rap_server;
pub mod records;
pub mod server_process;

use std::time::{Duration, Instant};

/// How long anything may take that should happen soon, debug build and busy machine included.
const SOON_MS: u64 = 60_000;

/// Asks again and again until there is an answer; a failure when there is none for too long.
pub async fn within<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let patience = Patience::until(what);
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        patience.again().await;
    }
}

/// The patience of somebody who waits for something.
pub struct Patience<'a> {
    what: &'a str,
    begun: Instant,
}

impl<'a> Patience<'a> {
    pub fn until(what: &'a str) -> Self {
        Self { what, begun: Instant::now() }
    }

    /// Waits a little; a failure when it has been too long.
    pub async fn again(&self) {
        assert!(self.begun.elapsed() < Duration::from_millis(SOON_MS), "waited too long until {}", self.what);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
