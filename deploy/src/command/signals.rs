//! Signals: how a command that runs for long is told to stop.
//!
//! In: SIGTERM and SIGINT of this process. Out: that one of them came. Always: from when it is made, neither ends the process
//! by itself.

use super::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for a clean end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Listens from now on. Needs a tokio runtime.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::because);
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next one. It may be dropped and called again without loss.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
