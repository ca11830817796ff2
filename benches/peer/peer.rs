//! The benchmark beside another system: the same workload through Slackwater and through `infinity-agent-core` 0.2.0.
//!
//! In: how many agents, how many turns. Out: completions a second of both, and the ratios. Always: the same texts in the same
//! pieces; every run is a process of its own, with the same allocator, bound to one processor if it is asked for; the runs
//! alternate.
//!
//! ```text
//! cargo bench --manifest-path benches/peer/Cargo.toml [--features system-allocator] -- [--agents N] [--turns T] [--json]
//! ```
//!
//! `benches/README.md` says what is on the path and what is not, and holds figures.

#![allow(unreachable_pub, reason = "the modules are its own")]
#![allow(dead_code, reason = "it shares modules with other benches, and needs less of them")]

#[path = "../corpus.rs"]
mod corpus;
#[path = "../drive.rs"]
mod drive;
#[path = "../figures.rs"]
mod figures;
mod infinity;

use anyhow::Context as _;
use clap::Parser;
use corpus::Corpus;
use drive::{Done, Drive, Workload};
use figures::Figures;
use serde::{Deserialize, Serialize};
use slackwater::journal::{FileDisk, MemoryDisk};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The allocator of Slackwater's program, for both; the system's for both with the feature.
#[cfg(not(feature = "system-allocator"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The same workload through both.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How many agents.
    #[arg(long, default_value_t = 1_000)]
    agents: u32,
    /// How many turns each; a turn is two completions.
    #[arg(long, default_value_t = 20)]
    turns: u32,
    /// How many agents have a turn under way at a time.
    #[arg(long, default_value_t = 4_096)]
    under_way: usize,
    /// How often everything is measured; medians are printed.
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Binds each run to one processor, all threads of it.
    #[arg(long)]
    one_processor: bool,
    /// Where the journals are written; a directory beside the program without it.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
    /// One run, in this process.
    #[arg(long, value_enum)]
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Run {
    /// The other system, in memory.
    Peer,
    /// The same without its built-in tools, which every prompt of it describes.
    PeerBare,
    /// Slackwater, in memory.
    Memory,
    /// Slackwater, on a disk.
    Durable,
}

/// What one run measured.
#[derive(Debug, Serialize, Deserialize)]
struct Measured {
    elapsed_s: f64,
    raw_bytes: u64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(run) = arguments.run else { return all(&arguments) };
    if arguments.one_processor {
        let mut one = rustix::thread::CpuSet::new();
        one.set(0);
        rustix::thread::sched_setaffinity(None, &one)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let local = tokio::task::LocalSet::new();
    let measured = local.block_on(&runtime, one(run, &arguments))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// One run in this process.
async fn one(run: Run, arguments: &Arguments) -> anyhow::Result<Measured> {
    let corpus = Corpus::new(42, 16 << 20);
    let workload = Workload { agents: arguments.agents, turns: arguments.turns, under_way_max: arguments.under_way, sleep: false };
    let mut drive = match run {
        Run::Peer | Run::PeerBare => {
            let Done { elapsed, raw_bytes } = infinity::run(workload, corpus, run == Run::Peer).await;
            return Ok(Measured { elapsed_s: elapsed.as_secs_f64(), raw_bytes });
        }
        Run::Memory => Drive::start(MemoryDisk::default())?,
        Run::Durable => Drive::start(FileDisk::open(arguments.directory.clone().unwrap_or_default())?)?,
    };
    let Done { elapsed, raw_bytes } = drive.run(workload, &corpus).await;
    drive.stop().await?;
    Ok(Measured { elapsed_s: elapsed.as_secs_f64(), raw_bytes })
}

/// All runs, each in a process of its own, and their figures.
fn all(arguments: &Arguments) -> anyhow::Result<()> {
    let beside = std::env::current_exe()?;
    let beside = beside.parent().context("the program is in a directory")?.to_owned();
    let parent = arguments.directory.clone().unwrap_or(beside);
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let (mut peer, mut bare, mut memory, mut durable) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repeats.max(1) {
        let directory = tempfile::Builder::new().prefix("peer").tempdir_in(&parent)?;
        peer.push(child(Run::Peer, arguments, directory.path())?);
        bare.push(child(Run::PeerBare, arguments, directory.path())?);
        memory.push(child(Run::Memory, arguments, directory.path())?);
        durable.push(child(Run::Durable, arguments, directory.path())?);
    }
    let raw = |runs: &[Measured]| runs.iter().map(|run| run.raw_bytes).collect::<Vec<_>>();
    anyhow::ensure!(raw(&peer) == raw(&memory) && raw(&memory) == raw(&durable), "both were given the same text");

    let completions = 2.0 * f64::from(arguments.agents) * f64::from(arguments.turns);
    let rates = |runs: &[Measured]| runs.iter().map(|run| completions / run.elapsed_s).collect::<Vec<_>>();
    let figures = Figures { json: arguments.json };
    let Arguments { agents, turns, repeats, .. } = arguments;
    figures.head(&format!("{agents} agents of {turns} turns, median of {repeats} (lowest to highest)"));
    let floor = figures.show("peer_completions_per_second_memory", rates(&peer), "1/s", None);
    figures.show("peer_completions_per_second_memory_without_tools", rates(&bare), "1/s", None);
    figures.show("completions_per_second_memory", rates(&memory), "1/s", Some(floor));
    figures.show("completions_per_second_durable", rates(&durable), "1/s", Some(floor));
    // Of the runs that were made one after another.
    let ratios = |runs: &[Measured]| peer.iter().zip(runs).map(|(peer, run)| peer.elapsed_s / run.elapsed_s).collect();
    figures.show("memory_vs_peer", ratios(&memory), "ratio", Some(1.0));
    figures.show("durable_vs_peer", ratios(&durable), "ratio", Some(1.0));
    Ok(())
}

/// One run in a process of its own.
fn child(run: Run, arguments: &Arguments, directory: &Path) -> anyhow::Result<Measured> {
    let kind = match run {
        Run::Peer => "peer",
        Run::PeerBare => "peer-bare",
        Run::Memory => "memory",
        Run::Durable => "durable",
    };
    let mut command = Command::new(std::env::current_exe()?);
    command
        .args(["--run", kind, "--agents", &arguments.agents.to_string(), "--turns", &arguments.turns.to_string()])
        .args(["--under-way", &arguments.under_way.to_string(), "--directory"])
        .arg(directory)
        .args(arguments.one_processor.then_some("--one-processor"))
        .stderr(std::process::Stdio::inherit());
    let output = command.output()?;
    anyhow::ensure!(output.status.success(), "the {kind} run ended with {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("the {kind} run said something else"))
}
