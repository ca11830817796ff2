//! The wiring of a cell: first by hydro_deploy, and then again from what it said.
//!
//! In: a plan, or the handshake of the cell's first life. Out: processes that are joined to each other. Always: a location is
//! compiled once. In every later life the same programs are given the same words, with the new addresses in place of the old ones:
//! that takes as long as the programs take to start, and needs neither cargo nor the flow.

use crate::Topology;
use crate::machine::{Crew, Placed};
use crate::process::{End, Launch, Process};
use crate::remote;
use anyhow::Context as _;
use futures::future::try_join_all;
use hydro_deploy::Deployment;
use hydro_lang::deploy::TrybuildHost;
use hydro_lang::prelude::*;
use serde_json::Value;
use slackwater::host::cluster::{Gateway, Shard, Toolhost};
use slackwater::host::plan::Plan;
use slackwater::host::processor::PROCESSOR_VARIABLE;
use slackwater::host::sidecar::{CELL_VARIABLE, DIRECTORY_VARIABLE, KNOWN_VARIABLE, SHARD_VARIABLE, TOOLHOST_VARIABLE};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;

/// How long a process may take to answer a line of the handshake.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// A cell that runs.
pub(crate) struct Life {
    pub(crate) processes: Vec<Arc<Process>>,
    /// The ends of its processes, as they come.
    pub(crate) ends: mpsc::UnboundedReceiver<End>,
}

/// How a process of the cell is started, and what was said then.
pub(crate) struct Part {
    launch: Launch,
    bind: String,
    ready: Value,
    start: Value,
}

/// What the shards of a cell are called, counted over all cells.
pub(crate) fn shards(plan: &Plan, cell: usize) -> std::ops::Range<u32> {
    let before: usize = plan.cells[..cell].iter().map(|cell| cell.shards_on.len()).sum();
    before as u32..(before + plan.cells[cell].shards_on.len()) as u32
}

/// The number of a shard among those of its machine.
fn processor(plan: &Plan, shard: u32) -> usize {
    let machines: Vec<usize> = plan.cells.iter().flat_map(|cell| cell.shards_on.iter().copied()).collect();
    machines[..shard as usize].iter().filter(|machine| **machine == machines[shard as usize]).count()
}

/// Compiles the locations of a cell where that is needed, and joins them.
pub(crate) async fn wire(plan: &Plan, cell: usize, topology: &Topology, known: &[u32]) -> anyhow::Result<Life> {
    let (ends, ended) = mpsc::unbounded_channel();
    let crew = Arc::new(Crew { processes: Mutex::default(), ends });
    let mut deployment = Deployment::new();
    let machines: Vec<Arc<Placed>> = plan
        .machines
        .iter()
        .map(|machine| deployment.add_host(|id| Placed { id, machine: machine.clone(), crew: crew.clone() }))
        .collect();
    let place = |machine: usize, name: String| {
        let placed = machines[machine].clone();
        let directory = placed.machine.directory.display().to_string();
        let host = TrybuildHost::new(placed).display_name(name);
        let host = host.env(DIRECTORY_VARIABLE, directory).env(CELL_VARIABLE, cell.to_string());
        // Any flag at all switches to linking into one file, and only that works with this profile (tried).
        match plan.release {
            true => host.profile("release").rustflags("-C opt-level=3").features(["jemalloc"]),
            false => host,
        }
    };
    let mut flow = FlowBuilder::new();
    let (gateway, cluster, toolhosts) =
        (flow.process::<Gateway>(), flow.cluster::<Shard>(), flow.cluster::<Toolhost>());
    topology(&gateway, &cluster, &toolhosts);
    let members: Vec<_> = shards(plan, cell)
        .zip(&plan.cells[cell].shards_on)
        .map(|(shard, machine)| {
            let host = place(*machine, format!("shard {shard}")).env(SHARD_VARIABLE, shard.to_string());
            let host = if plan.pin { host.env(PROCESSOR_VARIABLE, processor(plan, shard).to_string()) } else { host };
            if known.contains(&shard) { host.env(KNOWN_VARIABLE, "1") } else { host }
        })
        .collect();
    let toolhost_members: Vec<_> = (0_u32..)
        .zip(&plan.cells[cell].toolhosts_on)
        .map(|(number, machine)| {
            place(*machine, format!("toolhost {cell}.{number}")).env(TOOLHOST_VARIABLE, number.to_string())
        })
        .collect();
    let gateway_host = place(plan.cells[cell].gateway_on, format!("gateway {cell}"));
    let _nodes = flow
        .with_process(&gateway, gateway_host)
        .with_cluster(&cluster, members)
        .with_cluster(&toolhosts, toolhost_members)
        .deploy(&mut deployment);

    let others = plan.machines.iter().filter_map(|machine| Some((machine, machine.ssh.as_ref()?)));
    try_join_all(others.map(|(machine, ssh)| remote::tell(ssh, &plan.directory, machine, cell as u32))).await?;
    let started = async {
        deployment.deploy().await?;
        deployment.start().await
    };
    let outcome = started.await;
    let processes = std::mem::take(&mut *crew.processes.lock().unwrap_or_else(PoisonError::into_inner));
    if let Err(error) = outcome {
        end_all(&processes, Duration::ZERO).await;
        return Err(error);
    }
    Ok(Life { processes, ends: ended })
}

