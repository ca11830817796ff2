//! The benchmark of those that sleep: what an idle agent costs, how soon a journal of a million of them is open, and how soon
//! one of them is awake.
//!
//! In: how many agents. Out: figures, as a table or as one line of JSON each. Always: every part is a process of its own, so
//! that memory is counted from a clean start; what has to come from the disk is not in the page cache; beside it stands what
//! the disk needs for one read.
//!
//! ```text
//! cargo bench -p slackwater --bench sleepers -- [--agents N] [--turns T] [--timers] [--json] [--plot FILE]
//! ```
//!
//! `benches/README.md` says what is on the path and what is not, and holds figures.

#![allow(clippy::print_stdout, unreachable_pub, reason = "figures are the output, and the modules are its own")]
#![allow(dead_code, reason = "it shares modules with other benches, and needs less of them")]

mod corpus;
mod drive;
mod figures;
mod plot;
mod probe;

use anyhow::Context as _;
use clap::Parser;
use corpus::{Choices, Corpus};
use drive::{Done, Drive, Workload};
use figures::{Figures, median, quantile};
use serde::{Deserialize, Serialize};
use slackwater::journal::FileDisk;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Longer than it takes a shard to become silent, and the allocator to give back what is free.
const SILENCE: Duration = Duration::from_secs(20);

/// The agents that are awakened: their histories are 54 KB.
const WAKERS: u32 = 2_000;
const WAKER_TURNS: u32 = 20;

/// How many of them.
const WAKES: usize = 300;

/// Sleepers: what agents cost that wait, and how soon they are awake.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How many agents sleep.
    #[arg(long, default_value_t = 1_000_000)]
    agents: u32,
    /// How many turns each has had.
    #[arg(long, default_value_t = 1)]
    turns: u32,
    /// How often a journal is opened; medians are printed.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Where the journals are written; a directory under `target/` without it.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Each has a timer that runs for ten years.
    #[arg(long)]
    timers: bool,
    /// Only the waking.
    #[arg(long)]
    wake: bool,
    /// Measures memory at a thousandth, a hundredth and a tenth of the agents too, and writes an SVG of it.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
    /// One part, in this process. For the benchmark itself, and for profilers.
    #[arg(long, value_enum)]
    run: Option<Run>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Run {
    /// The agents have their turns.
    Make,
    /// Their journal is opened again.
    Reopen,
    /// Some are awakened one after another.
    Wake,
}

/// What one part measured.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Measured {
    elapsed_s: f64,
    raw_bytes: u64,
    resident_bytes: u64,
    disk_bytes: u64,
    /// From opening to the first completion.
    restart_s: f64,
    /// How long each message took to its prompt, in microseconds.
    wakes_us: Vec<f64>,
    /// How long one read of as many bytes took.
    reads_us: Vec<f64>,
    sync_p50_us: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let Some(run) = arguments.run else { return all(&arguments) };
    let directory = arguments.directory.clone().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let measured = runtime.block_on(one(run, &arguments, &directory))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// One part in this process.
async fn one(run: Run, arguments: &Arguments, directory: &Path) -> anyhow::Result<Measured> {
    let corpus = Corpus::new(42, 16 << 20);
    let before = probe::resident()?;
    let begun = Instant::now();
    let mut drive = Drive::start(FileDisk::open(directory)?)?;
    let mut measured = Measured::default();
    match run {
        Run::Make => {
            let workload = Workload {
                agents: arguments.agents,
                turns: arguments.turns,
                under_way_max: 4_096,
                sleep: arguments.timers,
            };
            let Done { elapsed, raw_bytes } = drive.run(workload, &corpus).await;
            measured = Measured { elapsed_s: elapsed.as_secs_f64(), raw_bytes, ..measured };
            drive.tidy().await;
        }
        Run::Reopen => {
            // An agent that no workload has.
            drive.turn(u32::MAX, drive::some_turn(), &corpus).await;
            measured.restart_s = begun.elapsed().as_secs_f64();
        }
        Run::Wake => {
            let (mut choices, mut awakened) = (Choices::new(11), BTreeSet::new());
            while awakened.len() < WAKES {
                let agent = choices.below(arguments.agents as usize) as u32;
                if awakened.insert(agent) {
                    probe::forget_pages(directory)?;
                    let took = drive.turn(agent, arguments.turns, &corpus).await;
                    measured.wakes_us.push(took.as_secs_f64() * 1e6);
                    probe::forget_pages(directory)?;
                    let took = probe::cold_read(directory, 64 << 10, choices.any())?;
                    measured.reads_us.push(took.as_secs_f64() * 1e6);
                }
            }
            measured.sync_p50_us = probe::sync_p50(directory)?.as_secs_f64() * 1e6;
        }
    }
    tokio::time::sleep(SILENCE).await;
    measured.resident_bytes = probe::resident()?.saturating_sub(before);
    drive.stop().await?;
    measured.disk_bytes = probe::bytes_in(directory)?;
    Ok(measured)
}

