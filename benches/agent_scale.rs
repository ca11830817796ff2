//! The benchmark of agents at scale: completions a second, and what an idle agent costs.
//!
//! In: how many agents, how many turns. Out: figures, as a table or as one line of JSON each. Always: every run is a process
//! of its own, so that memory is counted from a clean start; runs of the two kinds alternate; what is compared was measured
//! in the same run.
//!
//! ```text
//! cargo bench -p slackwater --bench agent_scale -- [--agents N] [--turns T] [--json] [--memory | --durable] [--plot FILE]
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
use corpus::Corpus;
use drive::{Done, Drive, Workload};
use figures::{Figures, median};
use serde::{Deserialize, Serialize};
use slackwater::journal::{FileDisk, MemoryDisk};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The program's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How many turns agents have for the figure of the rate by the length of the history. All have as many together.
const HISTORIES: [u32; 5] = [20, 40, 80, 160, 320];
const HISTORIES_TURNS: u32 = 40_000;

/// Longer than it takes a shard to become silent, and the allocator to give back what is free.
const SILENCE: Duration = Duration::from_secs(20);

/// The corpus: its seed, and its length in bytes.
const CORPUS_SEED: u64 = 42;
const CORPUS_LENGTH: usize = 16 << 20;

/// Agents at scale: N agents of T turns, and what they cost when they rest.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How many agents.
    #[arg(long, default_value_t = 2_000)]
    agents: u32,
    /// How many turns each; a turn is two completions.
    #[arg(long, default_value_t = 20)]
    turns: u32,
    /// How many agents have a turn under way at a time.
    #[arg(long, default_value_t = 4_096)]
    under_way: usize,
    /// How often everything is measured; medians are printed.
    #[arg(long, default_value_t = 3)]
    repeats: usize,
    /// Only without a disk.
    #[arg(long, conflicts_with = "durable")]
    memory: bool,
    /// Only on a disk.
    #[arg(long)]
    durable: bool,
    /// Where the journals are written; a directory under `target/` without it.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Writes an SVG of the rate by the length of the history.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// Measures the rate and nothing else.
    #[arg(long, hide = true)]
    quick: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
    /// One run, in this process. For the benchmark itself, and for profilers.
    #[arg(long, value_enum)]
    run: Option<Run>,
}

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Run {
    /// The workload without a disk.
    Memory,
    /// The workload on a disk.
    Durable,
    /// Opens what a durable run has left.
    Reopen,
}

/// What one run measured.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Measured {
    elapsed_s: f64,
    raw_bytes: u64,
    resident_bytes: u64,
    records: u64,
    syncs: u64,
    disk_bytes: u64,
    probe_s: f64,
    sync_p50_s: f64,
    restart_s: f64,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let Some(run) = arguments.run else { return all(&arguments) };
    let directory = arguments.directory.clone().unwrap_or_default();
    let measured = runtime.block_on(one(run, &arguments, &directory))?;
    println!("{}", serde_json::to_string(&measured)?);
    Ok(())
}

/// One run in this process.
async fn one(run: Run, arguments: &Arguments, directory: &Path) -> anyhow::Result<Measured> {
    let corpus = Corpus::new(CORPUS_SEED, CORPUS_LENGTH);
    let before = probe::resident()?;
    let begun = Instant::now();
    let mut drive = match run {
        Run::Memory => Drive::start(MemoryDisk::default())?,
        Run::Durable | Run::Reopen => Drive::start(FileDisk::open(directory)?)?,
    };
    let mut measured = Measured::default();
    if run == Run::Reopen {
        // An agent that no workload has.
        drive.turn(u32::MAX, drive::some_turn(), &corpus).await;
        measured.restart_s = begun.elapsed().as_secs_f64();
    } else {
        let workload = Workload {
            agents: arguments.agents,
            turns: arguments.turns,
            under_way_max: arguments.under_way,
            sleep: false,
        };
        let Done { elapsed, raw_bytes } = drive.run(workload, &corpus).await;
        measured = Measured { elapsed_s: elapsed.as_secs_f64(), raw_bytes, ..measured };
    }
    if arguments.quick {
        return Ok(measured);
    }
    // Everybody rests. After some seconds without an input nobody is kept in memory any more; and what the allocator gives
    // back by itself is given it time to.
    tokio::time::sleep(SILENCE).await;
    let counters = drive.counters();
    (measured.records, measured.syncs) = (counters.records, counters.syncs);
    if run != Run::Reopen {
        drive.tidy().await;
        tokio::time::sleep(SILENCE).await;
    }
    measured.resident_bytes = probe::resident()?.saturating_sub(before);
    drive.stop().await?;
    if run == Run::Durable {
        measured.disk_bytes = probe::bytes_in(directory)?;
        measured.probe_s = probe::journal(directory, counters.bytes, counters.syncs, &corpus)?.as_secs_f64();
        measured.sync_p50_s = probe::sync_p50(directory)?.as_secs_f64();
    }
    Ok(measured)
}

