//! `slackwater import`: threads from JSON lines.
//!
//! In: what `export` wrote, and a data directory that no runtime uses. Out: the threads in its journal. Always: all of them
//! or, when a line is wrong or a thread is there already, none.

use super::Failure;
use super::export::words;
use crate::output;
use slackwater::journal;
use std::io::Read as _;
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater import notes.jsonl --directory slackwater-data
  slackwater export notes --directory here | slackwater import - --directory there

The directory is made when there is none; no runtime may be running on it. A thread that is there already is refused, and so
is one that inherits from a thread that is neither there nor in the file. At the next start of a runtime the threads are
awakened, and what they still wait for is asked for again.")]
pub(crate) struct Arguments {
    /// The file; `-` for standard input
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// The data directory
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { file, directory } = arguments;
    let mut text = String::new();
    let read = match file.as_os_str() == "-" {
        true => std::io::stdin().read_to_string(&mut text).map(drop),
        false => std::fs::read_to_string(&file).map(|read| text = read),
    };
    read.map_err(|error| Failure::Failed(format!("cannot read {}: {error}", file.display())))?;
    let (records, threads) = journal::import(&directory, &text).map_err(|error| words(&directory, error))?;
    output::line(format_args!("imported {records} records of {threads} threads into {}", directory.display()));
    Ok(())
}
