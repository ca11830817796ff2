//! The sidecars: the adapters of the embedded host, as a location of a cluster opens them.
//!
//! In: the settings that the launcher wrote, in the directory that the environment names. Out: the ends of one adapter each. Always: what cannot
//! be opened ends the process with its reason, since the wired group stops and starts together; SIGTERM ends a process
//! cleanly.

use super::directory;
use super::memory::{Remembering, remembering};
use super::processor::{self, PROCESSOR_VARIABLE};
use crate::capability::CapabilityKey;
use crate::catalog::{Catalog, ToolSpec};
use crate::journal::{FileDisk, Journal};
use crate::placement::{Cell, Placement, VIRTUAL_SHARDS};
use crate::port::{FromAdapter, ToAdapter, ends, loopback};
use crate::settings::Settings;
use crate::{gateway as gateways, model as models, timer as timers, tool as tools};
use futures::Stream;
use slackwater_core::port::{FromGateway, FromModel, FromToolhost, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use slackwater_core::record::Arrival;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Names the cluster's directory on the location's host, in which are its settings.
pub const DIRECTORY_VARIABLE: &str = "SLACKWATER_CLUSTER_DIRECTORY";

/// Names the file of the settings of a cluster that is one cell and was started without a supervisor; its directory is in the
/// settings. Stands in place of the two others, together with the number of shards.
pub const SETTINGS_VARIABLE: &str = "SLACKWATER_CLUSTER_SETTINGS";

/// Names the number of shards of such a cluster.
pub const SHARDS_VARIABLE: &str = "SLACKWATER_SHARDS";

/// Names the cell of a location, counted from 0.
pub const CELL_VARIABLE: &str = "SLACKWATER_CELL";

/// Names the shard that a location is, counted over all cells from 0.
pub const SHARD_VARIABLE: &str = "SLACKWATER_SHARD";

/// Names the toolhost that a location is, counted in its cell from 0.
pub const TOOLHOST_VARIABLE: &str = "SLACKWATER_TOOLHOST";

/// Is set for a shard that has run before, so that its state must be there.
pub const KNOWN_VARIABLE: &str = "SLACKWATER_SHARD_KNOWN";

/// The gateway's location.
pub fn gateway() -> (Placed, ToAdapter<ToGateway>) {
    let process = Process::this();
    let config = gateway_config();
    let (requests, to, gateway) = or_exit(gateways::start(config, key()));
    gateway.set_ready(true);
    on_termination(move || async move { gateway.shutdown().await });
    (Placed { requests, placement: process.cell.placement.clone() }, to)
}

/// The requests of a gateway, each with the shard of the cell that it is for.
pub struct Placed {
    requests: FromAdapter<FromGateway>,
    placement: Placement,
}

impl Stream for Placed {
    type Item = (u32, FromGateway);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let request = ready!(Pin::new(&mut self.requests).poll_next(context));
        Poll::Ready(request.map(|request| (request.shard_by(|thread| self.placement.member_of(thread)), request)))
    }
}

/// A shard's journal, in its directory.
pub fn journal() -> (Remembering, ToAdapter<ToJournal>) {
    let Process { settings, cell, .. } = Process::this();
    let shard = number(SHARD_VARIABLE);
    let directory = directory::shard_directory(&settings.directory, shard);
    or_exit(directory::claim(&directory, &cell.cluster, shard, std::env::var_os(KNOWN_VARIABLE).is_some()));
    let journal = or_exit(FileDisk::open(directory).and_then(|disk| Journal::open(disk, settings.journal.clone())));
    let (from, to, handle) = or_exit(journal.start());
    let failed = handle.failed();
    tokio::spawn(async move { exit(&failed.await) });
    on_termination(move || async move {
        // A failure has been told and has ended the process already.
        let _ = handle.close().await;
    });
    (remembering(from, settings.agent.warm_max_bytes), to)
}

/// A shard's models. They are asked only when the tools were looked for, so that no prompt lacks tools that are there.
pub fn model() -> (FromAdapter<FromModel>, ToAdapter<ToModel>) {
    let process = Process::this();
    let settings = &process.settings;
    let model = or_exit(settings.model.build());
    let (from, to) = models::start(
        model,
        settings.agent.system.as_str().into(),
        process.catalog.clone(),
        settings.model.limits(),
        settings.agent.limits,
    );
    let (_, gate, mut inside) = ends::<(), ToModel>();
    let mut ready = process.tools_ready.subscribe();
    tokio::spawn(async move {
        // An end of the other side is an end of the process.
        let _ = ready.wait_for(|ready| *ready).await;
        while let Some(asked) = inside.receive.recv().await {
            to.put(asked);
        }
    });
    (from, gate)
}

