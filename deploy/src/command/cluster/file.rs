//! The cluster file: how many cells and shards, and on which machines.
//!
//! In: TOML. Out: a [`ClusterFile`]. Always: what is not understood is an error with the file, the line and the mend.

use super::super::Failure;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a cluster file says.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ClusterFile {
    #[serde(default)]
    pub(super) cluster: Cluster,
    #[serde(default, rename = "host")]
    pub(super) hosts: Vec<Host>,
}

/// What the cluster is.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Cluster {
    /// How many cells.
    pub(super) cells: Option<u32>,
    /// How many shards each cell has.
    pub(super) shards: Option<u32>,
    /// How many toolhosts each cell has.
    pub(super) toolhosts: Option<u32>,
    /// Where the cluster is kept on this machine.
    pub(super) directory: Option<PathBuf>,
    /// Where the first cell's gateway listens; with hosts only the port counts.
    pub(super) listen: Option<SocketAddr>,
    /// How many virtual shards a new cluster has.
    pub(super) virtual_shards: Option<u32>,
    /// Whether the locations are compiled for speed.
    pub(super) release: bool,
    /// Whether each shard is bound to a processor of its own.
    pub(super) pin: bool,
}

/// A machine that is reached by SSH.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    /// What people call it.
    pub(super) name: String,
    /// Its address: a name or an IP address, for SSH and for the other machines.
    pub(super) address: String,
    /// The user there [default: as ssh has it].
    pub(super) user: Option<String>,
    /// The port of its SSH server [default: as ssh has it].
    pub(super) port: Option<u16>,
    /// The file with the private key [default: as ssh has it].
    pub(super) key: Option<PathBuf>,
    /// The file with the hosts' keys [default: as ssh has it].
    pub(super) known_hosts: Option<PathBuf>,
    /// Where the cluster is kept there.
    pub(super) directory: Option<PathBuf>,
}

/// Reads a cluster file.
pub(super) fn read(path: &Path) -> Result<ClusterFile, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::Failed(format!("cannot read the cluster file {}: {error}; give the path of one", path.display()))
    })?;
    let file: ClusterFile = toml::from_str(&text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start).min(text.len());
        let line = text[..at].matches('\n').count() + 1;
        Failure::Usage(format!("{}, line {line}: {}", path.display(), error.message().replace('\n', ", ")))
    })?;
    check(&file).map_err(|what| Failure::Usage(format!("{}: {what}", path.display())))?;
    Ok(file)
}

fn check(file: &ClusterFile) -> Result<(), String> {
    let Cluster { cells, shards, toolhosts, virtual_shards, .. } = file.cluster;
    for (name, count) in [("cells", cells), ("shards", shards), ("toolhosts", toolhosts)] {
        if count.is_some_and(|count| !(1..=64).contains(&count)) {
            return Err(format!("cluster.{name} is {}; give a number from 1 to 64", count.unwrap_or_default()));
        }
    }
    if virtual_shards.is_some_and(|count| !(1..=65_536).contains(&count)) {
        return Err("cluster.virtual_shards has to be a number from 1 to 65536".to_owned());
    }
    for (index, host) in file.hosts.iter().enumerate() {
        if host.name.is_empty() {
            return Err(format!("the name of host {index} is empty; give each [[host]] a name"));
        }
        if file.hosts[..index].iter().any(|other| other.name == host.name) {
            return Err(format!("two hosts are called {:?}; give each [[host]] a name of its own", host.name));
        }
        if host.address.is_empty() || host.address.starts_with('-') {
            let said = &host.address;
            return Err(format!("host {}: {said:?} is no address; give a name or an IP address", host.name));
        }
        if host.user.as_ref().is_some_and(|user| user.is_empty() || user.starts_with('-')) {
            return Err(format!("host {}: its user has no name", host.name));
        }
        for key in [&host.key, &host.known_hosts].into_iter().flatten() {
            if !key.is_file() {
                return Err(format!(
                    "host {}: there is no file {}; give the file, or leave the line out to use what ssh finds",
                    host.name,
                    key.display()
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn what_a_file_says_is_read() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cluster.toml");
        let text = "[cluster]\ncells = 2\n[[host]]\nname = 'a'\naddress = '192.0.2.1'\nuser = 'me'\nport = 2222\n";
        std::fs::write(&path, text).unwrap();
        let file = read(&path).unwrap();
        assert_eq!((file.cluster.cells, file.cluster.shards, file.hosts.len()), (Some(2), None, 1));
        assert_eq!(file.hosts[0].port, Some(2222));
    }

    #[test]
    fn bad_input_is_told_with_place_and_mend() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("cluster.toml");
        let host = |more: &str| format!("[[host]]\nname = 'a'\naddress = 'x'\n{more}");
        for (text, said) in [
            ("[cluster]\nshard = 3\n".to_owned(), "line 2: unknown field `shard`, expected"),
            ("[clutser]\n".to_owned(), "line 1: unknown field `clutser`"),
            ("[cluster]\ncells = 0\n".to_owned(), "cluster.cells is 0; give a number from 1 to 64"),
            ("[cluster]\ncells = 'two'\n".to_owned(), "line 2: invalid type"),
            (host("") + &host(""), "two hosts are called \"a\"; give each"),
            (host("key = '/nowhere/key'"), "host a: there is no file /nowhere/key; give the file"),
            (host("passwort = 'x'"), "line 4: unknown field `passwort`"),
            ("[[host]]\nname = 'a'\n".to_owned(), "missing field `address`"),
            ("[[host]]\nname = 'a'\naddress = '-oProxyCommand=x'\n".to_owned(), "is no address"),
        ] {
            std::fs::write(&path, &text).unwrap();
            let failure = read(&path).unwrap_err();
            let words = failure.words().unwrap();
            assert!(words.contains(said) && words.starts_with(&path.display().to_string()), "{words}");
            assert_eq!(failure.status(), 2);
        }
        let failure = read(&place.path().join("none.toml")).unwrap_err();
        assert!(failure.words().unwrap().contains("cannot read the cluster file"), "{failure:?}");
    }
}