/// All runs, each in a process of its own, and their figures.
fn all(arguments: &Arguments) -> anyhow::Result<()> {
    let parent = arguments.directory.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    std::fs::create_dir_all(&parent).with_context(|| format!("cannot make {}", parent.display()))?;
    let (mut memory, mut durable, mut reopened) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..arguments.repeats.max(1) {
        if !arguments.memory {
            let directory = tempfile::Builder::new().prefix("agent_scale").tempdir_in(&parent)?;
            durable.push(child(Run::Durable, arguments, directory.path())?);
            reopened.push(child(Run::Reopen, arguments, directory.path())?);
        }
        if !arguments.durable {
            memory.push(child(Run::Memory, arguments, &parent)?);
        }
    }
    let head = Corpus::new(CORPUS_SEED, 1 << 20);
    let packed = zstd::bulk::compress(head.head(1 << 20), 3)?.len();
    let ratio = f64::from(1 << 20) / packed as f64;
    anyhow::ensure!((2.5..=4.0).contains(&ratio), "the corpus compresses {ratio:.2} times; it has to be 2.5 to 4");

    let agents = f64::from(arguments.agents);
    let completions = 2.0 * agents * f64::from(arguments.turns);
    let figures = Figures { json: arguments.json };
    let Arguments { agents: count, turns, repeats, .. } = arguments;
    figures.head(&format!("{count} agents of {turns} turns, median of {repeats} (lowest to highest)"));
    figures.show("corpus_zstd_ratio", vec![ratio], "ratio", None);
    let raw = durable.iter().chain(&memory).map(|m| m.raw_bytes as f64 / agents).collect();
    figures.show("raw_text_bytes_per_agent", raw, "B", None);
    let of = |runs: &[Measured], figure: &dyn Fn(&Measured) -> f64| runs.iter().map(figure).collect::<Vec<_>>();
    if !durable.is_empty() {
        let floor = median(of(&durable, &|m| completions / m.probe_s));
        let rates = of(&durable, &|m| completions / m.elapsed_s);
        figures.show("completions_per_second_durable", rates, "1/s", Some(floor));
        figures.show("durable_vs_probe", of(&durable, &|m| m.probe_s / m.elapsed_s), "ratio", Some(1.0));
        figures.show("completions_per_sync", of(&durable, &|m| completions / m.syncs as f64), "1", None);
        figures.show("fdatasync_p50_us", of(&durable, &|m| m.sync_p50_s * 1e6), "us", None);
        let raw = median(of(&durable, &|m| m.raw_bytes as f64 / agents));
        figures.show("disk_bytes_per_agent", of(&durable, &|m| m.disk_bytes as f64 / agents), "B", Some(raw));
        figures.show("disk_vs_raw", of(&durable, &|m| m.disk_bytes as f64 / m.raw_bytes as f64), "ratio", None);
        figures.show("idle_bytes_after_work", of(&durable, &|m| m.resident_bytes as f64 / agents), "B", None);
        figures.show("idle_bytes", of(&reopened, &|m| m.resident_bytes as f64 / agents), "B", None);
        figures.show("restart_to_prompt_ms", of(&reopened, &|m| m.restart_s * 1e3), "ms", None);
    }
    if !memory.is_empty() {
        figures.show("completions_per_second_memory", of(&memory, &|m| completions / m.elapsed_s), "1/s", None);
        let raw = median(of(&memory, &|m| m.raw_bytes as f64 / agents));
        figures.show("memory_bytes_per_agent", of(&memory, &|m| m.resident_bytes as f64 / agents), "B", Some(raw));
        figures.show("memory_vs_raw", of(&memory, &|m| m.resident_bytes as f64 / m.raw_bytes as f64), "ratio", None);
    }
    histories(arguments, &parent, figures)
}

/// The rate by the length of the history, for as many completions in all and as many agents at work.
fn histories(arguments: &Arguments, parent: &Path, figures: Figures) -> anyhow::Result<()> {
    let workload = |turns: u32| {
        let (agents, under_way) = (HISTORIES_TURNS / turns, (HISTORIES_TURNS / HISTORIES[4]) as usize);
        Arguments { agents, turns, under_way, quick: true, ..arguments.clone() }
    };
    let mut lines = Vec::new();
    for (run, name) in [(Run::Memory, "memory"), (Run::Durable, "durable")] {
        if (arguments.memory && run == Run::Durable) || (arguments.durable && run == Run::Memory) {
            continue;
        }
        let mut rates = HISTORIES.map(|_| Vec::new());
        for _ in 0..arguments.repeats.max(1) {
            for (turns, rates) in HISTORIES.into_iter().zip(&mut rates) {
                let directory = tempfile::Builder::new().prefix("histories").tempdir_in(parent)?;
                let measured = child(run, &workload(turns), directory.path())?;
                rates.push(2.0 * f64::from(HISTORIES_TURNS) / measured.elapsed_s);
            }
        }
        // Of the runs that were made one after another.
        let ratios = rates[4].iter().zip(&rates[0]).map(|(long, short)| long / short).collect();
        let points = HISTORIES.into_iter().zip(rates).map(|(turns, rates)| {
            let rate = figures.show(&format!("completions_per_second_{name}_at_{turns}_turns"), rates, "1/s", None);
            (f64::from(turns), rate)
        });
        lines.push((name.to_owned(), points.collect()));
        let measure = if run == Run::Memory { "rate_320_vs_20" } else { "rate_320_vs_20_durable" };
        figures.show(measure, ratios, "ratio", Some(1.0));
    }
    if let Some(path) = &arguments.plot {
        plot::write(path, "Rate by the length of the history", ("turns", "completions a second"), &lines)?;
    }
    Ok(())
}

/// One run in a process of its own.
fn child(run: Run, arguments: &Arguments, directory: &Path) -> anyhow::Result<Measured> {
    let kind = match run {
        Run::Memory => "memory",
        Run::Durable => "durable",
        Run::Reopen => "reopen",
    };
    let output = Command::new(std::env::current_exe()?)
        .args(["--run", kind, "--agents", &arguments.agents.to_string(), "--turns", &arguments.turns.to_string()])
        .args(["--under-way", &arguments.under_way.to_string(), "--directory"])
        .arg(directory)
        .args(arguments.quick.then_some("--quick"))
        .stderr(std::process::Stdio::inherit())
        .output()?;
    anyhow::ensure!(output.status.success(), "the {kind} run ended with {}", output.status);
    serde_json::from_slice(&output.stdout).with_context(|| format!("the {kind} run said something else"))
}
