//! Signals: how a command that runs for long is told to stop.
//!
//! In: SIGTERM, SIGINT and SIGHUP of this process. Out: that one of them came. Always: from when it is made, none ends the process
//! by itself; a SIGHUP that was ignored when the process started, as with `nohup`, still is.

use super::Failure;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask for a clean end.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Listens from now on. Needs a tokio runtime.
    pub(super) fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(Failure::because);
        let hangup = if ignores_hangup() { None } else { Some(listen(SignalKind::hangup())?) };
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())?, hangup })
    }

    /// Waits for the next one. It may be dropped and called again without loss.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
            Some(_) = async { self.hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Whether SIGHUP is ignored, by the lowest bit of the mask that Linux shows (proc_pid_status(5)).
fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
