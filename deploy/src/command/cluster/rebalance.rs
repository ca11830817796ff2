//! `slackwater cluster rebalance`: moves threads to another number of cells and shards.
//!
//! In: a cluster's directory, how many cells and shards it should have. Out: the same threads, spread evenly. Always: what is wrong
//! is told before anything is moved; of a cluster that runs, its supervisor moves them, and this command may end meanwhile.

use super::super::Failure;
use super::super::signals::Signals;
use super::look;
use super::tell::{Teller, counted};
use crate::output;
use rustix::process::Signal;
use slackwater::host::directory::{self, Manifest};
use slackwater::host::layout;
use slackwater::host::plan::{LastMove, Phase, Plan, State, running};
use slackwater::host::rebalance::{Moved, give_up, intend, rebalance};
use slackwater::placement::Placement;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often it is looked how far it is.
const LOOK_MS: u64 = 50;

/// How long the cells may take to be ready before their threads are moved.
const READY_MS: u64 = 30_000;

pub(super) async fn run(place: PathBuf, cells: Option<u32>, shards: Option<u32>) -> Result<(), Failure> {
    let Some(manifest) = Manifest::load(&place).map_err(Failure::because)? else {
        return Err(look::nothing(&place));
    };
    let plan: Option<Plan> = directory::read(&directory::plan_file(&place)).map_err(Failure::because)?;
    let to = goal(&manifest, cells, shards)?;
    let shape = format!("{} of {}", counted(to.cells as usize, "cell"), counted(to.shards as usize, "shard"));
    if to == manifest.placement && manifest.moving_to.is_none() {
        output::line(format!("all is as it should be: {shape}"));
        return Ok(());
    }
    let is_running = running(&place).map_err(Failure::because)?.is_some();
    if let Some(plan) = plan.as_ref().filter(|_| is_running) {
        layout::moved(plan, &to).map_err(Failure::because)?;
        ready(&place).await?;
    }
    intend(&place, to).map_err(Failure::because)?;
    // It may have been started a moment ago; or else it will not be before this is done.
    let (moved, pause_ms) = match running(&place).map_err(Failure::because)? {
        Some(state) => match by_supervisor(&place, &state).await? {
            Some(last) => (last.moved, last.pause_ms),
            None => return Ok(()),
        },
        None => (here(&place, plan.as_ref()).await?, None),
    };
    let then = match pause_ms {
        Some(pause_ms) => format!("all gateways were ready again after {pause_ms} ms"),
        None => format!("`slackwater cluster up --directory {}` starts them", place.display()),
    };
    output::line(format!(
        "{} virtual shards have moved; {} threads with {} records were written anew. The cluster has {shape} now; {then}",
        moved.virtual_shards, moved.threads, moved.records,
    ));
    Ok(())
}

/// Where the threads should be.
fn goal(manifest: &Manifest, cells: Option<u32>, shards: Option<u32>) -> Result<Placement, Failure> {
    let goal = manifest.moving_to.as_ref().unwrap_or(&manifest.placement);
    let (cells, shards) = (cells.unwrap_or(goal.cells), shards.unwrap_or(goal.shards));
    if (cells * shards) as usize > manifest.placement.table.len() {
        return Err(Failure::Usage(format!(
            "{cells} cells of {shards} shards are more than the {} virtual shards that they share; give fewer",
            manifest.placement.table.len()
        )));
    }
    Ok(match &manifest.moving_to {
        Some(goal) if (goal.cells, goal.shards) == (cells, shards) => goal.clone(),
        _ => manifest.placement.spread(cells, shards),
    })
}

/// Waits until all cells of a cluster that runs are ready, or its threads are being moved already.
async fn ready(place: &Path) -> Result<(), Failure> {
    for _ in 0..READY_MS / LOOK_MS {
        let state = running(place).map_err(Failure::because)?;
        let may_move = |phase| matches!(phase, Phase::Ready | Phase::Moving);
        if state.is_none_or(|state| state.cells.iter().all(|cell| may_move(cell.phase))) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
    }
    Err(Failure::Failed(
        "not all cells are ready, so nothing was moved; `slackwater cluster status` says why, and then try again"
            .to_owned(),
    ))
}

/// Has the supervisor move the threads, and waits until all cells are ready again. Nothing if this command is told to end first.
async fn by_supervisor(place: &Path, before: &State) -> Result<Option<LastMove>, Failure> {
    let mut signals = Signals::new()?;
    let mut teller = Teller::new(place.to_owned());
    look::signal(before.supervisor, Signal::USR1)?;
    loop {
        let Some(state) = running(place).map_err(Failure::because)? else { return Err(ended(place)) };
        if state.supervisor != before.supervisor {
            return Err(ended(place));
        }
        if state.cells.iter().any(|cell| cell.phase != Phase::Ready) || state.moves > before.moves {
            teller.tell(&state);
        }
        let is_ready = state.cells.iter().all(|cell| cell.phase == Phase::Ready);
        if let Some(last) = state.last_move.filter(|_| is_ready && state.moves > before.moves) {
            return match last.error {
                None => Ok(Some(last)),
                Some(why) => Err(Failure::Failed(format!("nothing was moved, and the cluster runs as before: {why}"))),
            };
        }
        tokio::select! {
            () = signals.next() => {
                output::line(format!(
                    "the move goes on without this command; `slackwater cluster status --directory {}` says how far it is",
                    place.display()
                ));
                return Ok(None);
            }
            () = tokio::time::sleep(Duration::from_millis(LOOK_MS)) => {}
        }
    }
}

/// What is to be done when the supervisor has ended meanwhile.
fn ended(place: &Path) -> Failure {
    let directory = place.display();
    Failure::Failed(match Manifest::load(place) {
        Ok(Some(manifest)) if manifest.moving_to.is_none() => format!(
            "the supervisor has ended; the threads are where they should be, and `slackwater cluster up --directory {directory}` starts the cluster"
        ),
        _ => format!(
            "the supervisor has ended, and the move was broken off; nothing is lost, and `slackwater cluster rebalance --directory {directory}` goes on with it"
        ),
    })
}

/// Moves the threads of a cluster that does not run.
async fn here(place: &Path, plan: Option<&Plan>) -> Result<Moved, Failure> {
    let machines = plan.map(|plan| &plan.machines[..]).unwrap_or_default();
    rebalance(place, machines).await.map_err(|error| match give_up(place) {
        Ok(true) => Failure::Failed(format!("nothing was moved: {error}")),
        _ => Failure::Failed(format!(
            "{error}\nnothing is lost; `slackwater cluster rebalance --directory {}` goes on when this is mended",
            place.display()
        )),
    })
}
