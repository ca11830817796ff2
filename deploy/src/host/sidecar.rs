//! The sidecars: the adapters of the embedded host, as a location of a cluster opens them.
//!
//! In: the settings that the launcher wrote, named by the environment. Out: the ends of one adapter each. Always: what cannot
//! be opened ends the process with its reason, since the wired group stops and starts together; SIGTERM ends a process
//! cleanly.

use super::memory::{Remembering, remembering};
use crate::capability::CapabilityKey;
use crate::catalog::Catalog;
use crate::journal::{FileDisk, Journal};
use crate::port::{FromAdapter, ToAdapter, ends, loopback};
use crate::settings::Settings;
use crate::{gateway as gateways, model as models, timer as timers, tool as tools};
use slackwater_core::port::{FromGateway, FromModel, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use slackwater_core::record::Arrival;
use std::fmt::Display;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Names the file with the settings of the cluster.
pub const SETTINGS_VARIABLE: &str = "SLACKWATER_CLUSTER_SETTINGS";

/// Names the shard that a location is, counted from 0.
pub const SHARD_VARIABLE: &str = "SLACKWATER_SHARD";

/// The state directory of a shard, in the cluster's directory.
pub fn shard_directory(cluster: &Path, shard: u32) -> PathBuf {
    cluster.join(format!("shard-{shard}"))
}

/// The gateway's location.
pub fn gateway(shards: u32) -> (FromAdapter<FromGateway>, ToAdapter<ToGateway>) {
    let settings = settings();
    let config = gateways::Config { shards, ..settings.gateway.clone() };
    let (from, to, gateway) = or_exit(gateways::start(config, key(settings)));
    gateway.set_ready(true);
    on_termination(move || async move { gateway.shutdown().await });
    (from, to)
}

/// A shard's journal, in its directory.
pub fn journal() -> (Remembering, ToAdapter<ToJournal>) {
    let settings = settings();
    let directory = shard_directory(&settings.directory, shard_number());
    if !directory.is_dir() {
        exit(&format!(
            "{} is not there: the state of this shard is gone, or its disk is not mounted",
            directory.display()
        ));
    }
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
    let settings = settings();
    let model = or_exit(settings.model.build());
    let process = Process::this();
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

/// A shard's tools.
pub fn tool() -> (FromAdapter<Arrival>, ToAdapter<ToTool>) {
    let settings = settings();
    let process = Process::this();
    let callback_base = gateways::base_url(&settings.gateway, settings.gateway.listen);
    let config = tools::Config { approvals: settings.approvals.clone(), ..settings.tool.clone() };
    let started = tools::start(config, Vec::new(), process.catalog.clone(), key(settings), callback_base);
    let (from, to, mut running) = or_exit(started);
    tokio::spawn(async move {
        for trouble in running.ready(Duration::from_millis(super::TOOLS_READY_MS)).await {
            tracing::warn!(server = %trouble.server, why = %trouble.why, "a tool server cannot be used");
        }
        process.tools_ready.send_replace(true);
        on_termination(move || running.stop());
    });
    (from, to)
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
    let path = settings().directory.join(format!("notes-{}.log", shard_number()));
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
    catalog: Catalog,
    tools_ready: watch::Sender<bool>,
}

impl Process {
    fn this() -> &'static Self {
        static THIS: OnceLock<Process> = OnceLock::new();
        THIS.get_or_init(|| Process { catalog: Catalog::default(), tools_ready: watch::Sender::new(false) })
    }
}

/// Which shard this location is.
fn shard_number() -> u32 {
    let shard = std::env::var(SHARD_VARIABLE).ok().and_then(|text| text.parse().ok());
    or_exit(shard.ok_or_else(|| format!("{SHARD_VARIABLE} is not a number: the launcher sets it")))
}

/// The settings of the cluster, read once.
fn settings() -> &'static Settings {
    static SETTINGS: OnceLock<Settings> = OnceLock::new();
    SETTINGS.get_or_init(|| {
        let path = std::env::var_os(SETTINGS_VARIABLE).map(PathBuf::from);
        let path = or_exit(path.ok_or_else(|| format!("{SETTINGS_VARIABLE} is not set: the launcher sets it")));
        let named = |error: &dyn Display| format!("{}: {error}", path.display());
        let text = or_exit(std::fs::read_to_string(&path).map_err(|error| named(&error)));
        or_exit(toml::from_str(&text).map_err(|error| named(&error)))
    })
}

/// The key of the callbacks, the same at every location. The launcher has made it.
fn key(settings: &Settings) -> CapabilityKey {
    or_exit(CapabilityKey::open(&settings.directory))
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
