//! The supervisor of a cluster whose shards have the house's operators.
//!
//! `slackwater cluster up --operators DIRECTORY-OF-THIS-PACKAGE` starts it. The audit trail of each shard is `notes-N.log` in the
//! cluster's directory.

use operator::operators::House;
use slackwater::host::cluster::topology_with;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    slackwater_supervisor::main(|gateway, shards, toolhosts| {
        topology_with(gateway, shards, toolhosts, &House::default());
    })?;
    Ok(())
}
