//! The supervisor of a cluster: it compiles the locations once with hydro_deploy, starts the cells and keeps them running.
//!
//! In: a plan. Out: what it does, in the cluster's `run/state.json`. Always: a cell whose process ends is started anew from what
//! was compiled, and no other cell notices; SIGTERM or SIGINT ends all processes.
//!
//! `slackwater cluster up` starts it through cargo, because each location is compiled when it is placed:
//! `cargo run -p slackwater --example cluster -- PLAN`.

#[path = "cluster/board.rs"]
mod board;
#[path = "cluster/cell.rs"]
mod cell;
#[path = "cluster/machine.rs"]
mod machine;
#[path = "cluster/process.rs"]
mod process;
#[path = "cluster/remote.rs"]
mod remote;
#[path = "cluster/wiring.rs"]
mod wiring;

use anyhow::Context as _;
use board::Board;
use slackwater::host::directory;
use slackwater::host::plan::{Phase, Plan};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

fn main() -> anyhow::Result<()> {
    let file = std::env::args().nth(1).context("give the plan's file")?;
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
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let outcome = runtime.block_on(cell::run(&plan, cell, &board, &stop, &turn));
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
