//! The keys of a cluster's machines: the one that logs in, and the one by which machines are known.
//!
//! In: a directory. Out: its keys, made when they are not there. Always: private keys are readable by nobody else; a machine is known
//! by the key that it was given, so that nothing has to be believed at the first connection.

use crate::command::Failure;
use crate::command::cluster::file::Kind;
use slackwater::host::directory;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The keys of a cluster's machines.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    /// The file of the private key that logs in, and its public half.
    pub(super) own: PathBuf,
    pub(super) own_public: String,
    /// The host key of the machines.
    pub(super) host_private: String,
    pub(super) host_public: String,
    /// The file that says which machine has which key.
    pub(super) known_hosts: PathBuf,
}

impl Keys {
    /// Reads the keys of a directory, or makes them. Azure's provider takes only RSA to log in with.
    pub(super) fn open(place: &Path, kind: Kind) -> Result<Self, Failure> {
        let (name, form): (_, &[&str]) =
            if kind == Kind::Azure { ("key_rsa", &["rsa", "-b", "4096"]) } else { ("key", &["ed25519"]) };
        let (own, host) = (place.join(name), place.join("host_key"));
        for (file, form, comment) in [(&own, form, "slackwater"), (&host, &["ed25519"], "slackwater-host")] {
            if !file.is_file() {
                make(file, form, comment)?;
            }
        }
        let read = |path: PathBuf| {
            let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
            std::fs::read_to_string(&path).map_err(named)
        };
        Ok(Self {
            own_public: read(own.with_extension("pub"))?.trim().to_owned(),
            host_private: read(host.clone())?,
            host_public: read(host.with_extension("pub"))?.trim().to_owned(),
            known_hosts: place.join("known_hosts"),
            own,
        })
    }

    /// Says that the machines at these addresses have the host key.
    pub(super) fn know<'a>(&self, addresses: impl Iterator<Item = &'a str>) -> Result<(), Failure> {
        let lines: String = addresses.map(|address| format!("{address} {}\n", self.host_public)).collect();
        directory::replace(&self.known_hosts, lines.as_bytes()).map_err(Failure::because)
    }
}

fn make(file: &Path, form: &[&str], comment: &str) -> Result<(), Failure> {
    let made = Command::new("ssh-keygen")
        .args(["-q", "-N", "", "-C", comment, "-t"])
        .args(form)
        .arg("-f")
        .arg(file)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| Failure::Failed(format!("cannot start ssh-keygen: {error}; install openssh-client")))?;
    if made.status.success() {
        return Ok(());
    }
    let words = String::from_utf8_lossy(&made.stderr).trim().to_owned();
    Err(Failure::Failed(format!("ssh-keygen could not make {}: {words}", file.display())))
}
