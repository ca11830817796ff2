//! `slackwater backup`: a copy of a data directory, made while a runtime runs on it.
//!
//! In: a data directory, and an empty one. Out: a data directory that can be served. Always: it holds all that was
//! acknowledged before it was begun.

use super::Failure;
use super::doctor::words_of;
use crate::output;
use serde_json::json;
use slackwater::journal::{self, JournalError};
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater backup slackwater-data --to /backups/today
  slackwater serve --directory /backups/today

A runtime may be running on the directory. Files that do not change any more are linked where both are on one file system,
and take no space of their own as long as the runtime has them too; copy the backup to another disk to be safe from the loss
of this one. The last write of the runtime may be in it although nobody was told of it yet, as after a crash.")]
pub(crate) struct Arguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Where to: a directory that is empty or does not exist
    #[arg(long, value_name = "DIR")]
    to: PathBuf,
    /// Print what was made as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { directory, to, json } = arguments;
    let made = journal::backup(&directory, &to).map_err(|error| match error {
        JournalError::Directory { path, source } if path == to => {
            Failure::Failed(format!("cannot write to {}: {source}", path.display()))
        }
        error => words_of(&directory, error),
    })?;
    match json {
        true => output::line(json!(made)),
        false => output::line(format_args!(
            "{} threads with {} records are in {}: {} files linked, {} copied",
            made.threads,
            made.records,
            to.display(),
            made.linked,
            made.copied
        )),
    }
    Ok(())
}
