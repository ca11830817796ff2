//! The supervisor of a cluster: it compiles the locations once with hydro_deploy, starts the cells and keeps them running.
//!
//! In: a plan, and what wires the locations of a cell. Out: what it does, in the cluster's `run/state.json`. Always: a cell whose
//! process ends is started anew from what was compiled, and no other cell notices; SIGTERM or SIGINT ends all processes.
//!
//! Each location is compiled from the package whose example calls [`main`], so operators of one's own are in that package.
//! `slackwater cluster up` starts the example through cargo: the one named `cluster`, of Slackwater itself or of the package that
//! `--operators` names.

mod board;
mod cell;
mod machine;
mod process;
mod remote;
mod wiring;

use anyhow::Context as _;
use board::Board;
use hydro_lang::prelude::{Cluster, Process};
use slackwater::host::cluster::{Gateway, Shard, Toolhost};
use slackwater::host::directory;
use slackwater::host::plan::{Phase, Plan};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Wires the locations of a cell.
type Topology = dyn for<'a> Fn(&Process<'a, Gateway>, &Cluster<'a, Shard>, &Cluster<'a, Toolhost>) + Send + Sync;

/// Runs the cluster of the plan that the first argument names, until SIGINT or SIGTERM, and ends the program then. The topology
/// wires the locations of a cell: [`slackwater::host::cluster::topology`], or
/// [`slackwater::host::cluster::topology_with`] with operators.
///
/// # Errors
/// When there is no plan, or another supervisor has the cluster.
pub fn main<F>(topology: F) -> anyhow::Result<()>
where
    F: for<'a> Fn(&Process<'a, Gateway>, &Cluster<'a, Shard>, &Cluster<'a, Toolhost>) + Send + Sync + 'static,
{
    let topology: Arc<Topology> = Arc::new(topology);
    let file = std::env::args().nth(1).context("`slackwater cluster up` starts this, and names the plan's file")?;
    let plan: Plan = directory::read(Path::new(&file))?.with_context(|| format!("{file} is not there"))?;
    if plan.attached {
        // What a terminal or a test has started does not outlive it.
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::TERM))?;
    }
    let path = directory::lock_file(&plan.directory);
    let lock = std::fs::File::create(&path).with_context(|| path.display().to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive)
        .with_context(|| format!("another supervisor has {}", path.display()))?;

    let (board, stop) = (Arc::new(Board::new(&plan)), CancellationToken::new());
    let plan = Arc::new(plan);
    let turn = Arc::new(tokio::sync::Mutex::new(()));
    let cells: Vec<_> = (0..plan.cells.len())
        .map(|cell| {
            // A flow under construction stays in its thread, and what happens to one cell is nothing to another.
            let (plan, board, stop, turn) = (plan.clone(), board.clone(), stop.clone(), turn.clone());
            let topology = topology.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let outcome = runtime.block_on(cell::run(&plan, cell, &*topology, &board, &stop, &turn));
                if let Err(error) = &outcome {
                    // Without one of its cells at the start there is no cluster.
                    eprintln!("slackwater: cell {cell}: {error:#}");
                    stop.cancel();
                }
                board.set(cell, |state| state.phase = Phase::Stopped);
                // A build that goes on must not hold the end up.
                runtime.shutdown_timeout(Duration::from_millis(100));
                outcome
            })
        })
        .collect();

    let signals = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    signals.block_on(async {
        let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            _ = interrupted.recv() => {}
            _ = terminated.recv() => {}
            () = stop.cancelled() => {}
        }
        stop.cancel();
        anyhow::Ok(())
    })?;
    let mut failed = false;
    for cell in cells {
        failed |= !matches!(cell.join(), Ok(Ok(())));
    }
    drop(lock);
    // Cargo may still be compiling for a cell that will not be: this process leads a group in which it is.
    if rustix::process::getpgrp() == rustix::process::getpid() && !failed {
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TERM);
    }
    std::process::exit(i32::from(failed))
}
