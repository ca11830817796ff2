//! Places a gateway and shards as processes on this machine with hydro_deploy, and stops them when it is told to.
//!
//! `slackwater cluster up` starts it through cargo, because each location is compiled when it is placed:
//! `cargo run -p slackwater --features cluster --example cluster -- SETTINGS SHARDS`.

use slackwater::host::cluster::topology;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(settings), Some(count)) = (arguments.next(), arguments.next()) else {
        return Err("give the settings file and the number of shards".into());
    };
    slackwater::launch_cluster!(settings, count.parse()?, topology).await
}
