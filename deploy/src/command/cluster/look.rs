//! `slackwater cluster status`, `logs`, `down` and `restart`: what can be asked of a running cluster.
//!
//! In: a cluster's directory. Out: what its supervisor says, or what is done. Always: only processes of the supervisor that holds
//! the directory's lock are touched; the state of the shards is not.

use super::super::Failure;
use super::super::signals::Signals;
use crate::output;
use rustix::process::{Pid, Signal, kill_process};
use slackwater::host::directory::{Manifest, log_file, plan_file, read};
use slackwater::host::plan::{LastMove, Machine, Phase, Plan, State, running};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOOK_MS: u64 = 100;

/// How long the processes may take to end, or a cell to come back.
const PATIENCE_MS: u64 = 30_000;

pub(super) async fn status(directory: PathBuf) -> Result<(), Failure> {
    let Some(manifest) = Manifest::load(&directory).map_err(Failure::because)? else {
        return Err(nothing(&directory));
    };
    let Some(state) = running(&directory).map_err(Failure::because)? else {
        output::line(format!("the cluster in {} does not run", directory.display()));
        return Ok(());
    };
    output::line(format!("cluster {}, supervised by process {}", manifest.cluster, state.supervisor));
    for (number, cell) in state.cells.iter().enumerate() {
        let phase = match cell.phase {
            Phase::Compiling => "is being compiled",
            Phase::Starting => "starts",
            Phase::Ready => "ready",
            Phase::Failing => "cannot be started, and this is tried again",
            Phase::Stopped => "has stopped",
            Phase::Moving => "its threads are being moved",
        };
        let last = match (&cell.why, cell.restart_ms) {
            (Some(why), Some(restart_ms)) => format!(", last after {restart_ms} ms because {why}"),
            (Some(why), None) => format!(": {why}"),
            (None, _) => String::new(),
        };
        output::line(format!("cell {number}: {phase}; started anew {} times{last}", cell.restarts));
        for process in &cell.processes {
            output::line(format!("  {}: process {} on {}", process.name, process.process, process.machine));
        }
    }
    for machine in machines(&directory)?.iter().filter(|machine| machine.ssh.is_some()) {
        let from_outside = machine.public_address.iter().map(|address| format!("{address}, and to its neighbours "));
        output::line(format!("{} is {}{}", machine.name, from_outside.collect::<String>(), machine.address));
    }
    match state.last_move {
        Some(LastMove { error: Some(why), .. }) => output::line(format!("its threads could not be moved: {why}")),
        Some(LastMove { moved, pause_ms: Some(pause_ms), .. }) => output::line(format!(
            "its threads were moved: {} virtual shards, {} threads written anew, ready again after {pause_ms} ms",
            moved.virtual_shards, moved.threads
        )),
        _ => {}
    }
    Ok(())
}

/// The machines of the last start.
fn machines(directory: &Path) -> Result<Vec<Machine>, Failure> {
    let plan: Option<Plan> = read(&plan_file(directory)).map_err(Failure::because)?;
    Ok(plan.map(|plan| plan.machines).unwrap_or_default())
}

/// Says that all processes have ended, and what has not.
pub(super) fn tell_end(directory: &Path, machines: &[Machine]) {
    output::line(format!("the cluster has stopped; the shards' state is in {}", directory.display()));
    let made = machines.iter().filter(|machine| machine.public_address.is_some()).count();
    if made > 0 {
        output::line(format!(
            "its {made} machines of a cloud go on, and cost; `slackwater cluster destroy --directory {}` ends them",
            directory.display()
        ));
    }
}

pub(super) async fn logs(directory: PathBuf, lines: usize, follow: bool) -> Result<(), Failure> {
    let path = log_file(&directory);
    let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    let mut file = std::fs::File::open(&path).map_err(named)?;
    let mut text = Vec::new();
    file.read_to_end(&mut text).map_err(named)?;
    let said = String::from_utf8_lossy(&text).into_owned();
    let all: Vec<&str> = said.lines().collect();
    all[all.len().saturating_sub(lines)..].iter().for_each(|line| output::line(*line));
    if !follow {
        return Ok(());
    }
    let mut signals = Signals::new()?;
    loop {
        tokio::select! {
            () = signals.next() => return Ok(()),
            () = tokio::time::sleep(Duration::from_millis(LOOK_MS)) => {}
        }
        // A start begins the file anew.
        if file.metadata().map_err(named)?.len() < file.stream_position().map_err(named)? {
            file.seek(SeekFrom::Start(0)).map_err(named)?;
        }
        text.clear();
        file.read_to_end(&mut text).map_err(named)?;
        output::text(String::from_utf8_lossy(&text));
    }
}

pub(super) async fn down(directory: PathBuf) -> Result<(), Failure> {
    let state = state(&directory)?;
    signal(state.supervisor, Signal::TERM)?;
    for _ in 0..PATIENCE_MS / LOOK_MS {
        if running(&directory).map_err(Failure::because)?.is_none() {
            tell_end(&directory, &machines(&directory)?);
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
    Err(Failure::Failed(format!(
        "the supervisor (process {}) has not ended within {} s; its log is {}",
        state.supervisor,
        PATIENCE_MS / 1_000,
        log_file(&directory).display()
    )))
}

pub(super) async fn restart(directory: PathBuf, shard: u32) -> Result<(), Failure> {
    let before = state(&directory)?;
    let name = format!("shard {shard}");
    let found = before.cells.iter().enumerate().find_map(|(number, cell)| {
        let process = cell.processes.iter().find(|process| process.name == name)?;
        Some((number, cell.restarts, process.process))
    });
    let Some((number, restarts, process)) = found else {
        let processes = before.cells.iter().flat_map(|cell| &cell.processes);
        let count = processes.filter(|process| process.name.starts_with("shard ")).count();
        return Err(Failure::Usage(format!("there is no shard {shard}: there are {count}, counted from 0")));
    };
    signal(process, Signal::TERM)?;
    for _ in 0..PATIENCE_MS / LOOK_MS {
        let now = state(&directory)?;
        let cell = now.cells.get(number).filter(|cell| cell.restarts > restarts && cell.phase == Phase::Ready);
        if let Some(cell) = cell {
            let took_ms = cell.restart_ms.unwrap_or_default();
            output::line(format!("cell {number} with {name} is ready again after {took_ms} ms"));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
    Err(Failure::Failed(format!(
        "cell {number} is not ready again after {} s; `slackwater cluster status` says why",
        PATIENCE_MS / 1_000
    )))
}

/// What runs in a directory.
fn state(directory: &Path) -> Result<State, Failure> {
    let state = running(directory).map_err(Failure::because)?;
    state.ok_or_else(|| match directory.join("cluster.json").exists() {
        true => Failure::Failed(format!("the cluster in {} does not run", directory.display())),
        false => nothing(directory),
    })
}

pub(super) fn nothing(directory: &Path) -> Failure {
    Failure::Failed(format!("there is no cluster in {}; name its directory with --directory", directory.display()))
}

pub(super) fn signal(process: u32, signal: Signal) -> Result<(), Failure> {
    let id = Pid::from_raw(process as i32).ok_or_else(|| Failure::Failed("there is no process".to_owned()))?;
    kill_process(id, signal).map_err(|error| Failure::Failed(format!("process {process} cannot be told: {error}")))
}
