//! A machine on hydro_deploy's traits: this one, or one that is reached by SSH.
//!
//! In: what hydro_deploy has compiled. Out: processes, each also in the hands of the cell. Always: locations of one machine meet
//! on Unix sockets, those of two on the addresses that the plan gives; what is on a machine already is not copied again.

use crate::process::{End, Held, Launch, Process};
use crate::remote;
use anyhow::Context as _;
use async_trait::async_trait;
use hydro_deploy::rust_crate::build::BuildOutput;
use hydro_deploy::rust_crate::tracing_options::TracingOptions;
use hydro_deploy::{
    BaseServerStrategy, ClientStrategy, Host, HostStrategyGetter, HostTargetType, LaunchedBinary, LaunchedHost,
    PortNetworkHint, ResourceBatch, ResourceResult,
};
use hydro_deploy_integration::ServerBindConfig;
use slackwater::host::plan::Machine;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::mpsc;

/// What is started for one cell.
pub(crate) struct Crew {
    pub(crate) processes: Mutex<Vec<Arc<Process>>>,
    pub(crate) ends: mpsc::UnboundedSender<End>,
}

/// A machine, as hydro_deploy places the locations of one cell on it.
pub(crate) struct Placed {
    pub(crate) id: usize,
    pub(crate) machine: Machine,
    pub(crate) crew: Arc<Crew>,
}

impl std::fmt::Debug for Placed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Placed").field("machine", &self.machine.name).finish()
    }
}

impl Host for Placed {
    fn target_type(&self) -> HostTargetType {
        // A machine of another kind would need another compiler; `up` looks whether it is of this one.
        HostTargetType::Local
    }

    fn request_port_base(&self, _: &BaseServerStrategy) {}

    fn id(&self) -> usize {
        self.id
    }

    fn request_custom_binary(&self) {}

    fn collect_resources(&self, _: &mut ResourceBatch) {}

    fn provision(&self, _: &Arc<ResourceResult>) -> Arc<dyn LaunchedHost> {
        Arc::new(Launched { machine: self.machine.clone(), crew: self.crew.clone() })
    }

    fn launched(&self) -> Option<Arc<dyn LaunchedHost>> {
        Some(Arc::new(Launched { machine: self.machine.clone(), crew: self.crew.clone() }))
    }

    fn strategy_as_server<'a>(
        &'a self,
        connection_from: &dyn Host,
        _: PortNetworkHint,
    ) -> anyhow::Result<(ClientStrategy<'a>, HostStrategyGetter)> {
        Ok(if connection_from.can_connect_to(ClientStrategy::UnixSocket(self.id)) {
            (ClientStrategy::UnixSocket(self.id), Box::new(|_| BaseServerStrategy::UnixSocket))
        } else {
            (ClientStrategy::InternalTcpPort(self), Box::new(|_| BaseServerStrategy::InternalTcpPort(None)))
        })
    }

    fn can_connect_to(&self, strategy: ClientStrategy<'_>) -> bool {
        match strategy {
            ClientStrategy::UnixSocket(id) => self.id == id,
            ClientStrategy::InternalTcpPort(_) | ClientStrategy::ForwardedTcpPort(_) => true,
        }
    }
}

struct Launched {
    machine: Machine,
    crew: Arc<Crew>,
}

#[async_trait]
impl LaunchedHost for Launched {
    fn base_server_config(&self, strategy: &BaseServerStrategy) -> ServerBindConfig {
        let address = || self.machine.address.clone();
        match strategy {
            BaseServerStrategy::UnixSocket => ServerBindConfig::UnixSocket,
            BaseServerStrategy::InternalTcpPort(port) => ServerBindConfig::TcpPort(address(), *port),
            BaseServerStrategy::ExternalTcpPort(port) => ServerBindConfig::TcpPort(address(), Some(*port)),
        }
    }

    async fn copy_binary(&self, binary: &BuildOutput) -> anyhow::Result<()> {
        match &self.machine.ssh {
            Some(ssh) => remote::copy(ssh, &self.machine, binary, &libraries(binary)).await,
            None => Ok(()),
        }
    }

    async fn launch_binary(
        &self,
        name: String,
        binary: &BuildOutput,
        _: &[String],
        _: Option<TracingOptions>,
        environment: &HashMap<String, String>,
        _: Option<usize>,
    ) -> anyhow::Result<Box<dyn LaunchedBinary>> {
        let (program, libraries) = match &self.machine.ssh {
            Some(_) => remote::place(&self.machine, binary),
            None => (binary.bin_path.clone(), libraries(binary)),
        };
        let environment = environment.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let launch = Launch { name, machine: self.machine.clone(), program, libraries, environment };
        let process = Process::start(launch, self.crew.ends.clone()).context("cannot start a location")?;
        self.crew.processes.lock().unwrap_or_else(PoisonError::into_inner).push(process.clone());
        Ok(Box::new(Held(process)))
    }

    async fn forward_port(&self, address: &SocketAddr) -> anyhow::Result<SocketAddr> {
        Ok(*address)
    }
}

/// Where the libraries of a location are that is not linked into one file.
fn libraries(binary: &BuildOutput) -> Vec<PathBuf> {
    static STANDARD: OnceLock<Option<PathBuf>> = OnceLock::new();
    let standard = STANDARD.get_or_init(|| {
        let told = std::process::Command::new("rustc").args(["--print", "target-libdir"]).output().ok()?;
        Some(PathBuf::from(String::from_utf8(told.stdout).ok()?.trim()))
    });
    let Some(own) = &binary.shared_library_path else { return Vec::new() };
    std::iter::once(own.clone()).chain(standard.clone()).collect()
}
