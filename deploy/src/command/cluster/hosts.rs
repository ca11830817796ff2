//! Whether a machine can take locations, asked before anything starts.
//!
//! In: a host of the cluster file. Out: nothing, or the host's name, what is wrong with it and what to do. Always: nothing there is
//! changed but the cluster's directory, which is made.

use crate::command::Failure;
use slackwater::host::directory::{Manifest, shard_directory};
use slackwater::host::plan::{Machine, quoted};
use tokio::process::Command;

/// The oldest kernel on which the journal was tried.
const KERNEL_MIN: (u32, u32) = (4, 18);

/// What the programs and a little state need, in KiB.
const FREE_KIB_MIN: u64 = 2 << 20;

/// Looks at a machine, and at the state of the shards that it will have.
pub(super) async fn check(machine: &Machine, manifest: &Manifest, shards: &[u32]) -> Result<(), Failure> {
    let told = ask(machine, shards).await?;
    let failed = |what: String| Err(Failure::Failed(format!("host {}: {what}", machine.name)));
    let field = |name: &str| {
        told.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap_or_default().trim()
    };
    let kernel = field("kernel");
    if version(kernel) < KERNEL_MIN {
        let (major, minor) = KERNEL_MIN;
        return failed(format!("its kernel is {kernel}, and {major}.{minor} or later is needed; use a newer machine"));
    }
    let (own, theirs) = (std::env::consts::ARCH, field("machine"));
    if own != theirs {
        return failed(format!(
            "it is {theirs}, and the locations are compiled here for {own}; use a machine of the same kind"
        ));
    }
    let libc = field("libc");
    let here =
        Command::new("getconf").arg("GNU_LIBC_VERSION").output().await.map(|told| told.stdout).unwrap_or_default();
    let here = String::from_utf8_lossy(&here).trim().to_owned();
    if version(libc.trim_start_matches("glibc ")) < version(here.trim_start_matches("glibc ")) {
        return failed(format!(
            "it has {libc:?} and this machine {here:?}; start the cluster from a machine that is not newer"
        ));
    }
    match field("free").parse::<u64>() {
        Ok(free) if free < FREE_KIB_MIN => {
            let place = machine.directory.display();
            return failed(format!(
                "{place} has {} MiB free, and {} are needed; make room, or give another directory",
                free >> 10,
                FREE_KIB_MIN >> 10
            ));
        }
        Ok(_) => {}
        Err(_) => {
            return failed(format!("{} cannot be made or written: {}", machine.directory.display(), field("made")));
        }
    }
    for shard in shards {
        check_state(machine, manifest, *shard, field(&format!("shard-{shard}")))?;
    }
    Ok(())
}

/// Whether what a host has of a shard is what it should have: the words of its `shard.json`.
fn check_state(machine: &Machine, manifest: &Manifest, shard: u32, owner: &str) -> Result<(), Failure> {
    let place = shard_directory(&machine.directory, shard);
    let known = manifest.known.contains(&shard);
    match serde_json::from_str::<serde_json::Value>(owner) {
        Ok(owner) if owner["cluster"] == manifest.cluster.as_str() && owner["shard"] == shard => Ok(()),
        Ok(owner) => Err(Failure::Failed(format!(
            "host {}: {} is the state of shard {} of the cluster {}, not of shard {shard} of {}; give the host another directory",
            machine.name,
            place.display(),
            owner["shard"],
            owner["cluster"].as_str().unwrap_or_default(),
            manifest.cluster
        ))),
        Err(_) if known => Err(Failure::Failed(format!(
            "host {}: shard {shard}: its state is gone: {} is not there. Mount its disk or restore it from a backup; it is not started empty, because that would lose what was acknowledged",
            machine.name,
            place.display()
        ))),
        Err(_) => Ok(()),
    }
}

async fn ask(machine: &Machine, shards: &[u32]) -> Result<String, Failure> {
    let Some(ssh) = &machine.ssh else { return Ok(String::new()) };
    let place = quoted(&machine.directory);
    let mut script = format!(
        "echo kernel=$(uname -r); echo machine=$(uname -m); echo libc=$(getconf GNU_LIBC_VERSION 2>&1); \
         made=$(umask 077; mkdir -p {place} 2>&1 && test -w {place} 2>&1) && \
         echo free=$(df -Pk {place} | tail -n 1 | awk '{{print $4}}'); echo made=$made;"
    );
    for shard in shards {
        let owner = quoted(&shard_directory(&machine.directory, *shard).join("shard.json"));
        script.push_str(&format!(" echo shard-{shard}=$(cat {owner} 2>/dev/null);"));
    }
    let told = Command::new("ssh").args(ssh.arguments()).arg(script).stdin(std::process::Stdio::null()).output().await;
    let told = told.map_err(|error| Failure::Failed(format!("cannot start ssh: {error}; install openssh-client")))?;
    if told.status.success() {
        return Ok(String::from_utf8_lossy(&told.stdout).into_owned());
    }
    let words = String::from_utf8_lossy(&told.stderr).trim().replace('\n', "; ");
    let mend = if words.contains("ermission denied") {
        "give its key (`key`) and user, or load the key into ssh-agent"
    } else if words.contains("Host key verification failed") || words.contains("host key is known") {
        "connect to it once with ssh to see and accept its key, or give `known_hosts`"
    } else {
        "is it on, and does its SSH server answer at this address and port?"
    };
    Err(Failure::Failed(format!("host {}: {} cannot be reached: {words}; {mend}", machine.name, ssh.destination)))
}

/// The first two numbers of a version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit()).map(|piece| piece.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_by_number() {
        assert!(version("4.9.0-12-amd64") < version("4.18"));
        assert!(version("6.1.0") > version("5.15.3"));
        assert_eq!(version("no version"), (0, 0));
    }
}
