//! The program's output: the only place that writes to standard output.
//!
//! In: text and JSON. Out: bytes on standard output, flushed. Always: a reader that has gone away (`| head`) ends the
//! program quietly, as it would end any other; what a person needs to know beside the output goes to standard error.

use std::fmt::Display;
use std::io::{self, IsTerminal as _, Write as _};

/// How a program ends whose reader has gone away.
const READER_GONE: i32 = 0;

/// Writes text as it is.
pub(crate) fn text(text: impl Display) {
    let mut out = io::stdout().lock();
    if let Err(error) = write!(out, "{text}").and_then(|()| out.flush()) {
        if error.kind() == io::ErrorKind::BrokenPipe {
            std::process::exit(READER_GONE);
        }
        note(format!("cannot write to standard output: {error}"));
        std::process::exit(1);
    }
}

/// Writes a line.
pub(crate) fn line(line: impl Display) {
    text(format_args!("{line}\n"));
}

/// Writes a line to standard error, for the person who runs the program.
pub(crate) fn note(line: impl Display) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

/// Colours, where somebody sees them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    coloured: bool,
}

impl Style {
    /// For standard output: coloured on a terminal, unless `NO_COLOR` is set (no-color.org).
    pub(crate) fn stdout() -> Self {
        Self {
            coloured: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }

    /// Without colours.
    #[cfg(test)]
    pub(crate) fn plain() -> Self {
        Self { coloured: false }
    }

    /// What stands back.
    pub(crate) fn dim(self, text: impl Display) -> String {
        self.paint("2", text)
    }

    /// What stands out.
    pub(crate) fn bold(self, text: impl Display) -> String {
        self.paint("1", text)
    }

    /// What went well.
    pub(crate) fn green(self, text: impl Display) -> String {
        self.paint("32", text)
    }

    /// What went wrong.
    pub(crate) fn red(self, text: impl Display) -> String {
        self.paint("31", text)
    }

    fn paint(self, code: &str, text: impl Display) -> String {
        if self.coloured { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_string() }
    }
}
