//! The supervisor of a cluster: it compiles the locations once with hydro_deploy, starts the cells and keeps them running.
//!
//! In: a plan, and what wires the locations of a cell. Out: what it does, in the cluster's `run/state.json`. Always: a cell whose
//! process ends is started anew from what was compiled, and no other cell notices; SIGTERM or SIGINT ends all processes; at SIGUSR1
//! the cells end, their threads are moved to where the manifest says, and the cells are started again.
//!
//! Each location is compiled from the package whose example calls [`main`], so operators of one's own are in that package.
//! `slackwater cluster up` starts the example through cargo: the one named `cluster`, of Slackwater itself or of the package that
//! `--operators` names.

mod board;
mod cell;
mod machine;
mod moving;
mod process;
mod remote;
mod wiring;

use anyhow::Context as _;
use board::Board;
use hydro_lang::prelude::{Cluster, Process};
use slackwater::host::cluster::{Gateway, Shard, Toolhost};
use slackwater::host::directory::{self, Manifest};
use slackwater::host::plan::Plan;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::signal::unix::{Signal, SignalKind, signal};
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

    // Heard before anybody can know of this process: unheard, the signal that asks for a move would end it.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut signals = runtime.block_on(async { Signals::new() })?;
    let manifest = Manifest::load(&plan.directory)?.context("the cluster's manifest is gone")?;
    anyhow::ensure!(
        manifest.moving_to.is_none(),
        "the threads of the cluster are being moved; start it when they have"
    );
    let board = Arc::new(Board::new(&plan));
    let failed = runtime.block_on(supervise(plan, Arc::new(topology), &board, &mut signals));
    drop(lock);
    // Cargo may still be compiling for a cell that will not be: this process leads a group in which it is.
    if rustix::process::getpgrp() == rustix::process::getpid() && !failed {
        let _ = rustix::process::kill_current_process_group(rustix::process::Signal::TERM);
    }
    std::process::exit(i32::from(failed))
}

/// Keeps the cluster running until it is told to stop. Says whether something has failed.
async fn supervise(mut plan: Plan, topology: Arc<Topology>, board: &Arc<Board>, signals: &mut Signals) -> bool {
    let mut is_first = true;
    loop {
        let cells = Cells::start(&plan, &topology, board, is_first);
        is_first = false;
        let wanted = loop {
            let moves = tokio::select! {
                moves = signals.next() => moves,
                () = cells.stop.cancelled() => false,
            };
            if !moves {
                return cells.end();
            }
            let wanted = tokio::select! {
                wanted = moving::asked_for(&plan) => wanted,
                () = signals.stopped() => return cells.end(),
                () = cells.stop.cancelled() => return cells.end(),
            };
            match wanted {
                Ok(Some(wanted)) => break wanted,
                Ok(None) => {}
                Err(error) => moving::refuse(&plan, board, &error),
            }
        };
        board.moving();
        let ended = Instant::now();
        // How they end is of no interest: what they have acknowledged is on disk.
        cells.end();
        eprintln!(
            "slackwater: all cells have ended, so that threads can be moved, after {} ms",
            ended.elapsed().as_millis()
        );
        plan = tokio::select! {
            plan = moving::carry_out(plan.clone(), wanted, board) => plan,
            // As a crash would, this breaks the move off; it goes on when it is asked for again.
            () = signals.stopped() => return false,
        };
        eprintln!("slackwater: the cells are started again after {} ms", ended.elapsed().as_millis());
        board.begin(&plan);
    }
}

/// The cells of a plan, each in a thread of its own.
struct Cells {
    stop: CancellationToken,
    threads: Vec<JoinHandle<anyhow::Result<()>>>,
}

impl Cells {
    fn start(plan: &Plan, topology: &Arc<Topology>, board: &Arc<Board>, is_first: bool) -> Self {
        let (plan, stop) = (Arc::new(plan.clone()), CancellationToken::new());
        let turn = Arc::new(tokio::sync::Mutex::new(()));
        let start = |cell| {
            // A flow under construction stays in its thread, and what happens to one cell is nothing to another.
            let (plan, board, stop, turn) = (plan.clone(), board.clone(), stop.clone(), turn.clone());
            let topology = topology.clone();
            std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                let outcome = runtime.block_on(cell::run(&plan, cell, &*topology, &board, &stop, &turn, is_first));
                if let Err(error) = &outcome {
                    // Without one of its cells at the start there is no cluster.
                    eprintln!("slackwater: cell {cell}: {error:#}");
                    stop.cancel();
                }
                board.ended(cell);
                // A build that goes on must not hold the end up.
                runtime.shutdown_timeout(Duration::from_millis(100));
                outcome
            })
        };
        let threads = (0..plan.cells.len()).map(start).collect();
        Self { stop, threads }
    }

    /// Ends all of them, and says whether one has failed.
    fn end(self) -> bool {
        self.stop.cancel();
        self.threads.into_iter().fold(false, |failed, cell| failed | !matches!(cell.join(), Ok(Ok(()))))
    }
}

/// What this process is told.
struct Signals {
    interrupted: Signal,
    terminated: Signal,
    moves: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            moves: signal(SignalKind::user_defined1())?,
        })
    }

    /// Waits until it is told to stop, or to move threads; says whether to move.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.interrupted.recv() => false,
            _ = self.terminated.recv() => false,
            _ = self.moves.recv() => true,
        }
    }

    /// Waits until it is told to stop.
    async fn stopped(&mut self) {
        while self.next().await {}
    }
}
