//! `slackwater cluster`: cells of a gateway, shards and toolhosts each, as processes that hydro_deploy places.
//!
//! In: a cluster file, or how many cells and shards. Out: a cluster that runs until it is told to stop, and what it does at the
//! moment. Always: what cannot work is told before anything starts; the state of the shards stays where it is.

mod cloud;
mod file;
mod hosts;
mod look;
mod prepare;
mod rebalance;
mod tell;
mod up;

use super::Failure;
use crate::Settings;
use std::path::PathBuf;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Place cells of a gateway, shards and toolhosts as processes, and keep them running until told to stop
    #[command(after_help = "\
Examples:
  slackwater cluster up                        two shards on this machine
  slackwater cluster up --cells 2 --shards 4 --directory /var/lib/agents --listen 127.0.0.1:7070
  slackwater cluster up cluster.toml --detach  what the file says, also on other machines; goes on alone

The gateway of the first cell listens on --listen, that of the next cell on the next port, and so on; each takes requests
for all threads. A cell whose process ends is started anew by itself, and the others go on meanwhile.

Each location is compiled with cargo when it is placed, so this needs the checkout that the program was built from: a
minute or two the first time, then seconds. Ctrl-C (or `slackwater cluster down`) ends all processes; what was acknowledged
is on disk. A directory keeps its numbers of cells and shards; `slackwater cluster rebalance` changes them.

A cluster file:
  [cluster]
  cells = 2
  shards = 2                       # of each cell
  toolhosts = 1                    # of each cell: where its tools run
  directory = \"agents\"
  [[host]]                         # none: this machine
  name = \"one\"
  address = \"192.0.2.10\"
  user = \"agents\"
  key = \"/home/me/.ssh/id_ed25519\"

Instead of an address, a host can say where it is made with Terraform; deploy/docs/clouds.md has all keys:
  [[host]]
  name = \"one\"
  kind = \"aws\"                     # or \"gcp\", \"azure\"
  region = \"eu-central-1\"
  open_to = [\"203.0.113.7/32\"]     # who reaches SSH and the gateways")]
    Up(Up),
    /// Say which machines of a cloud a cluster file asks for, and write it down for Terraform; make none
    Plan(Planned),
    /// Destroy the machines of a cloud that a cluster was given, with their disks
    Destroy(Destroy),
    /// Write what it takes to run a gateway, shards and a toolhost as containers
    Export(super::containers::Arguments),
    /// Say what the cells of a running cluster do
    Status(Place),
    /// Show what the supervisor and the locations have said
    Logs(Logs),
    /// End all processes of a running cluster
    Down(Place),
    /// End one shard in order; its cell is started anew, and the others go on
    Restart(Restart),
    /// Move threads to another number of cells and shards, while the cluster runs or not
    #[command(after_help = "\
Examples:
  slackwater cluster rebalance --cells 2 --shards 4
  slackwater cluster rebalance --shards 1      fewer of them works too

Each thread stays in its virtual shard; virtual shards move between shards, as few as can be. Of a cluster that runs, the
cells end meanwhile and are started again by themselves; clients try again, as they do in a restart. A cell that stays keeps
its address. Numbers of cells and shards in a cluster file have to be corrected by hand.

The shards that change are written anew beside the old ones, those of other machines on this one, so this needs as much room
again; the old ones are removed when the new ones are on stable storage and in their place. Broken off at any moment, the same
command goes on with it.")]
    Rebalance(Rebalance),
}

#[derive(clap::Args)]
pub(crate) struct Rebalance {
    #[command(flatten)]
    place: Place,
    /// How many cells [default: as many as there are]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    cells: Option<u32>,
    /// How many shards each cell has [default: as many as there are]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
}

#[derive(clap::Args)]
pub(crate) struct Planned {
    /// The cluster file
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    settings: Settings,
}

#[derive(clap::Args)]
pub(crate) struct Destroy {
    #[command(flatten)]
    place: Place,
    /// The machines, their disks and all threads on them are to be gone
    #[arg(long)]
    yes: bool,
}

/// Which cluster.
#[derive(clap::Args)]
pub(crate) struct Place {
    /// The cluster file that it was started with
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    /// The cluster's directory [default: that of the file, or else slackwater-data]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

#[derive(clap::Args)]
pub(crate) struct Up {
    /// What the cluster is: numbers of cells and shards, and the machines
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: Settings,
    /// How many cells [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    cells: Option<u32>,
    /// How many shards each cell has [default: 2]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// How many toolhosts each cell has: its tools run there, away from the histories [default: 1]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    toolhosts: Option<u32>,
    /// The address and port of the first cell's gateway; not port 0 [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", help_heading = "Configuration")]
    listen: Option<String>,
    /// Return when the cluster is ready, and leave it running
    #[arg(long)]
    detach: bool,
    /// Compile the locations for speed: it takes minutes the first time
    #[arg(long)]
    release: bool,
    /// Bind each shard to a processor of its own, as far as its machine has so many
    #[arg(long)]
    pin: bool,
    /// The directory of a package with operators of its own, which every shard gets; deploy/docs/operators.md says how it is made
    #[arg(long, value_name = "DIR")]
    operators: Option<PathBuf>,
    /// End when the process ends that started this one
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

#[derive(clap::Args)]
pub(crate) struct Logs {
    #[command(flatten)]
    place: Place,
    /// How many lines from the end
    #[arg(long, short = 'n', value_name = "COUNT", default_value_t = 50)]
    lines: usize,
    /// Go on with what is said from now on, until Ctrl-C
    #[arg(long, short)]
    follow: bool,
}

#[derive(clap::Args)]
pub(crate) struct Restart {
    /// Which shard, counted over all cells from 0
    #[arg(value_name = "SHARD")]
    shard: u32,
    /// The cluster's directory [default: slackwater-data]
    #[arg(long, value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Export(arguments) => super::containers::run(arguments),
        Command::Up(arguments) => super::block_on(up::run(arguments)),
        Command::Status(place) => super::block_on(look::status(directory(&place)?)),
        Command::Plan(Planned { file, settings }) => {
            let file = file::read(&file)?;
            prepare::plan(&file, &settings)
        }
        Command::Destroy(Destroy { place, yes }) => super::block_on(cloud::destroy(&directory(&place)?, yes)),
        Command::Logs(arguments) => {
            let directory = directory(&arguments.place)?;
            super::block_on(look::logs(directory, arguments.lines, arguments.follow))
        }
        Command::Down(place) => super::block_on(look::down(directory(&place)?)),
        Command::Rebalance(arguments) => {
            let directory = directory(&arguments.place)?;
            super::block_on(rebalance::run(directory, arguments.cells, arguments.shards))
        }
        Command::Restart(Restart { shard, directory }) => {
            let directory = directory.unwrap_or_else(|| slackwater::settings::DEFAULT_DIRECTORY.into());
            super::block_on(look::restart(directory, shard))
        }
    }
}

/// The directory of the cluster that is meant.
fn directory(place: &Place) -> Result<PathBuf, Failure> {
    if let Some(directory) = &place.directory {
        return Ok(directory.clone());
    }
    let said = place.file.as_deref().map(file::read).transpose()?.and_then(|file| file.cluster.directory);
    Ok(said.unwrap_or_else(|| slackwater::settings::DEFAULT_DIRECTORY.into()))
}
