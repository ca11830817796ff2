//! The cluster file: how many cells and shards, and on which machines.
//!
//! In: TOML. Out: a [`ClusterFile`]. Always: what is not understood is an error with the file, the line and the mend.

use super::super::Failure;
use serde::Deserialize;
use std::net::{Ipv4Addr, SocketAddr};
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
    /// The package whose operators the shards have.
    pub(super) operators: Option<PathBuf>,
}

/// How long the disk of a machine is when the file does not say, in gigabytes.
pub(super) const DISK_GB: u32 = 20;

/// Where a machine comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// It is there, and is reached by SSH.
    #[default]
    Ssh,
    /// It is made on AWS EC2.
    Aws,
    /// It is made on Google Compute Engine.
    Gcp,
    /// It is made on Azure.
    Azure,
}

impl Kind {
    /// How the file calls it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Ssh => "ssh",
            Kind::Aws => "aws",
            Kind::Gcp => "gcp",
            Kind::Azure => "azure",
        }
    }

    /// The user that its images have, or get.
    pub(super) fn user(self) -> &'static str {
        if self == Kind::Aws { "admin" } else { "slackwater" }
    }

    /// The machine that is made when the file does not say: two processors, of this program's kind.
    pub(super) fn machine(self) -> &'static str {
        match self {
            Kind::Ssh => "",
            Kind::Aws => "m7a.large",
            Kind::Gcp => "e2-standard-2",
            Kind::Azure => "Standard_D2as_v5",
        }
    }

    /// Looks whether Terraform's provider will find credentials.
    ///
    /// # Errors
    /// Names where it looks.
    pub(super) fn credentials(self) -> Result<(), Failure> {
        let (variables, files): (&[&str], &[&str]) = match self {
            Kind::Ssh => return Ok(()),
            Kind::Aws => (
                &["AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"],
                &[".aws/credentials", ".aws/config"],
            ),
            Kind::Gcp => (
                &["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_CREDENTIALS", "GOOGLE_OAUTH_ACCESS_TOKEN"],
                &[".config/gcloud/application_default_credentials.json"],
            ),
            Kind::Azure => (&["ARM_CLIENT_ID", "ARM_USE_MSI", "ARM_USE_OIDC"], &[".azure/azureProfile.json"]),
        };
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let is_there = variables.iter().any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
            || files.iter().any(|file| home.join(file).is_file());
        if is_there {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "there are no credentials for {}: set one of {}, or log in with its own program, which writes ~/{}",
            self.name(),
            variables.join(", "),
            files[0]
        )))
    }
}

