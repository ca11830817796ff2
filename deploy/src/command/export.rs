//! `slackwater export`: a thread as JSON lines.
//!
//! In: a thread, and a data directory, whoever runs on it. Out: one line a record. Always: what `import` takes.

use super::Failure;
use super::doctor::words_of;
use crate::output;
use slackwater::gateway::name;
use slackwater::journal::{self, TransferError};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater export notes --directory slackwater-data > notes.jsonl
  slackwater export 018f3c2e-5b1a-7c3d-9e4f-0123456789ab --with-ancestors --output child.jsonl

A runtime may be running on the directory: what it has committed at this moment is given. A thread that was made by another
one inherits from it; with --with-ancestors those come first, so that all of it can be imported elsewhere.")]
pub(crate) struct Arguments {
    /// The thread: its name or its id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// The data directory
    #[arg(long, value_name = "DIR", default_value = "slackwater-data")]
    directory: PathBuf,
    /// Also the threads that it inherits from, first
    #[arg(long)]
    with_ancestors: bool,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { thread, directory, with_ancestors, output } = arguments;
    let address = name::address(&thread).map_err(|error| Failure::Usage(format!("{thread:?}: {error}")))?;
    let lines = journal::export(&directory, address.thread, with_ancestors);
    let mut text = String::new();
    for line in lines.map_err(|error| words(&directory, error))? {
        text.push_str(&serde_json::to_string(&line).map_err(Failure::because)?);
        text.push('\n');
    }
    match output {
        Some(path) => std::fs::write(&path, text)
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display()))),
        None => {
            output::text(text);
            Ok(())
        }
    }
}

/// What is said of a thread that was not taken or given.
pub(crate) fn words(directory: &Path, error: TransferError) -> Failure {
    match error {
        TransferError::Journal(error) => words_of(directory, error),
        error => Failure::because(error),
    }
}
