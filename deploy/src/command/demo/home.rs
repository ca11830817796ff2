//! Where the story's agent lives: in a runtime of one process, or at a shard of a cluster.
//!
//! In: a directory, the tool server. Out: something that takes messages, is killed, and is there again. Always: at one
//! address from the beginning to the end; what is killed is what has the agent, and it is killed as a crash would do it.

use super::look::{check, children_of, journal_bytes, resident_bytes, text, within};
use super::process::{CLUSTER, Process};
use super::timeline::Timeline;
use super::tools::Tools;
use crate::command::Failure;
use crate::command::client::Client;
use serde_json::{Value, json};
use slackwater::host::directory::shard_directory;
use slackwater::host::plan::{CellState, Phase, running};
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use slackwater_core::id::ThreadId;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a runtime of one process stays dead at least.
const DEAD_MS: u64 = 2_000;

/// Where a cluster's gateway may listen: none of the ports that the system gives to outgoing connections, because
/// compiling may take minutes before it listens.
const PORTS: std::ops::Range<u16> = 17_070..18_070;

/// Where the agent lives.
pub(super) enum Home {
    /// In a runtime of one process.
    Alone { process: Process, address: String, url: String },
    /// At one of the shards of a cluster.
    Cluster(Cluster),
}

/// A cluster of one cell. It is ended in order when this is dropped, because its processes are not children of the demo.
pub(super) struct Cluster {
    up: Process,
    shards: u32,
    url: String,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.up.end();
    }
}

impl Home {
    /// Starts a runtime, or a cluster with so many shards.
    pub(super) async fn start(
        time: Timeline,
        directory: &Path,
        tools: &Tools,
        shards: Option<u32>,
    ) -> Result<Self, Failure> {
        let Some(shards) = shards else {
            let (process, address, url) = start_runtime(directory, &tools.url, "127.0.0.1:0").await?;
            time.tell("runtime", format_args!("ready: process {}, {url}", process.id()));
            return Ok(Self::Alone { process, address, url });
        };
        let cluster = Cluster::start(time, directory, &tools.url, shards).await?;
        let processes: Vec<String> =
            cell(directory)?.processes.iter().map(|one| format!("{} is process {}", one.name, one.process)).collect();
        time.tell("cluster", format_args!("ready: {}; {}", processes.join(", "), cluster.url));
        Ok(Self::Cluster(cluster))
    }

    /// Where it takes messages.
    pub(super) fn url(&self) -> &str {
        match self {
            Self::Alone { url, .. } => url,
            Self::Cluster(cluster) => &cluster.url,
        }
    }

    /// Looks what an agent costs that waits.
    pub(super) fn see_rest(&self, time: Timeline, directory: &Path, thread: ThreadId) -> Result<(), Failure> {
        let bytes = journal_bytes(&self.journal(directory, thread))?;
        let (whole, processes, no_more) = match self {
            Self::Alone { process, .. } => {
                let children = children_of(process.id())?;
                check(children == 0, "the runtime has processes of its own", &json!(children))?;
                ("runtime", vec![process.id()], ", and no process")
            }
            Self::Cluster(_) => ("cluster", cell(directory)?.processes.iter().map(|one| one.process).collect(), ""),
        };
        let resident = processes.into_iter().map(resident_bytes).sum::<u64>() as f64 / (1 << 20) as f64;
        time.seen(format_args!("awake threads: 0. The agent is {bytes} bytes on disk and an index entry{no_more};"));
        time.seen(format_args!("the whole {whole} has {resident:.1} MiB resident"));
        Ok(())
    }

    /// Kills what has the agent, in the middle of the build, and returns when it is there again.
    pub(super) async fn strike(
        self,
        time: Timeline,
        directory: &Path,
        thread: ThreadId,
        client: &Client,
        tools: &mut Tools,
    ) -> Result<Self, Failure> {
        match self {
            Self::Alone { process, address, url: _ } => {
                time.blow("kill -9", format_args!("of process {}: the runtime is gone", process.id()));
                process.kill().await?;
                let killed = tokio::time::Instant::now();
                let gone = client.get("/health").await.err().map(|error| error.to_string()).unwrap_or_default();
                check(!gone.is_empty(), "something still answers", &Value::Null)?;
                time.seen(format_args!("nobody answers at {address}"));
                tools.next("built").await?;
                tools.next("undelivered").await?;
                tokio::time::sleep_until(killed + Duration::from_millis(DEAD_MS)).await;
                let (process, address, url) = start_runtime(directory, &tools.url, &address).await?;
                let id = process.id();
                time.tell("runtime", format_args!("started again: process {id}, the same address and journal"));
                Ok(Self::Alone { process, address, url })
            }
            Self::Cluster(cluster) => {
                let name = format!("shard {}", shard_of(thread, cluster.shards));
                let before = cell(directory)?;
                let (process, id) = process_of(&before, &name)?;
                time.blow("kill -9", format_args!("of process {process}: {name}, which has the agent, is gone"));
                rustix::process::kill_process(id, rustix::process::Signal::KILL).map_err(Failure::because)?;
                let after = within("the cell is started anew", started_anew(directory, before.restarts)).await??;
                let (again, _) = process_of(&after, &name)?;
                let why = after.why.unwrap_or_default();
                check(again != process, "the shard was not killed", &json!(why))?;
                check(why.starts_with(&name), "another process has ended", &json!(why))?;
                let took_ms = after.restart_ms.unwrap_or_default();
                time.seen(format_args!("the supervisor: {why}; its cell was ready again after {took_ms} ms"));
                time.tell("cluster", format_args!("{name} is process {again} now, the same address and journal"));
                Ok(Self::Cluster(cluster))
            }
        }
    }

