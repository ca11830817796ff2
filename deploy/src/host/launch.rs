//! What starts a cluster on this machine: the same for our own topology and for one with a user's operators.
//!
//! In: a directory, the settings, how many shards, and what wires the locations. Out: a cluster that runs until SIGINT or
//! SIGTERM. Always: a directory is made ready before anything starts, and is left as it is afterwards.
//!
//! A launcher is an example of the package that has the operators, started by cargo, because hydro_deploy compiles each
//! location from that package. The part that names hydro_deploy is a macro: it stands in the launcher, whose dependency that is.

use super::directory::shard_directory;
use crate::capability::CapabilityKey;
use std::io;
use std::path::{Path, PathBuf};

/// Makes a cluster's directory ready: it has its settings, the key of its callbacks and a directory for each shard. Returns
/// the file of the settings, which [`crate::launch_cluster`] takes.
///
/// # Errors
/// When the directory cannot be made or written.
pub fn prepare(directory: &Path, shards: u32, settings: &str) -> io::Result<PathBuf> {
    std::fs::create_dir_all(directory)?;
    let directory = directory.canonicalize()?;
    CapabilityKey::open(&directory)?;
    (0..shards).try_for_each(|shard| std::fs::create_dir_all(shard_directory(&directory, shard)))?;
    let file = directory.join("cluster.toml");
    std::fs::write(&file, settings)?;
    Ok(file)
}

/// Places a gateway, so many shards and a toolhost as processes on this machine with hydro_deploy, wired by a function of the
/// three locations, and runs them until SIGINT or SIGTERM. A future of `Result<(), Box<dyn Error>>`.
///
/// The package that it stands in depends on `hydro_lang` with `deploy` and `sim`, on `hydro_deploy` and on `tokio`.
#[macro_export]
macro_rules! launch_cluster {
    ($settings:expr, $shards:expr, $topology:expr) => {
        async {
            use $crate::host::sidecar::{SETTINGS_VARIABLE, SHARD_VARIABLE, SHARDS_VARIABLE, TOOLHOST_VARIABLE};
            let (settings, shards): (::std::path::PathBuf, u32) = ($settings.into(), $shards);
            let mut deployment = ::hydro_deploy::Deployment::new();
            let mut flow = ::hydro_lang::prelude::FlowBuilder::new();
            let gateway = flow.process::<$crate::host::cluster::Gateway>();
            let cluster = flow.cluster::<$crate::host::cluster::Shard>();
            let toolhosts = flow.cluster::<$crate::host::cluster::Toolhost>();
            ($topology)(&gateway, &cluster, &toolhosts);
            let host = |name: &str| {
                ::hydro_lang::deploy::TrybuildHost::new(deployment.Localhost())
                    .env(SETTINGS_VARIABLE, settings.display().to_string())
                    .env(SHARDS_VARIABLE, shards.to_string())
                    .display_name(name)
            };
            let gateway_host = host("gateway");
            let toolhost = host("toolhost 0").env(TOOLHOST_VARIABLE, "0");
            let shard_hosts: ::std::vec::Vec<_> = (0..shards)
                .map(|shard| host(&::std::format!("shard {shard}")).env(SHARD_VARIABLE, shard.to_string()))
                .collect();
            let _nodes = flow
                .with_process(&gateway, gateway_host)
                .with_cluster(&cluster, shard_hosts)
                .with_cluster(&toolhosts, [toolhost])
                .deploy(&mut deployment);

            use ::tokio::signal::unix::{SignalKind, signal};
            let (mut interrupted, mut terminated) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            deployment.deploy().await?;
            let told_to_stop = async {
                ::tokio::select! {
                    _ = interrupted.recv() => {}
                    _ = terminated.recv() => {}
                }
            };
            deployment.start_until(told_to_stop).await?;
            ::std::result::Result::<(), ::std::boxed::Box<dyn ::std::error::Error>>::Ok(())
        }
    };
}
