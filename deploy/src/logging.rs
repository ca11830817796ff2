//! The log: what the program tells whoever runs it, on standard error.
//!
//! In: `--log`, `--log-format`, `RUST_LOG`. Out: lines for people or JSON for programs. Always: never on standard output.

use std::io::IsTerminal as _;
use tracing_subscriber::EnvFilter;

/// How log lines look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts the log: what `filter` says, or else `RUST_LOG`, or else `fallback`.
///
/// # Errors
/// In words, when a filter is none.
pub(crate) fn start(filter: Option<&str>, format: Format, fallback: &str) -> Result<(), String> {
    let variable = std::env::var("RUST_LOG").ok().filter(|text| !text.trim().is_empty());
    let (text, source) = match (filter, &variable) {
        (Some(filter), _) => (filter, "--log"),
        (None, Some(variable)) => (variable.as_str(), "environment variable RUST_LOG"),
        (None, None) => (fallback, "the default"),
    };
    let filter = EnvFilter::try_new(text).map_err(|error| {
        format!("{source}: {text:?} is no log filter ({error}); write a level such as info, or slackwater=debug,warn")
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Text => log.with_ansi(std::io::stderr().is_terminal()).init(),
        Format::Json => log.json().init(),
    }
    Ok(())
}
