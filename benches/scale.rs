//! The benchmark of a cluster: completions a second with one shard and with more, and what the hops cost.
//!
//! In: numbers of shards. Out: figures, as a table or as one line of JSON each, and a plot. Always: real processes, placed by
//! `slackwater cluster up --pin`; completions are counted in the journals, by the time that each was received; different
//! numbers of shards alternate, and medians are shown.
//!
//! ```text
//! cargo bench -p slackwater --bench scale -- [--shards 1,2,4] [--agents N] [--rounds N] [--seconds S] [--unpinned] [--dev]
//!     [--directory DIR] [--json] [--plot FILE]
//! ```
//!
//! `benches/README.md` says what is on the path and what is not, and holds figures.

#![allow(clippy::print_stdout, reason = "figures are the output")]

#[path = "plot.rs"]
mod plot;

use anyhow::Context as _;
use clap::Parser;
use futures::StreamExt as _;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::json;
use slackwater::host::directory::shard_directory;
use slackwater::host::plan;
use slackwater::journal::{FileDisk, Journal, Options};
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use slackwater_core::id::Ticket;
use slackwater_core::port::{FromJournal, Query, Reply, ToJournal};
use slackwater_core::record::Record;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An agent that asks the same thing again and again: each completion makes a call that its thread answers itself. And one that
/// says hello.
const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "hello" }
say = "Hello."

[[rule]]
say = "I look who is there, and then I look again."
call = [{ tool = "list_children", arguments = {} }]
"#;

/// What is not counted at the beginning, while messages still arrive.
const WARM_UP: Duration = Duration::from_secs(2);

/// A first launch compiles the locations.
const LAUNCH_MAX: Duration = Duration::from_secs(3_600);

/// How often a hop is measured.
const HOPS: usize = 2_000;

/// The pause between two messages of somebody who says hello while the agents work.
const HELLO_PAUSE: Duration = Duration::from_millis(20);

/// Completions a second of a cluster, by number of shards.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Numbers of shards.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    shards: Vec<u32>,
    /// How many agents, whatever the number of shards.
    #[arg(long, default_value_t = 1_024)]
    agents: usize,
    /// How often each number of shards is measured, in turn.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How long completions are counted each time.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The port of the first gateway.
    #[arg(long, default_value_t = 17_170)]
    port: u16,
    /// No shard is bound to a processor.
    #[arg(long)]
    unpinned: bool,
    /// Locations that are not compiled for speed.
    #[arg(long)]
    dev: bool,
    /// Where the journals are written, for as long as it takes [default: the temporary directory].
    #[arg(long)]
    directory: Option<PathBuf>,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// Draw rate and latency by number of shards into this file.
    #[arg(long)]
    plot: Option<PathBuf>,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// What was measured of one cluster.
#[derive(Clone, Copy)]
struct Run {
    per_second: f64,
    /// From a message to its acknowledgement.
    hello_p50_us: f64,
    hello_p99_us: f64,
    /// How many processors' time the gateway took, and each shard on average.
    gateway_cores: f64,
    shard_cores: f64,
}

/// A cluster that runs. It ends when this is dropped.
struct Running {
    child: Child,
    place: tempfile::TempDir,
    port: u16,
}

impl Running {
    async fn start(arguments: &Arguments, cells: u32, shards: u32, client: &reqwest::Client) -> anyhow::Result<Self> {
        let place = match &arguments.directory {
            Some(directory) => tempfile::tempdir_in(directory)?,
            None => tempfile::tempdir()?,
        };
        let script = place.path().join("script.toml");
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command.args(["cluster", "up", "--cells", &cells.to_string(), "--shards", &shards.to_string(), "--directory"]);
        command.arg(place.path().join("data")).arg("--script").arg(script);
        command.arg("--listen").arg(format!("127.0.0.1:{}", arguments.port)).current_dir(place.path());
        if !arguments.dev {
            command.arg("--release");
        }
        if !arguments.unpinned {
            command.arg("--pin");
        }
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?;
        let mut running = Self { child, place, port: arguments.port };
        let begun = Instant::now();
        for cell in 0..cells as u16 {
            while client.get(running.url(cell, "/ready")).send().await.is_err() {
                anyhow::ensure!(running.child.try_wait()?.is_none(), "the cluster has not started");
                anyhow::ensure!(begun.elapsed() < LAUNCH_MAX, "the cluster is not ready");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        Ok(running)
    }

    fn url(&self, cell: u16, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port + cell)
    }

    fn data(&self) -> PathBuf {
        self.place.path().join("data")
    }

    /// How long the gateway and the shards have had a processor, in seconds.
    fn processor_s(&self) -> anyhow::Result<(f64, f64)> {
        let state = plan::running(&self.data())?.context("the cluster does not run")?;
        let (mut gateway, mut shards) = (0.0, 0.0);
        for process in state.cells.iter().flat_map(|cell| &cell.processes) {
            let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.process))?;
            // proc(5): the name is in parentheses, and 11 fields after it the time of the user and then the system's.
            let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
            let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
            let of = if process.name.starts_with("gateway") { &mut gateway } else { &mut shards };
            *of += ticks as f64 / rustix::param::clock_ticks_per_second() as f64;
        }
        Ok((gateway, shards))
    }

    fn stop(&mut self) -> anyhow::Result<()> {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It has ended already, if all went well.
        let _ = self.stop();
    }
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(measure(&arguments))
}

async fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let client = reqwest::Client::builder().no_proxy().build()?;
    let mut runs = vec![Vec::new(); arguments.shards.len()];
    for _ in 0..arguments.rounds {
        for (shards, runs) in arguments.shards.iter().zip(&mut runs) {
            runs.push(run(arguments, *shards, &client).await?);
        }
    }
    let mut lines: Vec<plot::Line> =
        ["completions a second", "message to acknowledgement, p50, us", "the same, p99, us"]
            .map(|name| (name.to_owned(), Vec::new()))
            .into();
    let mut rates = Vec::new();
    for (&shards, runs) in arguments.shards.iter().zip(&runs) {
        let told = |what: &str, of: fn(&Run) -> f64, unit: &str| {
            let value = median(runs.iter().map(of).collect());
            tell(arguments, &format!("{what}_{shards}"), value, unit);
            value
        };
        let rate = told("completions_per_second", |run| run.per_second, "1/s");
        let shown = [
            rate,
            told("message_p50_us", |run| run.hello_p50_us, "us"),
            told("message_p99_us", |run| run.hello_p99_us, "us"),
        ];
        told("cores_of_a_shard", |run| run.shard_cores, "");
        told("cores_of_the_gateway", |run| run.gateway_cores, "");
        rates.push((shards, rate));
        lines.iter_mut().zip(shown).for_each(|((_, points), value)| points.push((f64::from(shards), value)));
    }
    let at = |wanted: u32| rates.iter().find(|(shards, _)| *shards == wanted).map(|(_, rate)| *rate);
    if let (Some(one), Some(two)) = (at(1), at(2)) {
        tell_with(arguments, "two_vs_one", two / one, "", Some(ceiling()?));
    }
    if let Some(path) = &arguments.plot {
        plot::write(path, "A cluster by its number of shards", ("shards", "1/s, us"), &lines)?;
    }
    hops(arguments, &client).await
}

/// How much more two processors of this machine do than one at something simple: texts are made, checked, kept and forgotten.
fn ceiling() -> anyhow::Result<f64> {
    let before = texts_checked(1)?;
    let two = texts_checked(2)?;
    Ok(2.0 * two / (before + texts_checked(1)?))
}

/// How many texts so many processors make and check in a second.
fn texts_checked(processors: usize) -> anyhow::Result<f64> {
    let allowed = sched_getaffinity(None)?;
    let may_use = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).take(processors);
    let threads: Vec<_> = may_use
        .map(|processor| {
            std::thread::spawn(move || {
                let mut one = CpuSet::new();
                one.set(processor);
                sched_setaffinity(None, &one)?;
                let (mut kept, mut sum, begun) = (vec![Vec::new(); 1 << 16], 0, Instant::now());
                for count in 0_usize.. {
                    if count % 1_024 == 0 && begun.elapsed() >= Duration::from_secs(1) {
                        std::hint::black_box(sum);
                        return anyhow::Ok(count as f64);
                    }
                    let place = count % kept.len();
                    kept[place] = vec![count as u8; 700];
                    sum ^= crc32c::crc32c(&kept[place]);
                }
                unreachable!("invariant: a second ends")
            })
        })
        .collect();
    let counts: anyhow::Result<Vec<f64>> =
        threads.into_iter().map(|thread| thread.join().expect("invariant: counting does not panic")).collect();
    Ok(counts?.into_iter().sum())
}

