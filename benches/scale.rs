//! The benchmark of a cluster: completions a second with one shard and with more, and what the hops cost.
//!
//! In: numbers of shards. Out: figures, as a table with a plot or as one line of JSON each. Always: real processes, placed by
//! `slackwater cluster up`; completions are counted in the journals, by the time that each was received.
//!
//! ```text
//! cargo bench -p slackwater --bench scale -- [--shards 1,2] [--agents N] [--seconds S] [--dev] [--json]
//! ```
//!
//! `benches/README.md` says what is on the path and what is not, and holds figures.

#![allow(clippy::print_stdout, reason = "figures are the output")]

use anyhow::Context as _;
use clap::Parser;
use futures::StreamExt as _;
use serde_json::json;
use slackwater::host::directory::shard_directory;
use slackwater::journal::{FileDisk, Journal, Options};
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use slackwater_core::id::Ticket;
use slackwater_core::port::{FromJournal, Query, Reply, ToJournal};
use slackwater_core::record::Record;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// An agent that asks the same thing again and again: each completion makes a call that its thread answers itself.
const SCRIPT: &str = r#"
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

/// Completions a second of a cluster, by number of shards.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// Numbers of shards.
    #[arg(long, value_delimiter = ',', default_value = "1,2")]
    shards: Vec<u32>,
    /// How many agents.
    #[arg(long, default_value_t = 256)]
    agents: usize,
    /// How long completions are counted.
    #[arg(long, default_value_t = 5)]
    seconds: u64,
    /// The port of the first gateway.
    #[arg(long, default_value_t = 17_170)]
    port: u16,
    /// Locations that are not compiled for speed.
    #[arg(long)]
    dev: bool,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

/// A cluster that runs. It ends when this is dropped.
struct Running {
    child: Child,
    place: tempfile::TempDir,
    port: u16,
}

impl Running {
    async fn start(arguments: &Arguments, cells: u32, shards: u32, client: &reqwest::Client) -> anyhow::Result<Self> {
        let place = tempfile::tempdir()?;
        let script = place.path().join("script.toml");
        std::fs::write(&script, SCRIPT)?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command.args(["cluster", "up", "--cells", &cells.to_string(), "--shards", &shards.to_string(), "--directory"]);
        command.arg(place.path().join("data")).arg("--script").arg(script);
        command.arg("--listen").arg(format!("127.0.0.1:{}", arguments.port)).current_dir(place.path());
        if !arguments.dev {
            command.arg("--release");
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

    fn data(&self) -> std::path::PathBuf {
        self.place.path().join("data")
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
    let mut rates = Vec::new();
    for &shards in &arguments.shards {
        let rate = rate(arguments, shards, &client).await?;
        tell(arguments, &format!("completions_per_second_{shards}"), rate, "1/s");
        rates.push((shards, rate));
    }
    let at = |wanted: u32| rates.iter().find(|(shards, _)| *shards == wanted).map(|(_, rate)| *rate);
    if let (Some(one), Some(two)) = (at(1), at(2)) {
        tell(arguments, "two_vs_one", two / one, "");
    }
    hops(arguments, &client).await?;
    if !arguments.json {
        let most = rates.iter().map(|(_, rate)| *rate).fold(1.0, f64::max);
        for (shards, rate) in rates {
            println!("{shards:>3} shards | {:<40} {rate:.0} completions/s", "#".repeat((rate / most * 40.0) as usize));
        }
    }
    Ok(())
}

/// Completions a second with so many shards.
async fn rate(arguments: &Arguments, shards: u32, client: &reqwest::Client) -> anyhow::Result<f64> {
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
    let from_ms = now_ms();
    tokio::time::sleep(Duration::from_secs(arguments.seconds)).await;
    let to_ms = now_ms();
    running.stop()?;
    let mut completions = 0;
    for shard in 0..shards {
        completions += count(&shard_directory(&running.data(), shard), from_ms, to_ms).await?;
    }
    Ok(completions as f64 * 1_000.0 / (to_ms - from_ms) as f64)
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
        took.push(begun.elapsed().as_nanos() as u64);
    }
    took.sort_unstable();
    Ok(took[took.len() / 2] as f64 / 1_000.0)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

fn tell(arguments: &Arguments, measure: &str, value: f64, unit: &str) {
    if arguments.json {
        println!("{}", json!({"measure": measure, "value": value, "unit": unit, "floor": null}));
    } else {
        println!("{measure:<32} {value:>12.2} {unit}");
    }
}