    /// Asks it to end, and waits until all of it has.
    pub(super) async fn end(self, time: Timeline, directory: &Path) -> Result<(), Failure> {
        match self {
            Self::Alone { mut process, .. } => {
                let took_ms = process.terminate().await?;
                time.tell("runtime", format_args!("SIGTERM: stopped cleanly in {took_ms} ms"));
            }
            Self::Cluster(mut cluster) => {
                let processes = cell(directory)?.processes;
                let took_ms = cluster.up.terminate().await?;
                time.tell("cluster", format_args!("SIGTERM: stopped cleanly in {took_ms} ms"));
                let left = processes.iter().filter(|one| Path::new(&format!("/proc/{}", one.process)).exists()).count();
                check(left == 0, "processes of the cluster are left", &json!(left))?;
            }
        }
        Ok(())
    }

    /// Where the agent's journal is.
    pub(super) fn journal(&self, directory: &Path, thread: ThreadId) -> PathBuf {
        let data = directory.join("data");
        match self {
            Self::Alone { .. } => data,
            Self::Cluster(cluster) => shard_directory(&data, shard_of(thread, cluster.shards)),
        }
    }
}

async fn start_runtime(directory: &Path, tools: &str, listen: &str) -> Result<(Process, String, String), Failure> {
    let arguments = ["serve", "--json", "--end-with-parent", "--directory", "data", "--script", "script.toml"];
    let arguments: Vec<&str> = arguments.into_iter().chain(["--tool", tools, "--listen", listen]).collect();
    let (process, ready) = Process::start("runtime", &arguments, directory).await?;
    check(ready["troubles"].as_array().is_some_and(Vec::is_empty), "the runtime does not find the tools", &ready)?;
    Ok((process, text(&ready, "address"), text(&ready, "url")))
}

impl Cluster {
    async fn start(time: Timeline, directory: &Path, tools: &str, shards: u32) -> Result<Self, Failure> {
        let is_free = |port: &u16| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok();
        let port = PORTS.into_iter().find(is_free);
        let port = port.ok_or_else(|| Failure::Failed(format!("none of the ports {PORTS:?} is free")))?;
        let (count, listen) = (shards.to_string(), format!("127.0.0.1:{port}"));
        let arguments =
            ["cluster", "up", "--end-with-parent", "--directory", "data", "--cells", "1", "--shards", &count];
        let more = ["--script", "script.toml", "--tool", tools, "--listen", &listen];
        let arguments: Vec<&str> = arguments.into_iter().chain(more).collect();
        let (mut up, first) = Process::start(CLUSTER, &arguments, directory).await?;
        time.aside("  cluster", first.as_str().unwrap_or_default());
        let mut lines = up.take_lines();
        let mut cluster = Self { up, shards, url: String::new() };
        // Compiling takes as long as it takes; whoever waits sees it, and may interrupt it.
        while let Some(line) = lines.next().await {
            let line = line.as_str().unwrap_or_default();
            if let Some(url) = line.strip_prefix("ready: ") {
                cluster.url = url.to_owned();
                // What it says of restarts is read from its state.
                tokio::spawn(async move { while lines.next().await.is_some() {} });
                return Ok(cluster);
            }
            time.aside("  cluster", line);
        }
        Err(Failure::Failed(format!("the cluster does not start; it said: {}", cluster.up.log())))
    }
}

/// What the supervisor says of the one cell.
fn cell(directory: &Path) -> Result<CellState, Failure> {
    let state = running(&directory.join("data")).map_err(Failure::because)?;
    let cell = state.and_then(|state| state.cells.into_iter().next());
    cell.ok_or_else(|| Failure::Failed("the demo has failed: the cluster has no supervisor".to_owned()))
}

async fn started_anew(directory: &Path, restarts: u64) -> Result<CellState, Failure> {
    loop {
        let cell = cell(directory)?;
        if cell.restarts > restarts && cell.phase == Phase::Ready {
            return Ok(cell);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn process_of(cell: &CellState, name: &str) -> Result<(u32, rustix::process::Pid), Failure> {
    let process = cell.processes.iter().find(|one| one.name == name).map_or(0, |one| one.process);
    let id = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw);
    let id = id.ok_or_else(|| Failure::Failed(format!("the demo has failed: the cluster has no {name}")))?;
    Ok((process, id))
}

fn shard_of(thread: ThreadId, shards: u32) -> u32 {
    Placement::even(1, shards, VIRTUAL_SHARDS).shard_of(thread)
}
