//! Machines of a cloud: made by Terraform before a cluster starts, kept as long as it exists, and used by SSH.
//!
//! In: the hosts of a cluster file that name a cloud. Out: machines as the rest of the program knows them. Always: what was made is
//! in the Terraform state of the cluster's directory, also when this is broken off; the same file makes nothing twice; a machine is
//! talked to only when it shows the host key that it was given.
//!
//! The kinds of resources are those of hydro_deploy's hosts. Those are not used themselves: they name everything anew at each
//! start and destroy it at the end, and the disks of these machines have the shards' state.

mod aws;
mod azure;
mod configuration;
mod gcp;
mod keys;
mod site;
mod terraform;

use super::file::{ClusterFile, Host, Kind};
use crate::command::Failure;
use crate::command::signals::Signals;
use crate::output;
pub(super) use configuration::Configuration;
use keys::Keys;
use site::Site;
use slackwater::host::directory;
use slackwater::host::plan::{Machine, Ssh};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use terraform::Terraform;

/// How long a machine may take from being made to answering by SSH.
const BOOT_MAX: Duration = Duration::from_secs(600);

/// Where the cluster is kept on a machine when the file does not say.
const DIRECTORY: &str = "/var/lib/slackwater";

/// One machine to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// What people call it; the name of its resources too.
    pub(super) name: String,
    pub(super) user: String,
    pub(super) machine: String,
    pub(super) image: Option<String>,
    pub(super) disk_gb: u32,
    pub(super) directory: PathBuf,
}

/// All machines to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cloud {
    pub(super) kind: Kind,
    /// The region; with GCP the zone.
    pub(super) place: String,
    /// GCP's project.
    pub(super) project: Option<String>,
    /// Who reaches SSH and the gateways.
    pub(super) open_to: Vec<String>,
    /// The first gateway's port, and how many there are.
    pub(super) gateways: (u16, u32),
    pub(super) machines: Vec<Wanted>,
}

impl Cloud {
    /// What a cluster file wants of a cloud; nothing if it names none. The file has been checked.
    pub(super) fn of(file: &ClusterFile, gateways: (u16, u32)) -> Option<Self> {
        let first = file.hosts.first().filter(|host| host.kind != Kind::Ssh)?;
        let mut open_to: Vec<String> = file.hosts.iter().flat_map(|host| host.open_to.clone()).collect();
        open_to.sort();
        open_to.dedup();
        Some(Self {
            kind: first.kind,
            place: first.region.clone().or_else(|| first.zone.clone()).unwrap_or_default(),
            project: first.project.clone(),
            open_to,
            gateways,
            machines: file.hosts.iter().flat_map(wanted).collect(),
        })
    }

    /// What Terraform is to make. `cluster` tells this cluster's resources from others'.
    pub(super) fn configuration(&self, cluster: &str, keys: &Keys) -> Configuration {
        let prefix = format!("slackwater-{}", cluster.split('-').next().unwrap_or(cluster));
        match self.kind {
            Kind::Aws => aws::configuration(self, &prefix, keys),
            Kind::Gcp => gcp::configuration(self, &prefix, keys),
            Kind::Azure => azure::configuration(self, &prefix, keys),
            Kind::Ssh => unreachable!("a host that is there is not made"),
        }
    }
}

/// The machines of one `[[host]]`.
fn wanted(host: &Host) -> Vec<Wanted> {
    let named = |name: String| Wanted {
        name,
        user: host.user.clone().unwrap_or_else(|| host.kind.user().to_owned()),
        machine: host.machine.clone().unwrap_or_else(|| host.kind.machine().to_owned()),
        image: host.image.clone(),
        disk_gb: host.disk_gb.unwrap_or(super::file::DISK_GB),
        directory: host.directory.clone().unwrap_or_else(|| DIRECTORY.into()),
    };
    match host.count {
        None => vec![named(host.name.clone())],
        Some(count) => (0..count).map(|number| named(format!("{}-{number}", host.name))).collect(),
    }
}

/// Where Terraform works for a cluster.
fn workplace(cluster: &Path) -> PathBuf {
    cluster.join("terraform")
}

/// The file with the name of a cluster that has been planned: what is made is called by it.
fn name_file(cluster: &Path) -> PathBuf {
    workplace(cluster).join("name")
}

/// The name of a cluster that has been planned and not started yet.
pub(super) fn planned_name(cluster: &Path) -> Option<String> {
    std::fs::read_to_string(name_file(cluster)).ok()
}

/// Looks whether a start can go on to make machines, before anything is written down; whether a start that asks for none
/// leaves some behind.
pub(super) fn check(cloud: Option<&Cloud>, cluster: &Path) -> Result<(), Failure> {
    Site::check(cloud, &workplace(cluster))?;
    cloud.map_or(Ok(()), |cloud| {
        Terraform::find(&workplace(cluster))?;
        cloud.kind.credentials()
    })
}

/// Writes what Terraform is to make. Returns the keys, and where it is.
fn write(cloud: &Cloud, cluster: &Path, name: &str) -> Result<(Keys, PathBuf), Failure> {
    let place = workplace(cluster);
    directory::make_directory(&place).map_err(Failure::because)?;
    let keys = Keys::open(&place, cloud.kind)?;
    let text = cloud.configuration(name, &keys).to_json();
    directory::replace(&place.join("main.tf.json"), text.as_bytes()).map_err(Failure::because)?;
    Ok((keys, place))
}