/// The tools that a shard's models are offered, as the toolhosts of its cell say.
pub fn catalog() -> (FromAdapter<()>, ToAdapter<FromToolhost>) {
    let process = Process::this();
    let (from, to, mut inside) = ends::<(), FromToolhost>();
    tokio::spawn(async move {
        // Kept for as long as it listens: the flow's side must not see an end.
        let _silent = inside.send;
        let mut offered: BTreeMap<u32, Vec<ToolSpec>> = BTreeMap::new();
        while let Some(said) = inside.receive.recv().await {
            let FromToolhost::Offer { toolhost, tools } = said else { continue };
            offered.insert(toolhost, or_exit(serde_json::from_str(&tools)));
            // All of them run the same tools. One that has lost a server still has its name, and says so when it is called.
            let all: BTreeMap<&str, &ToolSpec> =
                offered.values().flatten().map(|tool| (tool.name.as_str(), tool)).collect();
            process.catalog.offer("toolhosts", all.into_values().cloned().collect());
            if offered.len() as u32 >= process.cell.toolhosts {
                process.tools_ready.send_replace(true);
            }
        }
    });
    (from, to)
}

/// The toolhost of the cell that does what is asked of tools.
pub fn by_toolhost(asked: ToTool) -> (u32, ToTool) {
    (asked.toolhost(Process::this().cell.toolhosts), asked)
}

/// A toolhost's tools.
pub fn toolhost() -> (Said, ToAdapter<ToTool>) {
    let process = Process::this();
    let gateway = gateway_config();
    let callback_base = gateways::base_url(&gateway, gateway.listen);
    let settings = &process.settings;
    let config = tools::Config { approvals: settings.approvals.clone(), ..settings.tool.clone() };
    let started = tools::start(config, Vec::new(), process.catalog.clone(), key(), callback_base);
    let (arrivals, to, mut running) = or_exit(started);
    let (offers, _, inside) = ends::<_, ()>();
    let mut catalog = process.catalog.watch();
    tokio::spawn(async move {
        for trouble in running.ready(Duration::from_millis(super::TOOLS_READY_MS)).await {
            tracing::warn!(server = %trouble.server, why = %trouble.why, "a tool server cannot be used");
        }
        on_termination(move || running.stop());
        let toolhost = number(TOOLHOST_VARIABLE);
        loop {
            let tools = serde_json::to_string(&**catalog.borrow_and_update()).expect("invariant: tools are plain data");
            for shard in 0..process.cell.placement.shards {
                // The flow is gone: so is this process.
                let _ = inside.send.send((shard, FromToolhost::Offer { toolhost, tools: tools.clone() }));
            }
            if catalog.changed().await.is_err() {
                return;
            }
        }
    });
    (Said { arrivals, offers, placement: process.cell.placement.clone() }, to)
}

/// What a toolhost says, each with the shard of the cell that it is for.
pub struct Said {
    arrivals: FromAdapter<Arrival>,
    offers: FromAdapter<(u32, FromToolhost)>,
    placement: Placement,
}

impl Stream for Said {
    type Item = (u32, FromToolhost);

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Poll::Ready(Some(offer)) = Pin::new(&mut self.offers).poll_next(context) {
            return Poll::Ready(Some(offer));
        }
        let arrival = ready!(Pin::new(&mut self.arrivals).poll_next(context));
        let placed =
            |arrival: Arrival| (self.placement.member_of(arrival.thread), FromToolhost::Arrival(Box::new(arrival)));
        Poll::Ready(arrival.map(placed))
    }
}

/// A shard's timers.
pub fn timer() -> (FromAdapter<Arrival>, ToAdapter<ToTimer>) {
    timers::start(&crate::clock::Clock::system())
}

/// What a shard's threads send each other: it comes back to the same shard.
pub fn posts() -> (FromAdapter<Arrival>, ToAdapter<Arrival>) {
    loopback()
}