/// All parts, each in a process of its own, and their figures.
fn all(arguments: &Arguments) -> anyhow::Result<()> {
    let parent = arguments.directory.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let figures = Figures { json: arguments.json };
    if !arguments.wake {
        sleep(arguments, &parent, figures)?;
    }
    let directory = tempfile::Builder::new().prefix("wakers").tempdir_in(&parent)?;
    let made = child(Run::Make, (WAKERS, WAKER_TURNS, false), directory.path())?;
    let woken = child(Run::Wake, (WAKERS, WAKER_TURNS, false), directory.path())?;
    let text = made.raw_bytes / u64::from(WAKERS);
    figures.head(&format!("{WAKES} cold wakes of threads of {text} bytes of text, page cache dropped"));
    let read = figures.show("disk_read_p50_us", vec![median(woken.reads_us.clone())], "us", None);
    let read_p99 = figures.show("disk_read_p99_us", vec![quantile(woken.reads_us, 0.99)], "us", None);
    figures.show("fdatasync_p50_us", vec![woken.sync_p50_us], "us", None);
    figures.show("cold_wake_p50_us", vec![median(woken.wakes_us.clone())], "us", Some(read));
    figures.show("cold_wake_p99_us", vec![quantile(woken.wakes_us, 0.99)], "us", Some(read_p99));
    Ok(())
}

/// Makes agents, lets them sleep, and opens their journal again.
fn sleep(arguments: &Arguments, parent: &Path, figures: Figures) -> anyhow::Result<()> {
    let all = arguments.agents;
    let steps = if arguments.plot.is_some() { vec![all / 1000, all / 100, all / 10, all] } else { vec![all] };
    let (mut after_work, mut after_restart) = (Vec::new(), Vec::new());
    for agents in steps {
        let directory = tempfile::Builder::new().prefix("sleepers").tempdir_in(parent)?;
        let what = (agents, arguments.turns, arguments.timers);
        let made = child(Run::Make, what, directory.path())?;
        let (mut cold, mut warm) = (Vec::new(), Vec::new());
        for _ in 0..arguments.repeats.max(1) {
            probe::forget_pages(directory.path())?;
            cold.push(child(Run::Reopen, what, directory.path())?);
            warm.push(child(Run::Reopen, what, directory.path())?);
        }
        let resident = |runs: &[Measured]| runs.iter().map(|run| run.resident_bytes as f64).collect::<Vec<_>>();
        after_work.push((f64::from(agents), made.resident_bytes as f64));
        after_restart.push((f64::from(agents), median(resident(&cold))));
        if agents < all {
            continue;
        }
        let each = f64::from(agents);
        let raw = made.raw_bytes as f64 / each;
        let timers = if arguments.timers { ", a timer each" } else { "" };
        figures.head(&format!("{agents} agents of {} turns, {raw:.0} bytes of text each{timers}", arguments.turns));
        figures.show(
            "completions_per_second_durable",
            vec![2.0 * each * f64::from(arguments.turns) / made.elapsed_s],
            "1/s",
            None,
        );
        figures.show("disk_bytes_per_agent", vec![made.disk_bytes as f64 / each], "B", Some(raw));
        figures.show("million_rss_bytes", resident(&cold), "B", None);
        figures.show("million_rss_bytes_after_work", vec![made.resident_bytes as f64], "B", None);
        figures.show("idle_bytes", resident(&cold).into_iter().map(|bytes| bytes / each).collect(), "B", None);
        let restarts = |runs: &[Measured]| runs.iter().map(|run| run.restart_s * 1e3).collect::<Vec<_>>();
        figures.show("restart_million_ms", restarts(&cold), "ms", None);
        figures.show("restart_million_ms_page_cache", restarts(&warm), "ms", None);
    }
    if let Some(path) = &arguments.plot {
        let lines = [("after a restart".to_owned(), after_restart), ("after the work".to_owned(), after_work)];
        plot::write(path, "Resident memory of agents that sleep", ("agents", "bytes"), &lines)?;
    }
    Ok(())
}

/// One part in a process of its own, with so many agents of so many turns, which have timers or not.
fn child(run: Run, (agents, turns, timers): (u32, u32, bool), directory: &Path) -> anyhow::Result<Measured> {
    let kind = match run {
        Run::Make => "make",
        Run::Reopen => "reopen",
        Run::Wake => "wake",
    };
    let output = Command::new(std::env::current_exe()?)
        .args(["--run", kind, "--agents", &agents.to_string(), "--turns", &turns.to_string(), "--directory"])
        .arg(directory)
        .args(timers.then_some("--timers"))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "the {kind} run ended with {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("the {kind} run said something else"))
}
