//! `slackwater cluster rebalance`: moves threads to another number of cells and shards.
//!
//! In: a cluster's directory, how many cells and shards it should have. Out: the same threads, spread evenly. Always: nothing runs
//! meanwhile; what is wrong is told before anything is moved.

use super::super::Failure;
use super::look;
use crate::output;
use slackwater::host::directory::{self, Manifest};
use slackwater::host::plan::{Plan, running};
use std::path::PathBuf;

pub(super) async fn run(place: PathBuf, cells: Option<u32>, shards: Option<u32>) -> Result<(), Failure> {
    let Some(manifest) = Manifest::load(&place).map_err(Failure::because)? else {
        return Err(look::nothing(&place));
    };
    let plan: Option<Plan> = directory::read(&directory::plan_file(&place)).map_err(Failure::because)?;
    if let Some(host) = plan.iter().flat_map(|plan| &plan.machines).find(|machine| machine.ssh.is_some()) {
        return Err(Failure::Failed(format!(
            "host {} has a part of the threads, and threads are only moved between directories of one machine so far; nothing was moved",
            host.name
        )));
    }
    let goal = manifest.moving_to.as_ref().unwrap_or(&manifest.placement);
    let (cells, shards) = (cells.unwrap_or(goal.cells), shards.unwrap_or(goal.shards));
    if (cells * shards) as usize > manifest.placement.table.len() {
        return Err(Failure::Usage(format!(
            "{cells} cells of {shards} shards are more than the {} virtual shards that they share; give fewer",
            manifest.placement.table.len()
        )));
    }
    let to = match &manifest.moving_to {
        Some(goal) if (goal.cells, goal.shards) == (cells, shards) => goal.clone(),
        _ => manifest.placement.spread(cells, shards),
    };
    if to == manifest.placement && manifest.moving_to.is_none() {
        output::line(format!("all is as it should be: {cells} cells of {shards} shards"));
        return Ok(());
    }
    if running(&place).map_err(Failure::because)?.is_some() {
        look::down(place.clone()).await?;
    }
    let moved = slackwater::host::rebalance::rebalance(&place, manifest, to).await.map_err(Failure::because)?;
    output::line(format!(
        "{} virtual shards have moved; {} threads with {} records were written anew. There are {cells} cells of {shards} shards now; `slackwater cluster up --directory {}` starts them",
        moved.virtual_shards,
        moved.threads,
        moved.records,
        place.display()
    ));
    Ok(())
}
