//! Writes Hydro's manifest of a cluster of containers for AWS ECS, as JSON on standard output.
//!
//! `slackwater cluster export --ecs` starts it through cargo, because Hydro generates each location's program into the
//! target directory: `cargo run -p slackwater --features ecs --example export_ecs -- SHARDS PORT`.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use hydro_lang::deploy::EcsDeploy;
use hydro_lang::prelude::*;
use slackwater::host::containers::topology;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(shards), Some(port)) = (arguments.next(), arguments.next()) else {
        return Err("give the number of shards and the port of the gateway".into());
    };
    let mut ecs = EcsDeploy::new();
    let mut flow = FlowBuilder::new();
    let gateway = topology(&mut flow, shards.parse()?);
    let located = flow.with_process(&gateway, ecs.add_ecs_process());
    let nodes = located.with_remaining_processes(|| EcsDeploy::new().add_ecs_process()).deploy(&mut ecs);
    nodes.get_process(&gateway).expose_port(port.parse()?);
    println!("{}", serde_json::to_string_pretty(&ecs.export(&nodes))?);
    Ok(())
}
