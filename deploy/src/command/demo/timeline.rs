//! The timeline: what happens, one line a moment.
//!
//! In: who does what. Out: lines with the time since the start. Always: the same words on a terminal and in a pipe.

use crate::output::{self, Style};
use std::fmt::Display;
use std::time::Instant;

/// The demo's lines.
#[derive(Clone, Copy)]
pub(super) struct Timeline {
    begun: Instant,
    pub(super) style: Style,
}

impl Timeline {
    /// A timeline that begins now.
    pub(super) fn begin() -> Self {
        Self { begun: Instant::now(), style: Style::stdout() }
    }

    /// Somebody does something.
    pub(super) fn tell(&self, who: &str, what: impl Display) {
        self.line(self.style.bold(format_args!("{who:<8}")), what);
    }

    /// Something goes on in the background.
    pub(super) fn aside(&self, who: &str, what: impl Display) {
        self.line(self.style.dim(format_args!("{who:<8}")), self.style.dim(what));
    }

    /// Something was looked at and is as it should be.
    pub(super) fn seen(&self, what: impl Display) {
        self.line(self.style.green(format_args!("{:<8}", "  seen")), what);
    }

    /// Something violent.
    pub(super) fn blow(&self, who: &str, what: impl Display) {
        self.line(self.style.red(format_args!("{who:<8}")), what);
    }

    fn line(&self, who: String, what: impl Display) {
        let elapsed = self.begun.elapsed().as_secs_f64();
        output::line(format_args!("{}  {who} {what}", self.style.dim(format_args!("{elapsed:>5.1} s"))));
    }
}
