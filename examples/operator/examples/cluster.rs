//! The house's agents as a cluster on this machine: a gateway and shards with the same operators, placed by hydro_deploy.
//!
//! `cargo run --example cluster -- DIRECTORY ADDRESS SHARDS`. The audit trail of each shard is `notes-N.log` in the directory.
//! Ends with Ctrl-C.

use operator::operators::House;
use slackwater::host::cluster::topology_with;
use slackwater::host::launch::prepare;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(directory), Some(address), Some(shards)) = (arguments.next(), arguments.next(), arguments.next()) else {
        return Err("give a directory, an address and the number of shards".into());
    };
    let shards = shards.parse()?;
    let settings = format!("directory = {directory:?}\n[gateway]\nlisten = {address:?}\n");
    let settings = prepare(directory.as_ref(), shards, &settings)?;
    slackwater::launch_cluster!(settings, shards, |gateway, shards, toolhosts| {
        topology_with(gateway, shards, toolhosts, &House::default());
    })
    .await
}