/// Completions a second with so many shards, and what else is seen meanwhile.
async fn run(arguments: &Arguments, shards: u32, client: &reqwest::Client) -> anyhow::Result<Run> {
    let mut running = Running::start(arguments, 1, shards, client).await?;
    let sends = (0..arguments.agents).map(|agent| {
        let url = running.url(0, &format!("/v1/threads/agent-{agent}/messages"));
        client.post(url).json(&json!({"text": "look", "id": "one"})).send()
    });
    let answers: Vec<_> = futures::stream::iter(sends).buffer_unordered(32).collect().await;
    for answer in answers {
        answer?.error_for_status()?;
    }
    tokio::time::sleep(WARM_UP).await;
    let (from_ms, begun, before) = (now_ms(), Instant::now(), running.processor_s()?);
    let mut took_us = Vec::new();
    while begun.elapsed() < Duration::from_secs(arguments.seconds) {
        tokio::time::sleep(HELLO_PAUSE).await;
        let url = running.url(0, &format!("/v1/threads/guest-{}/messages", took_us.len() % 16));
        let said = Instant::now();
        let answer = client.post(url).json(&json!({"text": "hello"})).send().await?.error_for_status()?;
        answer.bytes().await?;
        took_us.push(said.elapsed().as_nanos() as f64 / 1_000.0);
    }
    let (to_ms, lasted_s, after) = (now_ms(), begun.elapsed().as_secs_f64(), running.processor_s()?);
    running.stop()?;
    let mut completions = 0;
    for shard in 0..shards {
        completions += count(&shard_directory(&running.data(), shard), from_ms, to_ms).await?;
    }
    took_us.sort_unstable_by(f64::total_cmp);
    Ok(Run {
        per_second: completions as f64 * 1_000.0 / (to_ms - from_ms) as f64,
        hello_p50_us: took_us[took_us.len() / 2],
        hello_p99_us: took_us[took_us.len() * 99 / 100],
        gateway_cores: (after.0 - before.0) / lasted_s,
        shard_cores: (after.1 - before.1) / lasted_s / f64::from(shards),
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The completions in a journal that came between two times.
async fn count(directory: &Path, from_ms: u64, to_ms: u64) -> anyhow::Result<usize> {
    let (mut from, to, handle) = Journal::open(FileDisk::open(directory)?, Options::default())?.start()?;
    let mut ask = async |asked| {
        to.put(asked);
        loop {
            let told = from.next().await.context("the journal has ended")?;
            if matches!(told, FromJournal::Reply(..) | FromJournal::Recalled { .. }) {
                return anyhow::Ok(told);
            }
        }
    };
    let mut after = None;
    let mut completions = 0;
    loop {
        let query = Query::Threads { shard: 0, after, limit: 500 };
        let told = ask(ToJournal::Query(Ticket { gateway: 0, request: 0 }, query)).await?;
        let FromJournal::Reply(_, Reply::Threads(page)) = told else { anyhow::bail!("no page of threads") };
        let Some(last) = page.last() else { break };
        after = Some(last.thread);
        for standing in &page {
            let told = ask(ToJournal::Recall { thread: standing.thread, before: u64::MAX }).await?;
            let FromJournal::Recalled { records: Ok(records), .. } = told else { anyhow::bail!("no records") };
            let counts = records.iter().filter(|record| {
                matches!(record.arrival.record, Record::Completion(_))
                    && (from_ms..to_ms).contains(&record.arrival.at_ms)
            });
            completions += counts.count();
        }
    }
    handle.close().await?;
    Ok(completions)
}

/// What it costs to ask a shard through the gateway, and to enter at another cell's gateway: medians of quiet requests.
async fn hops(arguments: &Arguments, client: &reqwest::Client) -> anyhow::Result<()> {
    let mut running = Running::start(arguments, 2, 1, client).await?;
    let placement = Placement::even(2, 1, VIRTUAL_SHARDS);
    let at_first = (0..).map(|n| format!("nobody-{n}")).find(|name| {
        slackwater::gateway::name::address(name).is_ok_and(|address| placement.cell_of(address.thread) == 0)
    });
    let path = format!("/v1/threads/{}", at_first.context("a name is at the first cell")?);
    let alone = median_us(client, &running.url(0, "/health")).await?;
    let shard = median_us(client, &running.url(0, &path)).await?;
    let forwarded = median_us(client, &running.url(1, &path)).await?;
    running.stop()?;
    tell(arguments, "gateway_alone_us", alone, "us");
    tell(arguments, "gateway_hop_us", shard - alone, "us");
    tell(arguments, "forward_hop_us", forwarded - shard, "us");
    Ok(())
}

async fn median_us(client: &reqwest::Client, url: &str) -> anyhow::Result<f64> {
    let mut took = Vec::with_capacity(HOPS);
    for _ in 0..HOPS {
        let begun = Instant::now();
        client.get(url).send().await?.bytes().await?;
        took.push(begun.elapsed().as_nanos() as f64 / 1_000.0);
    }
    Ok(median(took))
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn tell(arguments: &Arguments, measure: &str, value: f64, unit: &str) {
    tell_with(arguments, measure, value, unit, None);
}

fn tell_with(arguments: &Arguments, measure: &str, value: f64, unit: &str, floor: Option<f64>) {
    if arguments.json {
        println!("{}", json!({"measure": measure, "value": value, "unit": unit, "floor": floor}));
    } else {
        let floor = floor.map(|floor| format!("(the machine: {floor:.2})")).unwrap_or_default();
        println!("{measure:<32} {value:>12.2} {unit} {floor}");
    }
}
