//! `slackwater doctor`: what a data directory holds, and what is damaged.
//!
//! In: a directory that no runtime uses. Out: a report for people, or as JSON. Always: changes nothing; status 1 when
//! something is damaged or cannot be read.

use super::Failure;
use crate::output;
use serde_json::json;
use slackwater::journal::{self, JournalError};
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater doctor slackwater-data
  slackwater doctor slackwater-data --json | jq .damages

It reads every record and changes nothing. Exit status: 0 sound, 1 damaged or unreadable.")]
pub(crate) struct Arguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { directory, json } = arguments;
    let report = journal::inspect(&directory).map_err(|error| match error {
        JournalError::Directory { path, source } => {
            Failure::Failed(format!("cannot read {}: {source}; give the data directory of a runtime", path.display()))
        }
        error => Failure::because(error),
    })?;
    if report.segments == 0 {
        return Err(Failure::Failed(format!(
            "there is no journal in {}; give the data directory of a runtime",
            directory.display()
        )));
    }
    if json {
        let mut shown = serde_json::to_value(&report).map_err(Failure::because)?;
        shown["sound"] = json!(report.is_sound());
        output::line(shown);
    } else {
        output::text(&report);
    }
    if report.is_sound() { Ok(()) } else { Err(Failure::Said) }
}