/// Where a shard's operators put their notes: a line each, in the cluster's directory. Written as they come and not synced.
pub fn notes() -> (FromAdapter<()>, ToAdapter<String>) {
    let path = Process::this().settings.directory.join(format!("notes-{}.log", number(SHARD_VARIABLE)));
    let file = std::fs::OpenOptions::new().create(true).append(true).open(&path);
    let mut file = or_exit(file.map_err(|error| format!("{}: {error}", path.display())));
    let (from, to, mut inside) = ends::<(), String>();
    tokio::task::spawn_blocking(move || {
        // Kept for as long as it listens: the flow's side must not see an end.
        let _silent = inside.send;
        while let Some(line) = inside.receive.blocking_recv() {
            or_exit(writeln!(file, "{line}").map_err(|error| format!("{}: {error}", path.display())));
        }
    });
    (from, to)
}

/// What the sidecars of one process share.
struct Process {
    settings: Settings,
    cell: Cell,
    catalog: Catalog,
    tools_ready: watch::Sender<bool>,
}

impl Process {
    /// This process, with what its host's directory says, read once.
    fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| {
            // Before any other thread has work.
            if std::env::var_os(PROCESSOR_VARIABLE).is_some() {
                or_exit(processor::bind(number(PROCESSOR_VARIABLE)));
            }
            match std::env::var_os(SETTINGS_VARIABLE).map(PathBuf::from) {
                Some(file) => Self::alone(&file),
                None => Self::of_a_cell(),
            }
        })
    }

    /// A location of a cluster that is one cell.
    fn alone(file: &Path) -> Self {
        let settings = read_settings(file);
        let cell = Cell {
            cluster: "alone".to_owned(),
            cell: 0,
            placement: Placement::even(1, number(SHARDS_VARIABLE), VIRTUAL_SHARDS),
            gateways: vec![gateways::base_url(&settings.gateway, settings.gateway.listen)],
            listen: settings.gateway.listen,
            toolhosts: 1,
        };
        Self { settings, cell, catalog: Catalog::default(), tools_ready: watch::Sender::new(false) }
    }

    /// A location of one cell of many, with what its host's directory says.
    fn of_a_cell() -> Self {
        let place = std::env::var_os(DIRECTORY_VARIABLE).map(PathBuf::from);
        let place = or_exit(place.ok_or_else(|| format!("{DIRECTORY_VARIABLE} is not set: the launcher sets it")));
        let settings = read_settings(&directory::settings_file(&place));
        let file = directory::cell_file(&place, number(CELL_VARIABLE));
        let cell = or_exit(directory::read(&file));
        let cell = or_exit(cell.ok_or_else(|| format!("{} is not there: the launcher makes it", file.display())));
        let settings = Settings { directory: place, ..settings };
        Self { settings, cell, catalog: Catalog::default(), tools_ready: watch::Sender::new(false) }
    }
}

fn read_settings(file: &Path) -> Settings {
    let named = |error: &dyn Display| format!("{}: {error}", file.display());
    let text = or_exit(std::fs::read_to_string(file).map_err(|error| named(&error)));
    or_exit(toml::from_str(&text).map_err(|error| named(&error)))
}

/// The configuration of this cell's gateway.
fn gateway_config() -> gateways::Config {
    let Process { settings, cell, .. } = Process::this();
    // A gateway of many has its own address; what they have in common is what clients are told.
    let public_url = settings.gateway.public_url.clone().or_else(|| cell.gateways.get(cell.cell as usize).cloned());
    let (listen, shards) = (cell.listen, cell.placement.shards);
    gateways::Config { listen, shards, public_url, cell: Some(cell.clone()), ..settings.gateway.clone() }
}

/// The number that the launcher gave this process under a name.
fn number(variable: &str) -> u32 {
    let number = std::env::var(variable).ok().and_then(|text| text.parse().ok());
    or_exit(number.ok_or_else(|| format!("{variable} is not a number: the launcher sets it")))
}

/// The key of the callbacks, the same at every location. The launcher has made it.
fn key() -> CapabilityKey {
    or_exit(CapabilityKey::open(&Process::this().settings.directory))
}

/// Does this last when the process is told to end.
fn on_termination<F: Future<Output = ()> + Send + 'static>(last: impl FnOnce() -> F + Send + 'static) {
    let mut terminated = or_exit(signal(SignalKind::terminate()));
    tokio::spawn(async move {
        terminated.recv().await;
        last().await;
        // The others of this process have the same second.
        tokio::time::sleep(Duration::from_millis(200)).await;
        std::process::exit(0);
    });
}

fn or_exit<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| exit(&error))
}

fn exit(error: &impl Display) -> ! {
    tracing::error!(%error, "this location of the cluster cannot go on");
    eprintln!("slackwater: {error}");
    std::process::exit(1)
}
