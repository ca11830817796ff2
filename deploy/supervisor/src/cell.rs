//! A cell, as its supervisor keeps it: started, watched, and started anew when one of its processes ends.
//!
//! In: a plan, the ends of processes. Out: a cell that takes inputs, and what is said of it. Always: Hydro's channels are
//! fail-stop, so a cell stops and starts as one, on the durable state of its shards; nothing of another cell is touched.

use crate::Topology;
use crate::board::Board;
use crate::process::End;
use crate::remote;
use crate::wiring::{self, Life, Part};
use slackwater::host::directory::Manifest;
use slackwater::host::plan::{Phase, Plan, ProcessState};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// How long processes have to end in order.
const FAREWELL: Duration = Duration::from_secs(5);

/// How long the gateway may take to listen after its cell is joined.
const LISTEN_MAX: Duration = Duration::from_secs(30);

/// A life shorter than this is a failed start, when it was not ended from outside.
const SHORT_LIFE: Duration = Duration::from_secs(5);

/// The pauses after failed starts double from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Runs a cell until it is told to stop. `turn` is held by the one that compiles. If it is the cluster's first start, a cell that
/// cannot be started is an error; later it is tried again, because the others have their work.
pub(crate) async fn run(
    plan: &Plan,
    cell: usize,
    topology: &Topology,
    board: &Board,
    stop: &CancellationToken,
    turn: &Mutex<()>,
    is_first: bool,
) -> anyhow::Result<()> {
    let first = async {
        let mut pause = Duration::ZERO;
        loop {
            match first(plan, cell, topology, board, turn).await {
                Err(error) if !is_first => {
                    remote::forget();
                    failing(board, cell, &error, &mut pause).await;
                }
                started => return started,
            }
        }
    };
    let (mut life, parts) = tokio::select! {
        started = first => started?,
        () = stop.cancelled() => return Ok(()),
    };
    board.set(cell, |state| state.phase = Phase::Ready);
    eprintln!("slackwater: cell {cell} is ready");

    let mut pause = Duration::ZERO;
    loop {
        let born = Instant::now();
        let end = tokio::select! {
            end = life.ends.recv() => end,
            () = stop.cancelled() => {
                wiring::end_all(&life.processes, FAREWELL).await;
                return Ok(());
            }
        };
        let ended = Instant::now();
        let why = end.as_ref().map_or_else(|| "its processes have ended".to_owned(), words);
        eprintln!("slackwater: cell {cell}: {why}; it is started anew");
        board.set(cell, |state| {
            state.phase = Phase::Starting;
            state.why = Some(why);
            state.restarts += 1;
        });
        wiring::end_all(&life.processes, Duration::ZERO).await;
        let failed = end.is_some_and(|end| end.status.signal().is_none()) && born.elapsed() < SHORT_LIFE;
        pause = if failed { (pause * 2).clamp(PAUSE_MIN, PAUSE_MAX) } else { Duration::ZERO };
        life = tokio::select! {
            life = again(plan, cell, board, &parts, pause) => life,
            () = stop.cancelled() => return Ok(()),
        };
        let restart_ms = ended.elapsed().as_millis() as u64;
        eprintln!("slackwater: cell {cell} is ready again after {restart_ms} ms");
        board.set(cell, |state| {
            state.phase = Phase::Ready;
            state.restart_ms = Some(restart_ms);
        });
    }
}

/// Starts the cell through hydro_deploy.
async fn first(
    plan: &Plan,
    cell: usize,
    topology: &Topology,
    board: &Board,
    turn: &Mutex<()>,
) -> anyhow::Result<(Life, Vec<Part>)> {
    let life = {
        let _mine = turn.lock().await;
        let known = Manifest::load(&plan.directory)?.map(|manifest| manifest.known).unwrap_or_default();
        wiring::wire(plan, cell, topology, &known).await?
    };
    let parts = wiring::learn(&life)?;
    let life = listening(plan, cell, board, life).await?;
    board.know(plan, wiring::shards(plan, cell))?;
    Ok((life, parts))
}

/// Says that the cell cannot be started, and waits before this is tried again.
async fn failing(board: &Board, cell: usize, error: &anyhow::Error, pause: &mut Duration) {
    eprintln!("slackwater: cell {cell} cannot be started: {error:#}");
    *pause = (*pause * 2).clamp(PAUSE_MIN, PAUSE_MAX);
    board.set(cell, |state| {
        state.phase = Phase::Failing;
        state.why = Some(format!("{error:#}"));
    });
    tokio::time::sleep(*pause).await;
}

/// Starts the cell anew, however often that takes.
async fn again(plan: &Plan, cell: usize, board: &Board, parts: &[Part], mut pause: Duration) -> Life {
    tokio::time::sleep(pause).await;
    loop {
        let started = async { listening(plan, cell, board, wiring::wire_again(parts).await?).await };
        match started.await {
            Ok(life) => return life,
            Err(error) => failing(board, cell, &error, &mut pause).await,
        }
    }
}

/// Shows the processes of a cell that is joined, and waits until it takes inputs; ends them all if it does not.
async fn listening(plan: &Plan, cell: usize, board: &Board, mut life: Life) -> anyhow::Result<Life> {
    show(board, cell, &life);
    match listens(plan.cells[cell].reached_at, &mut life).await {
        Ok(()) => Ok(life),
        Err(error) => {
            wiring::end_all(&life.processes, Duration::ZERO).await;
            Err(error)
        }
    }
}

/// Waits until the gateway listens.
async fn listens(gateway: SocketAddr, life: &mut Life) -> anyhow::Result<()> {
    let begun = Instant::now();
    while begun.elapsed() < LISTEN_MAX {
        if let Ok(end) = life.ends.try_recv() {
            anyhow::bail!("{}", words(&end));
        }
        if tokio::net::TcpStream::connect(gateway).await.is_ok() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    anyhow::bail!("the gateway does not listen on {gateway}")
}

fn words(end: &End) -> String {
    format!("{} has ended ({})", end.name, end.status)
}

fn show(board: &Board, cell: usize, life: &Life) {
    let processes = life.processes.iter().map(|process| ProcessState {
        name: process.launch.name.clone(),
        machine: process.launch.machine.name.clone(),
        process: process.id,
    });
    let processes: Vec<_> = processes.collect();
    board.set(cell, |state| {
        state.phase = Phase::Starting;
        state.processes = processes;
    });
}
