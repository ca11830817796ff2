//! Moving threads between the shards of a cluster that runs: what the supervisor does between two lives of its cells.
//!
//! In: what `slackwater cluster rebalance` has written down. Out: the plan of the next life. Always: what cannot work is told before
//! a cell is ended, and what can be copied before is; a move that fails before all is copied is given up, and one that fails after
//! that is tried until it is done.

use crate::board::Board;
use anyhow::Context as _;
use slackwater::host::directory::Manifest;
use slackwater::host::layout;
use slackwater::host::plan::Plan;
use slackwater::host::rebalance::{Move, Moved, RebalanceError, give_up, rebalance};
use std::time::Duration;

/// How long it waits before it tries again to put in its place what is copied.
const RETRY: Duration = Duration::from_secs(2);

/// What was asked for.
pub(crate) struct Wanted {
    /// The plan of the cluster when its threads are where they should be.
    next: Plan,
    /// With what could be copied while the cells run.
    on_its_way: Move,
}

/// Makes ready what was asked for, while the cells run; nothing if the threads are where they should be.
pub(crate) async fn asked_for(plan: &Plan) -> anyhow::Result<Option<Wanted>> {
    let manifest = Manifest::load(&plan.directory)?.context("the cluster's manifest is gone")?;
    let Some(to) = &manifest.moving_to else { return Ok(None) };
    let next = layout::moved(plan, to)?;
    layout::check_free(next.cells.iter().skip(plan.cells.len()), &next.machines)?;
    let Some(mut on_its_way) = Move::begin(&plan.directory, &plan.machines).await? else { return Ok(None) };
    on_its_way.ahead().await?;
    Ok(Some(Wanted { next, on_its_way }))
}

/// Leaves the threads where they are, before anything was done.
pub(crate) fn refuse(plan: &Plan, board: &Board, error: &anyhow::Error) {
    eprintln!("slackwater: the threads are not moved: {error:#}");
    if let Err(error) = give_up(&plan.directory) {
        eprintln!("slackwater: {error}");
    }
    board.outcome(Moved::default(), Some(format!("{error:#}")));
}

/// Moves the threads; no cell runs. Says what the cells are now, the new plan or still the old one.
pub(crate) async fn carry_out(plan: Plan, Wanted { next, on_its_way }: Wanted, board: &Board) -> Plan {
    let (mut on_its_way, mut moved) = (Some(on_its_way), None);
    loop {
        let done = async {
            if moved.is_none() {
                moved = Some(match on_its_way.take() {
                    Some(on_its_way) => on_its_way.finish().await?,
                    None => rebalance(&plan.directory, &plan.machines).await?,
                });
            }
            // Broken off here, the next start writes the same from the manifest.
            let manifest = Manifest::load(&plan.directory)?;
            manifest.iter().try_for_each(|manifest| layout::store(&next, manifest))?;
            Ok::<_, RebalanceError>(())
        };
        let error = match done.await {
            Ok(()) => {
                board.outcome(moved.unwrap_or_default(), None);
                return next;
            }
            Err(error) => error.to_string(),
        };
        eprintln!("slackwater: the threads cannot be moved: {error}");
        if moved.is_none() && matches!(give_up(&plan.directory), Ok(true)) {
            board.outcome(Moved::default(), Some(error));
            return plan;
        }
        board.set_all(|cell| cell.why = Some(error.clone()));
        tokio::time::sleep(RETRY).await;
    }
}
