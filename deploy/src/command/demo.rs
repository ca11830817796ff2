//! `slackwater demo`: an agent waits for a build, and its runtime is killed meanwhile; or a shard of its cluster.
//!
//! In: nothing. Out: a timeline that a person can follow. Always: status 0 only if every step was really seen; when it
//! ends, in whatever way, its processes have ended and its directory is gone.

mod home;
mod look;
mod process;
mod story;
mod stream;
mod timeline;
mod tools;

use super::Failure;
use super::signals::Signals;
use crate::output;
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

#[derive(clap::Args)]
#[command(after_help = "\
It needs no key and no network, and takes about a quarter of a minute. The runtime and the tool server are processes of
this same binary on free ports of 127.0.0.1. With --shards 3 the same is told of a cluster of a gateway and three shards, of
which the one that has the agent is killed; its locations are compiled first, which takes minutes the first time.
Exit status: 0 only if every step was really seen.")]
pub(crate) struct Arguments {
    /// Tell it of a cluster with so many shards, on this machine
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: Option<u32>,
    /// Keep the directory with the journal and the logs, and say where it is
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let directory = Directory::make(arguments.keep)?;
    let outcome = super::block_on(async {
        let mut signals = Signals::new()?;
        tokio::select! {
            outcome = story::tell(directory.path(), arguments.shards) => outcome,
            () = signals.next() => Err(Failure::Failed("the demo was interrupted; its processes have ended".to_owned())),
        }
    });
    if arguments.keep {
        output::line(format!("\nKept: {}", directory.path().display()));
    }
    outcome
}

/// The demo's own directory.
struct Directory {
    path: PathBuf,
    keep: bool,
}

impl Directory {
    fn make(keep: bool) -> Result<Self, Failure> {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_nanos());
        let path = std::env::temp_dir().join(format!("slackwater-demo-{}-{now}", std::process::id()));
        let made = DirBuilder::new().mode(0o700).create(&path);
        made.map_err(|error| Failure::Failed(format!("cannot make {}: {error}; see TMPDIR", path.display())))?;
        Ok(Self { path, keep })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        if self.keep {
            return;
        }
        // A child that was just killed may still be letting go of its files.
        for _ in 0..20 {
            if std::fs::remove_dir_all(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        output::note(format!("note: {} could not be removed", self.path.display()));
    }
}
