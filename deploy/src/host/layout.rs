//! The layout of a cluster: which location is on which machine, and what each cell is told.
//!
//! In: where threads are, the machines, where the first gateway listens. Out: the cells of a plan, and a file for each of them.
//! Always: the same is said at the start and while threads are moved, from the same numbers and from nothing else; a cell's gateway
//! keeps its address as long as there is the cell.

use super::directory::{self, DirectoryError, Manifest};
use super::plan::{CellPlan, Machine, Plan};
use crate::placement::{Cell, Placement};
use std::net::{IpAddr, SocketAddr, TcpListener};

/// Why a cluster cannot be laid out like this.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    /// A machine's address is no address.
    #[error("host {machine}: {address:?} is no IP address; correct it")]
    Address {
        /// Which machine.
        machine: String,
        /// What it has.
        address: String,
    },
    /// There are not so many ports.
    #[error(
        "the gateways would listen on {cells} ports from {first} on, and there are not so many; give an earlier one with --listen"
    )]
    Ports {
        /// The first one.
        first: u16,
        /// How many cells there are.
        cells: u32,
    },
    /// Something has a gateway's port.
    #[error(
        "a gateway cannot listen on {address} ({source}); is something there already? Give another address with --listen"
    )]
    Taken {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// A gateway would be reached by others for the first time, and nobody has looked whether there are keys.
    #[error(
        "a gateway would listen on {address}, and all others listen on this machine alone; end the cluster, move its threads and start it again"
    )]
    Open {
        /// Where.
        address: SocketAddr,
    },
    /// The machines of a cloud let in what was asked for at the start.
    #[error(
        "the machines of the cloud are open for {gateways} gateways; end the cluster, move its threads and start it again, and they are opened for more"
    )]
    Closed {
        /// How many gateways.
        gateways: usize,
    },
}

/// The machine of a shard, of so many. A cell is on one machine where there are cells for all machines, so that one machine's end
/// is one cell's; otherwise the shards are spread.
pub fn machine_of(placement: &Placement, shard: u32, machines: usize) -> usize {
    let machines = machines.max(1);
    let whole = placement.cells as usize >= machines;
    (if whole { shard / placement.shards } else { shard }) as usize % machines
}

/// Which location is where.
///
/// # Errors
/// When a machine's address is none, or there are too few ports.
pub fn cells(
    placement: &Placement,
    machines: &[Machine],
    listen: SocketAddr,
    toolhosts: u32,
) -> Result<Vec<CellPlan>, LayoutError> {
    if u32::from(listen.port()) + placement.cells > 1 << 16 {
        return Err(LayoutError::Ports { first: listen.port(), cells: placement.cells });
    }
    let cell = |cell: u32| {
        let shards = cell * placement.shards..(cell + 1) * placement.shards;
        let shards_on: Vec<usize> = shards.map(|shard| machine_of(placement, shard, machines.len())).collect();
        let toolhosts_on = (0..toolhosts as usize).map(|number| shards_on[number % shards_on.len()]).collect();
        // It does not follow the shards: tools and clients have its address.
        let gateway_on = cell as usize % machines.len();
        let machine = &machines[gateway_on];
        let ip = if machine.ssh.is_some() { ip_of(machine, &machine.address)? } else { listen.ip() };
        let gateway = SocketAddr::new(ip, listen.port() + cell as u16);
        let reached_at = match &machine.public_address {
            Some(public) => SocketAddr::new(ip_of(machine, public)?, gateway.port()),
            None => gateway,
        };
        Ok(CellPlan { gateway_on, shards_on, toolhosts_on, gateway, reached_at })
    };
    (0..placement.cells).map(cell).collect()
}

fn ip_of(machine: &Machine, address: &str) -> Result<IpAddr, LayoutError> {
    let wrong = |_| LayoutError::Address { machine: machine.name.clone(), address: address.to_owned() };
    address.parse().map_err(wrong)
}

/// The same cluster with its threads elsewhere, while it runs: on the same machines, and as many toolhosts a cell.
///
/// # Errors
/// When that takes a new start.
pub fn moved(plan: &Plan, placement: &Placement) -> Result<Plan, LayoutError> {
    let first = &plan.cells[0];
    let cells = cells(placement, &plan.machines, first.gateway, first.toolhosts_on.len() as u32)?;
    if cells.len() > plan.cells.len() && plan.machines.iter().any(|machine| machine.public_address.is_some()) {
        return Err(LayoutError::Closed { gateways: plan.cells.len() });
    }
    let is_open = |cell: &&CellPlan| !cell.gateway.ip().is_loopback();
    if let (None, Some(cell)) = (plan.cells.iter().find(is_open), cells.iter().find(is_open)) {
        return Err(LayoutError::Open { address: cell.gateway });
    }
    Ok(Plan { cells, ..plan.clone() })
}

