//! A home: where the directories of shards are, on this machine or on one that is reached by SSH.
//!
//! In: a shard, and what is to become of its directory. Out: that, on stable storage. Always: each step can be done again after it was
//! broken off; nothing is taken from a shard's directory there while a process of the shard is left.

use super::RebalanceError;
use super::script::{ASIDE, Attempt, Scripts};
use crate::host::directory::{self, DirectoryError, shard_directory};
use crate::host::plan::{Machine, Ssh};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::process::Command;

/// Where directories of shards are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In the cluster's directory.
    Here(PathBuf),
    /// In the cluster's directory on another machine.
    There {
        /// What people call the machine.
        machine: String,
        ssh: Ssh,
        scripts: Scripts,
    },
}

impl Home {
    /// The home of a machine's shards, for one attempt.
    pub(super) fn of(machine: &Machine, attempt: &Attempt) -> Self {
        match &machine.ssh {
            None => Self::Here(machine.directory.clone()),
            Some(ssh) => Self::There {
                machine: machine.name.clone(),
                ssh: ssh.clone(),
                scripts: Scripts { directory: machine.directory.clone(), attempt: attempt.clone() },
            },
        }
    }

    /// Begins an attempt: what an earlier one has sent and is still on its way changes nothing more. Removes all that stands aside,
    /// if told so.
    pub(super) async fn begin(&self, clears: bool) -> Result<(), RebalanceError> {
        match self {
            Self::Here(cluster) if clears => Ok(remove_aside(cluster)?),
            Self::Here(_) => Ok(()),
            Self::There { scripts, .. } => self.run(&scripts.begin(clears)).await,
        }
    }

    /// Makes a shard's directory readable on this machine: where it is, or as a copy in the cluster's directory here.
    pub(super) async fn fetch(&self, shard: u32, cluster: &Path) -> Result<PathBuf, RebalanceError> {
        let Self::There { scripts, .. } = self else { return Ok(shard_directory(cluster, shard)) };
        let copy = aside(cluster, shard, "from");
        remove(&copy)?;
        directory::make_directory(&copy)?;
        let from = self.ssh(&scripts.fetch(shard));
        let mut to = Command::new("tar");
        to.args(["-xf", "-", "-C"]).arg(&copy);
        self.pipe(shard, from, to).await?;
        Ok(copy)
    }

    /// Puts a shard's new directory, which was written aside here, aside there.
    pub(super) async fn put(&self, shard: u32, cluster: &Path) -> Result<(), RebalanceError> {
        let Self::There { scripts, .. } = self else { return Ok(()) };
        let next = aside(cluster, shard, "next");
        let mut from = Command::new("tar");
        from.args(["-cf", "-", "-C"]).arg(&next).arg(".");
        self.pipe(shard, from, self.ssh(&scripts.put(shard))).await?;
        remove(&next)?;
        Ok(())
    }

    /// Puts the new directory of a shard in place of the old one; a shard that does not stay here has no new one.
    pub(super) async fn exchange(&self, shard: u32, stays: bool) -> Result<(), RebalanceError> {
        match self {
            Self::Here(cluster) => Ok(exchange(cluster, shard, stays)?),
            Self::There { scripts, .. } => self.run(&scripts.exchange(shard, stays)).await,
        }
    }

    /// Removes all that stands aside, when the move is done.
    pub(super) async fn end(&self) -> Result<(), RebalanceError> {
        match self {
            Self::Here(cluster) => Ok(remove_aside(cluster)?),
            Self::There { scripts, .. } => self.run(&scripts.end()).await,
        }
    }

    /// What runs a script there.
    fn ssh(&self, script: &str) -> Command {
        let mut command = Command::new("ssh");
        if let Self::There { ssh, .. } = self {
            command.args(ssh.arguments()).arg(script);
        }
        command
    }

    async fn run(&self, script: &str) -> Result<(), RebalanceError> {
        let told = self.ssh(script).stdin(Stdio::null()).kill_on_drop(true).output().await;
        let told = told.map_err(|error| self.failed(format!("cannot start ssh: {error}; install openssh-client")))?;
        match told.status.success() {
            true => Ok(()),
            false => Err(self.failed(words(&told.stderr))),
        }
    }

    /// Runs two programs, the second of which reads what the first one writes.
    async fn pipe(&self, shard: u32, mut from: Command, mut to: Command) -> Result<(), RebalanceError> {
        let failed = |what: String| self.failed(format!("shard {shard}: {what}"));
        let started = |error: std::io::Error| failed(format!("{error}: it needs tar and openssh-client; install them"));
        from.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let mut from = from.spawn().map_err(started)?;
        let Some(Ok(pipe)) = from.stdout.take().map(TryInto::<Stdio>::try_into) else {
            return Err(failed("there is no pipe".to_owned()));
        };
        to.stdin(pipe).stdout(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true);
        let started_second = to.spawn();
        // It holds an end of the pipe, and the first program should notice when the second one has ended.
        drop(to);
        let second = started_second.map_err(started)?;
        let (first, second) = tokio::try_join!(from.wait_with_output(), second.wait_with_output()).map_err(started)?;
        if first.status.success() && second.status.success() {
            return Ok(());
        }
        Err(failed(words(&[first.stderr, second.stderr].concat())))
    }

    fn failed(&self, what: String) -> RebalanceError {
        let machine = match self {
            Self::Here(_) => "this machine",
            Self::There { machine, .. } => machine,
        };
        RebalanceError::Machine { machine: machine.to_owned(), what }
    }
}

/// Puts the new journal of a shard in place of the old one.
fn exchange(cluster: &Path, shard: u32, stays: bool) -> Result<(), DirectoryError> {
    let (place, next) = (shard_directory(cluster, shard), aside(cluster, shard, "next"));
    // Where there is no new one any more, it is in its place already.
    if place.is_dir() && (!stays || next.is_dir()) {
        rename(&place, &aside(cluster, shard, "old"))?;
    }
    if next.is_dir() { rename(&next, &place) } else { Ok(()) }
}

/// What stands beside a shard's directory.
pub(super) fn aside(cluster: &Path, shard: u32, what: &str) -> PathBuf {
    cluster.join(format!("shard-{shard}.{what}"))
}

pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DirectoryError> {
    let renamed = std::fs::rename(from, to).and_then(|()| match to.parent() {
        Some(parent) => std::fs::File::open(parent)?.sync_all(),
        None => Ok(()),
    });
    renamed.map_err(|source| DirectoryError::Io { path: from.to_owned(), source })
}

/// Removes all that stands aside in a directory.
pub(super) fn remove_aside(cluster: &Path) -> Result<(), DirectoryError> {
    let failed = |source| DirectoryError::Io { path: cluster.to_owned(), source };
    for entry in std::fs::read_dir(cluster).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_shard = |stem: &OsStr| stem.to_str().and_then(|stem| stem.strip_prefix("shard-")?.parse::<u32>().ok());
        let is_aside = path.extension().is_some_and(|what| ASIDE.iter().any(|known| what == *known));
        if is_aside && path.file_stem().and_then(is_shard).is_some() {
            remove(&path)?;
        }
    }
    Ok(())
}

pub(super) fn remove(path: &Path) -> Result<(), DirectoryError> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(DirectoryError::Io { path: path.to_owned(), source: error })
        }
        _ => Ok(()),
    }
}

fn words(said: &[u8]) -> String {
    let words = String::from_utf8_lossy(said).trim().replace('\n', "; ");
    if words.is_empty() { "it ended without a word".to_owned() } else { words }
}
