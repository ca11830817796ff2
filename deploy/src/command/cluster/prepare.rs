//! What is made ready before a cluster starts: its directory, its plan, and what its locations are told.
//!
//! In: a cluster file, flags, the configuration. Out: the supervisor's plan, on disk. Always: what is there already belongs to this
//! cluster and has its numbers, or nothing is written.

use super::file::{ClusterFile, Host};
use super::{Up, cloud, hosts};
use crate::Settings;
use crate::command::Failure;
use crate::config::Loaded;
use slackwater::capability::CapabilityKey;
use slackwater::host::directory::{self, Manifest};
use slackwater::host::layout;
use slackwater::host::plan::{CellPlan, Machine, Plan, Ssh};
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};

/// How many shards and toolhosts a cell has when nobody says.
const SHARDS: u32 = 2;
const TOOLHOSTS: u32 = 1;

/// Makes everything ready, and says what the supervisor runs.
pub(super) async fn prepare(arguments: &Up, file: &ClusterFile, loaded: &Loaded) -> Result<Plan, Failure> {
    let place = place(file, &arguments.settings, loaded)?;
    if let Some(state) = slackwater::host::plan::running(&place).map_err(Failure::because)? {
        return Err(Failure::Failed(format!(
            "the cluster in {} runs already (process {}); `slackwater cluster status` says what it does",
            place.display(),
            state.supervisor
        )));
    }
    let numbers = (arguments.cells.or(file.cluster.cells), arguments.shards.or(file.cluster.shards));
    let manifest = manifest(numbers, file, &place)?;
    let listen = listen(arguments.listen.as_ref(), file, loaded, manifest.placement.cells)?;
    let cloud = cloud::Cloud::of(file, (listen.port(), manifest.placement.cells));
    cloud::check(cloud.as_ref(), &place)?;
    let machines = match cloud {
        Some(cloud) => {
            check_keys(loaded, "the machines' addresses")?;
            // From here on there is something that belongs to this cluster.
            directory::make_directory(&place).map_err(Failure::because)?;
            manifest.store(&place).map_err(Failure::because)?;
            cloud::provision(&cloud, &place, &manifest.cluster).await?
        }
        None => machines(file, &place)?,
    };
    let toolhosts = arguments.toolhosts.or(file.cluster.toolhosts).unwrap_or(TOOLHOSTS);
    let cells = layout::cells(&manifest.placement, &machines, listen, toolhosts).map_err(Failure::because)?;
    if let Some(cell) = cells.iter().find(|cell| !cell.gateway.ip().is_loopback()) {
        check_keys(loaded, &cell.gateway.ip().to_string())?;
    }
    for machine in machines.iter().filter(|machine| machine.ssh.is_some()) {
        hosts::check(machine, &manifest, &shards_on(&cells, &machines, machine)).await?;
    }
    for shard in shards_on(&cells, &machines, &machines[0]).into_iter().filter(|_| file.hosts.is_empty()) {
        manifest.check(&place, shard).map_err(Failure::because)?;
    }
    layout::check_free(&cells, &machines).map_err(Failure::because)?;

    let failed = Failure::because;
    directory::make_directory(&place.join("run")).map_err(failed)?;
    manifest.store(&place).map_err(failed)?;
    CapabilityKey::open(&place).map_err(Failure::because)?;
    let settings = loaded.to_toml(&place, &arguments.settings.tools);
    directory::replace(&directory::settings_file(&place), settings.as_bytes()).map_err(failed)?;
    // What it says is of a supervisor that is gone.
    let _ = std::fs::remove_file(directory::state_file(&place));
    let release = arguments.release || file.cluster.release;
    let (pin, attached) = (arguments.pin || file.cluster.pin, !arguments.detach);
    let plan = Plan { format: directory::FORMAT, directory: place.clone(), machines, cells, release, pin, attached };
    layout::store(&plan, &manifest).map_err(failed)?;
    Ok(plan)
}

/// Where a cluster file's cluster is kept.
fn place(file: &ClusterFile, settings: &Settings, loaded: &Loaded) -> Result<PathBuf, Failure> {
    let said = file.cluster.directory.as_deref().filter(|_| settings.directory.is_none());
    std::path::absolute(said.unwrap_or(&loaded.config.directory)).map_err(Failure::because)
}

/// Says which machines of a cloud a file asks for, and writes it down.
pub(super) fn plan(file: &ClusterFile, settings: &Settings) -> Result<(), Failure> {
    let loaded = settings.load(&[])?;
    let place = place(file, settings, &loaded)?;
    let manifest = manifest((file.cluster.cells, file.cluster.shards), file, &place)?;
    let listen = listen(None, file, &loaded, manifest.placement.cells)?;
    let Some(cloud) = cloud::Cloud::of(file, (listen.port(), manifest.placement.cells)) else {
        return Err(Failure::Usage("the file names no machine of a cloud, so there is nothing to be made".to_owned()));
    };
    cloud::plan(&cloud, &place, &manifest.cluster)
}