/// Looks whether gateways that will be on this machine can listen there.
///
/// # Errors
/// When one cannot.
pub fn check_free<'a>(cells: impl IntoIterator<Item = &'a CellPlan>, machines: &[Machine]) -> Result<(), LayoutError> {
    for cell in cells.into_iter().filter(|cell| machines[cell.gateway_on].ssh.is_none()) {
        TcpListener::bind(cell.gateway).map_err(|source| LayoutError::Taken { address: cell.gateway, source })?;
    }
    Ok(())
}

/// Writes what each cell is told, and then the plan.
///
/// # Errors
/// When it cannot be written.
pub fn store(plan: &Plan, manifest: &Manifest) -> Result<(), DirectoryError> {
    let gateways: Vec<String> = plan.cells.iter().map(|cell| format!("http://{}", cell.gateway)).collect();
    for (number, cell) in (0..).zip(&plan.cells) {
        let told = Cell {
            cluster: manifest.cluster.clone(),
            cell: number,
            placement: manifest.placement.clone(),
            gateways: gateways.clone(),
            listen: cell.gateway,
            toolhosts: cell.toolhosts_on.len() as u32,
        };
        directory::store(&directory::cell_file(&plan.directory, number), &told)?;
    }
    directory::store(&directory::plan_file(&plan.directory), plan)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::super::plan::Ssh;
    use super::*;

    fn machines(count: u8) -> Vec<Machine> {
        let ssh = Ssh { destination: "one".to_owned(), port: None, key: None, known_hosts: None };
        let machine = |number: u8| Machine {
            name: format!("m-{number}"),
            address: format!("192.0.2.{number}"),
            public_address: None,
            directory: "/state".into(),
            ssh: Some(ssh.clone()),
        };
        (0..count).map(machine).collect()
    }

    fn plan(placement: &Placement, machines: Vec<Machine>) -> Plan {
        let listen = "127.0.0.1:7070".parse().unwrap();
        let cells = cells(placement, &machines, listen, 1).unwrap();
        Plan { format: 1, directory: "/c".into(), machines, cells, release: false, pin: false, attached: true }
    }

    #[test]
    fn a_cell_is_on_one_machine_where_there_are_cells_for_all() {
        let on = |cells, shards| -> Vec<Vec<usize>> {
            let plan = plan(&Placement::even(cells, shards, 16), machines(2));
            plan.cells.into_iter().map(|cell| cell.shards_on).collect()
        };
        assert_eq!(on(1, 3), [vec![0, 1, 0]]);
        assert_eq!(on(2, 2), [vec![0, 0], vec![1, 1]]);
        assert_eq!(on(3, 1), [vec![0], vec![1], vec![0]]);
    }

    #[test]
    fn gateways_stay_where_they_are() {
        for count in 1..4 {
            let before = Placement::even(2, 1, 16);
            let old = plan(&before, machines(count));
            for (cells, shards) in [(2, 3), (4, 1), (1, 2)] {
                let new = moved(&old, &before.spread(cells, shards)).unwrap();
                for (old, new) in old.cells.iter().zip(&new.cells) {
                    assert_eq!((old.gateway, old.gateway_on), (new.gateway, new.gateway_on));
                }
            }
        }
    }

    #[test]
    fn what_takes_a_new_start_is_told() {
        let before = Placement::even(1, 1, 16);
        let mut cloud = plan(&before, machines(2));
        cloud.machines[0].public_address = Some("198.51.100.7".to_owned());
        assert!(matches!(moved(&cloud, &before.spread(2, 1)), Err(LayoutError::Closed { gateways: 1 })));
        moved(&cloud, &before.spread(1, 2)).unwrap();

        let mut machines = machines(2);
        machines[0].address = "127.0.0.1".to_owned();
        let alone = plan(&before, machines);
        assert!(matches!(moved(&alone, &before.spread(2, 1)), Err(LayoutError::Open { .. })));
    }
}