/// A machine that is reached by SSH, or one or some that are made on a cloud.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    /// What people call it.
    pub(super) name: String,
    /// Where it comes from.
    #[serde(default)]
    pub(super) kind: Kind,
    /// Its address: a name or an IP address, for SSH and for the other machines.
    pub(super) address: Option<String>,
    /// How many such machines, called `name-0`, `name-1` and so on; one with this name without it.
    pub(super) count: Option<u32>,
    /// Where they are made.
    pub(super) region: Option<String>,
    pub(super) zone: Option<String>,
    pub(super) project: Option<String>,
    /// The kind of machine, as the cloud calls it.
    pub(super) machine: Option<String>,
    /// The image, as the cloud calls it [default: Debian 12].
    pub(super) image: Option<String>,
    /// How long its disk is, in gigabytes.
    pub(super) disk_gb: Option<u32>,
    /// Who reaches its SSH server and the gateways, as address blocks.
    #[serde(default)]
    pub(super) open_to: Vec<String>,
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
    if let Some(first) = file.hosts.first() {
        let place = |host: &Host| (host.kind, host.region.clone(), host.zone.clone(), host.project.clone());
        if let Some(other) = file.hosts.iter().find(|host| place(host) != place(first)) {
            return Err(format!(
                "the hosts {} and {} are of two kinds or places; the locations of a cluster reach each other at their private addresses, so all of them are in one",
                first.name, other.name
            ));
        }
    }
    // A count makes names, too.
    let made =
        file.hosts.iter().filter_map(|host| Some((0..host.count?).map(|number| format!("{}-{number}", host.name))));
    let made: Vec<String> = made.flatten().collect();
    for (at, name) in made.iter().enumerate() {
        let is_host = file.hosts.iter().any(|host| host.count.is_none() && host.name == *name);
        if is_host || made[..at].contains(name) {
            return Err(format!("two machines would be called {name:?}; give the hosts other names"));
        }
    }
    for (index, host) in file.hosts.iter().enumerate() {
        if host.name.is_empty() {
            return Err(format!("the name of host {index} is empty; give each [[host]] a name"));
        }
        if file.hosts[..index].iter().any(|other| other.name == host.name) {
            return Err(format!("two hosts are called {:?}; give each [[host]] a name of its own", host.name));
        }
        check_kind(host)?;
        if let Some(said) = host.address.as_ref().filter(|said| said.is_empty() || said.starts_with('-')) {
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

/// Whether a host has what its kind needs, and nothing that is another kind's.
fn check_kind(host: &Host) -> Result<(), String> {
    use Kind::{Aws, Azure, Gcp, Ssh};
    let clouds: &[Kind] = &[Aws, Gcp, Azure];
    let keys: [(&str, bool, &[Kind]); 12] = [
        ("address", host.address.is_some(), &[Ssh]),
        ("port", host.port.is_some(), &[Ssh]),
        ("key", host.key.is_some(), &[Ssh]),
        ("known_hosts", host.known_hosts.is_some(), &[Ssh]),
        ("region", host.region.is_some(), &[Aws, Azure]),
        ("zone", host.zone.is_some(), &[Gcp]),
        ("project", host.project.is_some(), &[Gcp]),
        ("count", host.count.is_some(), clouds),
        ("machine", host.machine.is_some(), clouds),
        ("image", host.image.is_some(), clouds),
        ("disk_gb", host.disk_gb.is_some(), clouds),
        ("open_to", !host.open_to.is_empty(), clouds),
    ];
    let (name, kind) = (&host.name, host.kind.name());
    for (key, is_there, kinds) in keys {
        let needed = matches!(key, "address" | "region" | "zone" | "project" | "open_to");
        match (is_there, kinds.contains(&host.kind)) {
            (true, false) => {
                let kinds: Vec<&str> = kinds.iter().map(|kind| kind.name()).collect();
                return Err(format!("host {name}: {key} is not for kind {kind:?}, but for {}", kinds.join(", ")));
            }
            (false, true) if needed => return Err(format!("host {name}: {}", missing(key, kind))),
            _ => {}
        }
    }
    if host.kind == Ssh {
        return Ok(());
    }
    let is_name = |text: &str, long: usize| {
        text.len() <= long
            && text.starts_with(|c: char| c.is_ascii_lowercase())
            && text.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
            && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    };
    if !is_name(name, 24) {
        return Err(format!(
            "host {name}: the name of a machine of a cloud has at most 24 lower-case letters, digits and -, and begins with a letter"
        ));
    }
    for place in [&host.region, &host.zone].into_iter().flatten() {
        if !is_name(place, 40) {
            return Err(format!(
                "host {name}: {place:?} is no place of {kind}; give one as the cloud writes it (us-east-1, europe-west1-b, westeurope)"
            ));
        }
    }
    if let Some(user) = host.user.as_ref().filter(|user| !is_name(user, 32)) {
        return Err(format!("host {name}: {user:?} is no name of a user there"));
    }
    if host.count.is_some_and(|count| !(1..=64).contains(&count)) {
        return Err(format!("host {name}: count has to be a number from 1 to 64"));
    }
    if host.disk_gb.is_some_and(|disk| !(10..=16_384).contains(&disk)) {
        return Err(format!("host {name}: disk_gb has to be a number from 10 to 16384"));
    }
    if host.kind == Azure && host.image.as_ref().is_some_and(|image| image.split(':').count() != 4) {
        return Err(format!("host {name}: an image of azure is publisher:offer:sku:version"));
    }
    if let Some(directory) = host.directory.as_ref().filter(|directory| {
        let text = directory.to_string_lossy();
        !directory.is_absolute() || text.contains(['\'', '$', '\n'])
    }) {
        return Err(format!(
            "host {name}: its directory {} has to begin with / and be a plain path",
            directory.display()
        ));
    }
    let is_block = |block: &&String| {
        let parts = block.split_once('/');
        !parts.is_some_and(|(address, bits)| {
            address.parse::<Ipv4Addr>().is_ok() && bits.parse::<u8>().is_ok_and(|bits| bits <= 32)
        })
    };
    match host.open_to.iter().find(is_block) {
        Some(block) => {
            Err(format!("host {name}: open_to: {block:?} is no block of addresses; write it as 203.0.113.7/32"))
        }
        None => Ok(()),
    }
}

fn missing(key: &str, kind: &str) -> String {
    match key {
        "open_to" => format!(
            "kind {kind:?} needs open_to, who reaches SSH and the gateways: open_to = [\"203.0.113.7/32\"] for the machine that starts the cluster"
        ),
        _ => format!("missing field `{key}`, which kind {kind:?} needs"),
    }
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