/// What the cluster of a directory is; a new one, if there is none.
fn manifest(
    (cells, shards): (Option<u32>, Option<u32>),
    file: &ClusterFile,
    place: &Path,
) -> Result<Manifest, Failure> {
    let Some(manifest) = Manifest::load(place).map_err(Failure::because)? else {
        let virtual_shards = file.cluster.virtual_shards.unwrap_or(VIRTUAL_SHARDS);
        let (cells, shards) = (cells.unwrap_or(1), shards.unwrap_or(SHARDS));
        if cells * shards > virtual_shards {
            return Err(Failure::Usage(format!(
                "{cells} cells of {shards} shards are more than the {virtual_shards} virtual shards that they share; give fewer, or more virtual_shards"
            )));
        }
        let new = Manifest::new(Placement::even(cells, shards, virtual_shards));
        return Ok(Manifest { cluster: cloud::planned_name(place).unwrap_or(new.cluster), ..new });
    };
    if manifest.moving_to.is_some() {
        return Err(Failure::Failed(format!(
            "the threads of the cluster in {} are being moved, and that was broken off; `slackwater cluster rebalance` goes on with it",
            place.display()
        )));
    }
    let Placement { cells: has_cells, shards: has_shards, ref table } = manifest.placement;
    if cells.is_some_and(|cells| cells != has_cells) || shards.is_some_and(|shards| shards != has_shards) {
        let (cells, shards) = (cells.unwrap_or(has_cells), shards.unwrap_or(has_shards));
        return Err(Failure::Failed(format!(
            "{} is the state of a cluster with --cells {has_cells} --shards {has_shards}; start it with these, move its threads with `slackwater cluster rebalance --cells {cells} --shards {shards}`, or give another --directory",
            place.display()
        )));
    }
    if file.cluster.virtual_shards.is_some_and(|count| count as usize != table.len()) {
        return Err(Failure::Failed(format!(
            "{} is the state of a cluster with {} virtual shards, and their number never changes; correct virtual_shards",
            place.display(),
            table.len()
        )));
    }
    Ok(manifest)
}

fn machines(file: &ClusterFile, place: &Path) -> Result<Vec<Machine>, Failure> {
    if file.hosts.is_empty() {
        let (name, address) = ("this machine".to_owned(), "127.0.0.1".to_owned());
        return Ok(vec![Machine { name, address, public_address: None, directory: place.to_owned(), ssh: None }]);
    }
    file.hosts.iter().map(machine).collect()
}

fn machine(host: &Host) -> Result<Machine, Failure> {
    let said = host.address.as_deref().unwrap_or_default();
    // Locations listen on it, so it has to be an address in the end.
    let mut found = (said, 0)
        .to_socket_addrs()
        .map_err(|error| Failure::Failed(format!("host {}: its address {said:?} is not found: {error}", host.name)))?;
    let nowhere = || Failure::Failed(format!("host {}: its address {said:?} is not found", host.name));
    let address = found.next().ok_or_else(nowhere)?.ip().to_string();
    let destination = host.user.as_ref().map_or_else(|| said.to_owned(), |user| format!("{user}@{said}"));
    let ssh = Ssh { destination, port: host.port, key: host.key.clone(), known_hosts: host.known_hosts.clone() };
    let directory = host.directory.clone().unwrap_or_else(|| "/var/lib/slackwater".into());
    if !directory.is_absolute() {
        let said = directory.display();
        return Err(Failure::Usage(format!("host {}: its directory {said} has to begin with /", host.name)));
    }
    Ok(Machine { name: host.name.clone(), address, public_address: None, directory, ssh: Some(ssh) })
}

/// Where the first gateway listens, of so many.
fn listen(said: Option<&String>, file: &ClusterFile, loaded: &Loaded, cells: u32) -> Result<SocketAddr, Failure> {
    let configured = loaded.config.gateway.listen;
    let listen = file.cluster.listen.filter(|_| said.is_none()).unwrap_or(configured);
    if listen.port() == 0 || u32::from(listen.port()) + cells > 65_536 {
        return Err(Failure::Usage("--listen: a cluster needs ports that stay the same, one a cell from this one on, because tools keep the address of their callbacks; give another port".to_owned()));
    }
    Ok(listen)
}

/// A gateway that others reach lets in only who has a key.
fn check_keys(loaded: &Loaded, address: &str) -> Result<(), Failure> {
    if !loaded.config.gateway.keys.is_empty() {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "the gateways would listen on {address} without keys, and whoever reaches that address could command the agents; configure keys ([gateway] keys = [\"name:secret\"])"
    )))
}

/// The shards on a machine, counted over all cells.
fn shards_on(cells: &[CellPlan], machines: &[Machine], machine: &Machine) -> Vec<u32> {
    let all = cells.iter().flat_map(|cell| &cell.shards_on).enumerate();
    all.filter(|(_, on)| machines[**on].name == machine.name).map(|(shard, _)| shard as u32).collect()
}
