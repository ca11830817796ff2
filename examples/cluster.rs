//! The supervisor of Slackwater's own clusters; `slackwater cluster up` starts it through cargo.
//!
//! In: a plan. Out: a cluster that runs. Always: it is an example because each location is compiled from the package of the
//! program that places it. A package with operators of its own has one like it (`examples/operator/examples/cluster.rs`).

use slackwater::host::cluster::topology;

fn main() -> anyhow::Result<()> {
    slackwater_supervisor::main(topology)
}
