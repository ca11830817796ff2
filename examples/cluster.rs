//! Places a gateway and shards as processes on this machine with hydro_deploy, and stops them when it is told to.
//!
//! `slackwater cluster up` starts it through cargo, because each location is compiled when it is placed:
//! `cargo run -p slackwater --features cluster --example cluster -- SETTINGS SHARDS`.

use hydro_deploy::Deployment;
use hydro_lang::deploy::TrybuildHost;
use hydro_lang::prelude::*;
use slackwater::host::cluster::{Gateway, Shard, topology};
use slackwater::host::sidecar::{SETTINGS_VARIABLE, SHARD_VARIABLE};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(settings), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("give the settings file and the number of shards".into());
    };
    let count: u32 = count.parse()?;

    let mut deployment = Deployment::new();
    let mut flow = FlowBuilder::new();
    let (gateway, shards) = (flow.process::<Gateway>(), flow.cluster::<Shard>());
    topology(&gateway, &shards, count);
    let host = |name: &str| {
        TrybuildHost::new(deployment.Localhost()).env(SETTINGS_VARIABLE, settings.clone()).display_name(name)
    };
    let gateway_host = host("gateway");
    let shard_hosts: Vec<_> =
        (0..count).map(|shard| host(&format!("shard {shard}")).env(SHARD_VARIABLE, shard.to_string())).collect();
    let _nodes = flow.with_process(&gateway, gateway_host).with_cluster(&shards, shard_hosts).deploy(&mut deployment);

    let (mut interrupted, mut terminated) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    deployment.deploy().await?;
    deployment
        .start_until(async {
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
        })
        .await?;
    Ok(())
}