/// Writes what would be made, and says it.
pub(super) fn plan(cloud: &Cloud, cluster: &Path, name: &str) -> Result<(), Failure> {
    Site::check(Some(cloud), &workplace(cluster))?;
    let (_, place) = write(cloud, cluster, name)?;
    directory::replace(&name_file(cluster), name.as_bytes()).map_err(Failure::because)?;
    for Wanted { name, machine, image, disk_gb, user, .. } in &cloud.machines {
        let image = image.as_deref().unwrap_or("Debian 12");
        output::line(format!("{name}: {machine} in {}, {image}, a disk of {disk_gb} GB, user {user}", cloud.place));
    }
    let (port, gateways) = cloud.gateways;
    output::line(format!(
        "SSH and the gateways' ports {port} to {} are open to {}",
        u32::from(port) + gateways - 1,
        cloud.open_to.join(", ")
    ));
    output::line(format!(
        "nothing was made; {} has it for Terraform, and `slackwater cluster up` makes it",
        place.join("main.tf.json").display()
    ));
    Ok(())
}

/// Makes what is not there yet, and returns the machines in the file's order. It was checked before.
pub(super) async fn provision(cloud: &Cloud, cluster: &Path, name: &str) -> Result<Vec<Machine>, Failure> {
    let terraform = Terraform::find(&workplace(cluster))?;
    let (keys, place) = write(cloud, cluster, name)?;
    output::line(format!("making {} machines in {} with {}", cloud.machines.len(), cloud.place, terraform.name()));
    let mut signals = Signals::new()?;
    terraform.run(&["init", "-input=false"], &mut signals).await?;
    terraform.check_keeps(&mut signals).await?;
    Site::keep(cloud, &place)?;
    terraform.run(&["apply", "-input=false", "plan"], &mut signals).await?;
    let outputs = terraform.outputs().await?;
    let mut machines = Vec::new();
    for wanted in &cloud.machines {
        let output = |what: &str| {
            let name = format!("{}_{what}", wanted.name);
            outputs.get(&name).cloned().ok_or_else(|| {
                Failure::Failed(format!("Terraform did not say the output {name}; {} has its state", place.display()))
            })
        };
        let (public, private) = (output("public")?, output("private")?);
        machines.push(Machine {
            name: wanted.name.clone(),
            address: private,
            public_address: Some(public.clone()),
            directory: wanted.directory.clone(),
            ssh: Some(Ssh {
                destination: format!("{}@{public}", wanted.user),
                port: None,
                key: Some(keys.own.clone()),
                known_hosts: Some(keys.known_hosts.clone()),
            }),
        });
    }
    keys.know(machines.iter().filter_map(|machine| machine.public_address.as_deref()))?;
    for machine in &machines {
        boot(machine, &mut signals).await?;
    }
    Ok(machines)
}

/// Waits until a machine answers as itself.
async fn boot(machine: &Machine, signals: &mut Signals) -> Result<(), Failure> {
    let Some(ssh) = &machine.ssh else { return Ok(()) };
    let begun = Instant::now();
    loop {
        let mut command = tokio::process::Command::new("ssh");
        command.args(ssh.arguments()).arg("true").stdin(std::process::Stdio::null()).kill_on_drop(true);
        let answered = tokio::select! {
            answered = command.output() => answered.map_err(|error| {
                Failure::Failed(format!("cannot start ssh: {error}; install openssh-client"))
            })?,
            () = signals.next() => return Err(Failure::Failed(
                "stopped; the machines are kept, and `slackwater cluster up` goes on with them".to_owned(),
            )),
        };
        if answered.status.success() {
            output::line(format!(
                "{} is up at {}",
                machine.name,
                machine.public_address.as_deref().unwrap_or_default()
            ));
            return Ok(());
        }
        if begun.elapsed() > BOOT_MAX {
            return Err(Failure::Failed(format!(
                "host {}: it was made, and does not answer by SSH within {} s: {}; look at its console, and try again or `slackwater cluster destroy`",
                machine.name,
                BOOT_MAX.as_secs(),
                String::from_utf8_lossy(&answered.stderr).trim()
            )));
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Destroys the machines of a cluster, and what says that it exists.
pub(super) async fn destroy(cluster: &Path, yes: bool) -> Result<(), Failure> {
    let place = workplace(cluster);
    if !place.join("main.tf.json").is_file() {
        return Err(Failure::Failed(format!(
            "{} has no machines of a cloud; what runs on other machines is ended with `slackwater cluster down`",
            cluster.display()
        )));
    }
    if slackwater::host::plan::running(cluster).map_err(Failure::because)?.is_some() {
        return Err(Failure::Failed("the cluster runs; end it first with `slackwater cluster down`".to_owned()));
    }
    if !yes {
        return Err(Failure::Usage(
            "this destroys the machines, their disks and all threads on them; say --yes if that is meant, or copy them before with `slackwater backup`".to_owned(),
        ));
    }
    let terraform = Terraform::find(&place)?;
    let mut signals = Signals::new()?;
    terraform.run(&["init", "-input=false"], &mut signals).await?;
    terraform.run(&["destroy", "-input=false", "-auto-approve"], &mut signals).await?;
    // The state of its shards is gone with the machines: a new start is a new cluster.
    let main = place.join("main.tf.json");
    for left in [directory::manifest_file(cluster), name_file(cluster), site::file(&place), main] {
        match std::fs::remove_file(&left) {
            // One that was only planned has no manifest.
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Failure::Failed(format!("{}: {error}", left.display())));
            }
            _ => {}
        }
    }
    output::line("the machines and their disks are destroyed");
    Ok(())
}

#[cfg(test)]
mod tests;
