//! `slackwater doctor`: what a data directory holds, what is damaged, and a repair.
//!
//! In: a directory that no runtime uses. Out: a report for people, or as JSON. Always: changes nothing unless it is asked to
//! repair; status 1 when something is damaged or cannot be read.

use super::Failure;
use super::progress::Bar;
use crate::output;
use serde_json::json;
use slackwater::journal::{self, JournalError, Progress, Repaired};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater doctor slackwater-data
  slackwater doctor slackwater-data --json | jq .damages
  slackwater doctor slackwater-data --repair

It reads every record, compares every checksum and changes nothing. With --repair it first cuts what the last write left,
and removes checkpoints that cannot be used; if anything is damaged, it writes the threads that are whole into new files and
moves the old ones into DIR/quarantine-N, with all that is in them. The threads that are only there it names, here and in
quarantine-N/threads.txt.

Exit status: 0 sound, 1 damaged or unreadable.")]
pub(crate) struct Arguments {
    /// The data directory
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Repair what can be repaired, and then look
    #[arg(long)]
    repair: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { directory, json, repair } = arguments;
    let words = |error| words_of(&directory, error);
    let repaired = repair.then(|| journal::repair(&directory)).transpose().map_err(words)?;
    let bar = Bar::new();
    let watch = |progress| match progress {
        Progress::Bytes(done, all) => bar.show("checksums", done, all),
        Progress::Threads(done, all) => bar.show("threads", done, all),
    };
    let report = journal::inspect_watched(&directory, &watch).map_err(words);
    bar.clear();
    let report = report?;
    if report.segments == 0 {
        return Err(words(JournalError::Nothing { path: directory.clone() }));
    }
    if json {
        let mut shown = serde_json::to_value(&report).map_err(Failure::because)?;
        shown["sound"] = json!(report.is_sound());
        if let Some(repaired) = repaired {
            shown["repaired"] = json!(repaired);
        }
        output::line(shown);
    } else {
        repaired.iter().for_each(|repaired| output::text(told(repaired)));
        output::text(&report);
    }
    if report.is_sound() { Ok(()) } else { Err(Failure::Said) }
}

/// What a journal's error means for who named a directory.
pub(crate) fn words_of(directory: &Path, error: JournalError) -> Failure {
    match error {
        JournalError::Directory { path, source } => {
            Failure::Failed(format!("cannot read {}: {source}; give the data directory of a runtime", path.display()))
        }
        JournalError::Nothing { .. } => Failure::Failed(format!(
            "there is no journal in {}; give the data directory of a runtime",
            directory.display()
        )),
        error => Failure::because(error),
    }
}

fn told(repaired: &Repaired) -> String {
    let mut lines = Vec::new();
    if let Some(cut) = &repaired.cut {
        lines.push(format!("{} bytes of a write that did not come to its end were cut", cut.bytes));
    }
    lines.extend(repaired.removed.iter().map(|name| format!("{name} was removed: nothing needs it")));
    if let Some(aside) = &repaired.aside {
        lines.push(format!("the journal was written anew; the old files are in {}", aside.display()));
    }
    for (thread, what) in &repaired.set_aside {
        lines.push(format!("thread {thread} is only there: {what}"));
    }
    if lines.is_empty() {
        lines.push("nothing had to be done".to_owned());
    }
    lines.into_iter().map(|line| format!("repaired  {line}\n")).collect()
}
