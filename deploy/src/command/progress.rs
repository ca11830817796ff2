//! A bar that shows how far something has come.
//!
//! In: what is done, of how much. Out: one line on standard error that is written over. Always: only where somebody sees it,
//! on a terminal; it is gone when the work is done.

use std::io::{self, IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How wide it is, in characters.
const WIDTH: usize = 30;
/// How often it changes at most.
const EVERY: Duration = Duration::from_millis(100);

/// A bar on standard error.
pub(crate) struct Bar {
    /// When it was last shown; nothing when nobody sees it.
    shown: Option<Mutex<Option<Instant>>>,
}

impl Bar {
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal().then(Mutex::default) }
    }

    /// Shows that so much of so much is done.
    pub(crate) fn show(&self, what: &str, done: u64, all: u64) {
        let Some(mut shown) = self.shown.as_ref().and_then(|shown| shown.try_lock().ok()) else { return };
        if shown.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        *shown = Some(Instant::now());
        // A bar that cannot be shown is no reason to stop.
        let _ = write!(io::stderr(), "\r{}", line(what, done, all));
    }

    /// Takes it away.
    pub(crate) fn clear(&self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

fn line(what: &str, done: u64, all: u64) -> String {
    let share = if all == 0 { 1.0 } else { done.min(all) as f64 / all as f64 };
    let full = (share * WIDTH as f64) as usize;
    format!("{what:<10} [{}{}] {:>3.0} %", "#".repeat(full), " ".repeat(WIDTH - full), share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_fills_from_nothing_to_all() {
        assert_eq!(line("threads", 0, 4), format!("threads    [{}]   0 %", " ".repeat(30)));
        assert_eq!(line("threads", 2, 4), format!("threads    [{}{}]  50 %", "#".repeat(15), " ".repeat(15)));
        assert_eq!(line("threads", 9, 4), format!("threads    [{}] 100 %", "#".repeat(30)));
        assert!(line("threads", 0, 0).ends_with("100 %"));
    }
}
