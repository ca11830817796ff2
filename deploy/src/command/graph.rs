//! `slackwater graph`: the picture of the flow that runs the agents, drawn by Hydro from the flow itself.
//!
//! In: a format. Out: the picture's text. Always: the flow of this very binary.

use super::Failure;
use crate::output;
use slackwater::host::embedded::{GRAPH_DOT, GRAPH_MERMAID};
use std::path::PathBuf;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater graph                             Mermaid, for a Markdown page or https://mermaid.live
  slackwater graph --format dot | dot -Tsvg > flow.svg")]
pub(crate) struct Arguments {
    /// The language of the picture
    #[arg(long, value_name = "FORMAT", default_value = "mermaid")]
    format: Format,
    /// Write to this file [default: standard output]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Format {
    /// Mermaid's flowchart.
    Mermaid,
    /// Graphviz.
    Dot,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let picture = match arguments.format {
        Format::Mermaid => GRAPH_MERMAID,
        Format::Dot => GRAPH_DOT,
    };
    match arguments.output {
        Some(path) => std::fs::write(&path, picture)
            .map_err(|error| Failure::Failed(format!("cannot write {}: {error}", path.display()))),
        None => {
            output::text(picture);
            Ok(())
        }
    }
}
