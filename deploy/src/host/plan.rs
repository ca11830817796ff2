//! The plan of a cluster: what its supervisor is told, and what it says of the cluster.
//!
//! In: what `slackwater cluster up` was asked for. Out: files for the supervisor and for whoever asks after the cluster. Always:
//! no secrets in them.

use super::directory::{self, DirectoryError, Manifest};
use super::rebalance::Moved;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a supervisor runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// The version of this form.
    pub format: u32,
    /// The cluster's directory on this machine.
    pub directory: PathBuf,
    /// The machines that locations can be placed on.
    pub machines: Vec<Machine>,
    /// The cells.
    pub cells: Vec<CellPlan>,
    /// Whether the locations are compiled for speed. It takes longer.
    pub release: bool,
    /// Whether each shard is bound to a processor of its own, as far as its machine has so many.
    #[serde(default)]
    pub pin: bool,
    /// Whether the supervisor ends with the process that started it.
    pub attached: bool,
}

/// Where the locations of a cell are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellPlan {
    /// The machine of the gateway.
    pub gateway_on: usize,
    /// The machine of each shard.
    pub shards_on: Vec<usize>,
    /// The machine of each toolhost.
    pub toolhosts_on: Vec<usize>,
    /// Where the gateway listens, and the other cells reach it.
    pub gateway: SocketAddr,
    /// Where the supervisor and clients reach it.
    pub reached_at: SocketAddr,
}

/// A machine on which locations run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What people call it.
    pub name: String,
    /// The address at which the other machines reach its locations.
    pub address: String,
    /// The address at which it is reached from here, if that is another one: a machine of a cloud has both.
    pub public_address: Option<String>,
    /// The cluster's directory on it.
    pub directory: PathBuf,
    /// How it is reached; nothing for this machine.
    pub ssh: Option<Ssh>,
}

/// How a machine is reached by SSH.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ssh {
    /// The user and the host, as `ssh` takes them.
    pub destination: String,
    /// The port, if it is another than the usual one.
    pub port: Option<u16>,
    /// The file with the private key, if it is another than `ssh` finds by itself.
    pub key: Option<PathBuf>,
    /// The file with the hosts' keys, if it is another than `ssh` reads by itself.
    pub known_hosts: Option<PathBuf>,
}

impl Ssh {
    /// The arguments of `ssh` before the command.
    pub fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=5"].map(str::to_owned).into();
        // A machine that was cut off is noticed within seconds, and its locations end with the connection.
        arguments.extend(["-o", "ServerAliveInterval=1", "-o", "ServerAliveCountMax=4"].map(str::to_owned));
        arguments.extend(["-o", "StrictHostKeyChecking=yes", "-o", "LogLevel=ERROR"].map(str::to_owned));
        if let Some(file) = &self.known_hosts {
            arguments.extend(["-o".to_owned(), format!("UserKnownHostsFile={}", file.display())]);
        }
        if let Some(port) = self.port {
            arguments.extend(["-p".to_owned(), port.to_string()]);
        }
        if let Some(key) = &self.key {
            arguments.extend([
                "-i".to_owned(),
                key.display().to_string(),
                "-o".to_owned(),
                "IdentitiesOnly=yes".to_owned(),
            ]);
        }
        arguments.push(self.destination.clone());
        arguments
    }
}

/// A path as a word of a machine's shell.
pub fn quoted(path: &Path) -> String {
    format!("'{}'", path.display().to_string().replace('\'', r"'\''"))
}

/// What a supervisor says of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// The supervisor's process.
    pub supervisor: u32,
    /// What each cell does.
    pub cells: Vec<CellState>,
    /// How often its threads were moved since it was started, or should have been.
    #[serde(default)]
    pub moves: u64,
    /// What came of the last time.
    #[serde(default)]
    pub last_move: Option<LastMove>,
}

/// What came of moving the threads of a cluster that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastMove {
    /// What was moved.
    pub moved: Moved,
    /// From the end of the cells until all were ready again, in milliseconds. Nothing as long as they are not, or if none was
    /// ended.
    pub pause_ms: Option<u64>,
    /// Why nothing was moved.
    pub error: Option<String>,
}

/// What a supervisor says of a cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellState {
    /// What it does.
    pub phase: Phase,
    /// How often it was started anew.
    pub restarts: u64,
    /// Why it was started anew last, or why it is not ready.
    pub why: Option<String>,
    /// How long its last start took, in milliseconds: from the end of a process until the gateway was ready again.
    pub restart_ms: Option<u64>,
    /// Its processes on this machine: a shard on another one is here the connection to it.
    pub processes: Vec<ProcessState>,
}

/// What a cell does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Its locations are being compiled.
    #[default]
    Compiling,
    /// Its processes are being started.
    Starting,
    /// It takes inputs.
    Ready,
    /// It cannot be started, and this is tried again.
    Failing,
    /// It has stopped while threads are moved between the shards, and is started again afterwards.
    Moving,
    /// It has stopped.
    Stopped,
}

/// What a supervisor says of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessState {
    /// `gateway 0`, `shard 3` or `toolhost 0.1`: the second toolhost of the first cell.
    pub name: String,
    /// The machine's name.
    pub machine: String,
    /// The process.
    pub process: u32,
}

/// The supervisor's last word on the cluster of a directory, if one runs.
///
/// # Errors
/// When it cannot be read.
pub fn running(cluster: &Path) -> Result<Option<State>, DirectoryError> {
    let path = directory::lock_file(cluster);
    let lock = match std::fs::File::open(&path) {
        Ok(lock) => lock,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(DirectoryError::Io { path, source }),
    };
    match rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockShared) {
        // Nobody has it: what is in the state is of a supervisor that is gone.
        Ok(()) => Ok(None),
        Err(_) => directory::read(&directory::state_file(cluster)),
    }
}

/// Says that these shards have run, so that their state must be there from now on.
///
/// # Errors
/// When it cannot be written.
pub fn know(cluster: &Path, shards: impl Iterator<Item = u32>) -> Result<(), DirectoryError> {
    let Some(mut manifest) = Manifest::load(cluster)? else { return Ok(()) };
    let before = manifest.known.len();
    manifest.known.extend(shards);
    manifest.known.sort_unstable();
    manifest.known.dedup();
    if manifest.known.len() == before { Ok(()) } else { manifest.store(cluster) }
}