/// What was said when a cell was wired.
pub(crate) fn learn(life: &Life) -> anyhow::Result<Vec<Part>> {
    let lines = |lines: &Mutex<Vec<String>>| lines.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let part = |process: &Arc<Process>| {
        let (told, said) = (lines(&process.told), lines(&process.said));
        let [bind, start] = &told[..] else { anyhow::bail!("the handshake had {} lines", told.len()) };
        let start = start.strip_prefix("start: ").context("the handshake had no start")?;
        let ready = said.first().and_then(|line| line.strip_prefix("ready: ")).context("the handshake had no ready")?;
        let (ready, start) = (serde_json::from_str(ready)?, serde_json::from_str(start)?);
        Ok(Part { launch: process.launch.clone(), bind: bind.clone(), ready, start })
    };
    life.processes.iter().map(part).collect()
}

/// Starts the cell anew, from what was compiled.
pub(crate) async fn wire_again(parts: &[Part]) -> anyhow::Result<Life> {
    let (ends, ended) = mpsc::unbounded_channel();
    let mut processes = Vec::with_capacity(parts.len());
    for part in parts {
        let mut launch = part.launch.clone();
        // It has run before, so its state must be there.
        launch.environment.insert(KNOWN_VARIABLE.to_owned(), "1".to_owned());
        match Process::start(launch, ends.clone()) {
            Ok(process) => processes.push(process),
            Err(error) => {
                end_all(&processes, Duration::ZERO).await;
                return Err(error);
            }
        }
    }
    match join(parts, &processes).await {
        Ok(()) => Ok(Life { processes, ends: ended }),
        Err(error) => {
            end_all(&processes, Duration::ZERO).await;
            Err(error)
        }
    }
}

async fn join(parts: &[Part], processes: &[Arc<Process>]) -> anyhow::Result<()> {
    let pairs = || parts.iter().zip(processes);
    let ready = try_join_all(pairs().map(|(part, process)| process.ask(part.bind.clone(), ANSWER_MAX))).await?;
    let mut moved = HashMap::new();
    for (part, line) in parts.iter().zip(&ready) {
        let line = line.strip_prefix("ready: ").with_context(|| format!("expected ready, and was told {line:?}"))?;
        compare(&part.ready, &serde_json::from_str(line)?, &mut moved);
    }
    let starts = pairs().map(|(part, process)| {
        let start = format!("start: {}\n", replaced(&part.start, &moved));
        process.ask(start, ANSWER_MAX)
    });
    for line in try_join_all(starts).await? {
        anyhow::ensure!(line.starts_with("ack start"), "expected an acknowledgement, and was told {line:?}");
    }
    Ok(())
}

/// Finds which address each old one has become: both have the same form, and differ in their texts.
fn compare(old: &Value, new: &Value, moved: &mut HashMap<String, String>) {
    match (old, new) {
        (Value::String(old), Value::String(new)) => {
            moved.insert(old.clone(), new.clone());
        }
        (Value::Array(old), Value::Array(new)) => old.iter().zip(new).for_each(|(old, new)| compare(old, new, moved)),
        (Value::Object(old), Value::Object(new)) => {
            for (name, old) in old {
                if let Some(new) = new.get(name) {
                    compare(old, new, moved);
                }
            }
        }
        _ => {}
    }
}

/// The same with the new addresses.
fn replaced(value: &Value, moved: &HashMap<String, String>) -> Value {
    match value {
        Value::String(text) => Value::String(moved.get(text).unwrap_or(text).clone()),
        Value::Array(items) => Value::Array(items.iter().map(|item| replaced(item, moved)).collect()),
        Value::Object(fields) => {
            Value::Object(fields.iter().map(|(name, value)| (name.clone(), replaced(value, moved))).collect())
        }
        other => other.clone(),
    }
}

/// Ends processes and waits until they have ended: in order within this time, at once without any.
pub(crate) async fn end_all(processes: &[Arc<Process>], patience: Duration) {
    use rustix::process::Signal;
    if patience.is_zero() {
        processes.iter().for_each(|process| process.signal(Signal::KILL));
    }
    futures::future::join_all(processes.iter().map(|process| process.stop(patience))).await;
}
