//! `slackwater cluster export --ecs`: what it takes to run a gateway, shards and a toolhost as containers on AWS ECS.
//!
//! In: how many shards, and a directory. Out: in it Hydro's manifest, a Dockerfile for each location, and a script that builds
//! their programs. Always: nothing is built or sent anywhere; a shard has a number and a disk, so each is a service of its own.

use super::Failure;
use crate::output;
use serde::Deserialize;
use slackwater::host::containers::SHARDS_MAX;
use slackwater::sidecar::{SETTINGS_VARIABLE, SHARD_VARIABLE, SHARDS_VARIABLE, TOOLHOST_VARIABLE};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The port that the gateway listens on in its container.
const PORT: u16 = 7070;

/// Where every container has the cluster's directory mounted.
const STATE: &str = "/var/lib/slackwater";

/// The settings of the cluster, which a person completes before the images are built.
const SETTINGS: &str = r#"# The settings of all locations. Complete this before the images are built.
directory = "/var/lib/slackwater"

[model]
provider = "scripted"                      # a real one: "anthropic" or "openai", and its key in the task's environment

[gateway]
listen = "0.0.0.0:7070"
public_url = "http://slackwater.internal"  # where tools reach the gateway: the load balancer's address
keys = []                                  # without keys nobody but its own machine is let in
"#;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater cluster export --ecs --shards 2 --output ecs
  sh ecs/build.sh && docker build -f ecs/shard0.Dockerfile ecs

Hydro generates a program for each location from the checkout that this program was built from: some minutes the first time,
since it takes Hydro's code for AWS. deploy/docs/ecs.md says how the containers are run, and what of it was not tried.")]
pub(crate) struct Arguments {
    /// Write a manifest for AWS ECS; there is no other kind
    #[arg(long, required = true)]
    ecs: bool,
    /// How many shards
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=i64::from(SHARDS_MAX)))]
    shards: u32,
    /// Write into this directory; it must not be there, or be empty
    #[arg(long, short, value_name = "DIR", default_value = "slackwater-ecs")]
    output: PathBuf,
}

/// Hydro's manifest, as far as it is read here.
#[derive(Deserialize)]
struct Manifest {
    processes: BTreeMap<String, Process>,
}

#[derive(Deserialize)]
struct Process {
    build: Build,
    task_family: String,
}

#[derive(Deserialize)]
struct Build {
    project_dir: PathBuf,
    target_dir: PathBuf,
    bin_name: String,
    package_name: String,
    features: Vec<String>,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let Arguments { ecs: _, shards, output: directory } = arguments;
    let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(&directory).map_err(named)?;
    if std::fs::read_dir(&directory).map_err(named)?.next().is_some() {
        let words = format!("{} is not empty; give another directory with --output", directory.display());
        return Err(Failure::Failed(words));
    }
    let json = exported(shards)?;
    let manifest: Manifest = serde_json::from_str(&json)
        .map_err(|error| Failure::Failed(format!("the manifest is not as it should be: {error}")))?;
    let mut files = vec![
        ("manifest.json".to_owned(), json),
        ("cluster.toml".to_owned(), SETTINGS.to_owned()),
        ("build.sh".to_owned(), build_script(&manifest)),
    ];
    for (name, process) in &manifest.processes {
        let name = name.rsplit("::").next().unwrap_or(name).to_lowercase();
        files.push((format!("{name}.Dockerfile"), dockerfile(&name, process, shards)));
    }
    for (name, text) in files {
        std::fs::write(directory.join(name), text).map_err(named)?;
    }
    output::line(format!(
        "{} has the manifest and the Dockerfiles of a gateway, a toolhost and {shards} shards; next: complete cluster.toml, then sh build.sh",
        directory.display()
    ));
    Ok(())
}

/// Hydro's manifest, from the checkout that this program was built from.
fn exported(shards: u32) -> Result<String, Failure> {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !package.join("Cargo.toml").is_file() {
        return Err(Failure::Failed(format!(
            "the checkout that this program was built from is not at {} any more, and the locations are generated from it; build the program again where the checkout is",
            package.display()
        )));
    }
    let run = ["run", "--package", "slackwater", "--features", "ecs", "--example", "export_ecs", "--"];
    let exported = Command::new("cargo")
        .args(run)
        .args([shards.to_string(), PORT.to_string()])
        .current_dir(package)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| {
            Failure::Failed(format!("cannot start cargo: {error}; install Rust, or put cargo into PATH"))
        })?;
    if !exported.status.success() {
        return Err(Failure::Failed(format!("the export has ended ({}); what it said is above", exported.status)));
    }
    String::from_utf8(exported.stdout).map_err(Failure::because)
}

/// What builds the locations' programs and puts them beside the Dockerfiles.
fn build_script(manifest: &Manifest) -> String {
    let mut script = String::from(
        "#!/bin/sh\n# Builds the program of each location. The images are of the Debian that this machine has: the programs need its libc.\nset -eu\ncd \"$(dirname \"$0\")\"\nmkdir -p bin\n",
    );
    for Process { build, .. } in manifest.processes.values() {
        let Build { project_dir, target_dir, bin_name, package_name, features } = build;
        let (project, target) = (project_dir.display(), target_dir.display());
        // As every program of ours: see the package's features.
        let features = [&features[..], &["jemalloc".to_owned()]].concat().join(",");
        // Writing to a String does not fail.
        let _ = writeln!(
            script,
            "(cd '{project}' && STAGELEFT_TRYBUILD_BUILD_STAGED=1 cargo build --release --package '{package_name}' --example '{bin_name}' --no-default-features --features '{features}' --target-dir '{target}')\ncp '{target}/release/examples/{bin_name}' bin/"
        );
    }
    script
}

/// The image of a location.
fn dockerfile(name: &str, process: &Process, shards: u32) -> String {
    let Process { build, task_family } = process;
    let program = &build.bin_name;
    let debian = debian();
    let (number, port) = match name.strip_prefix("shard") {
        Some(number) => (format!(" \\\n    {SHARD_VARIABLE}={number}"), String::new()),
        None if name == "toolhost" => (format!(" \\\n    {TOOLHOST_VARIABLE}=0"), String::new()),
        None => (String::new(), format!("EXPOSE {PORT}\n")),
    };
    format!(
        r#"# {name}: the task family {task_family} of manifest.json. Build the programs first: sh build.sh
FROM debian:{debian}-slim
# What the programs ask of the system: the certificates of the providers.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends ca-certificates=* \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir {STATE} slackwater \
    && install --directory --owner=slackwater {STATE}
COPY bin/{program} /usr/local/bin/location
COPY cluster.toml /etc/slackwater/cluster.toml
ENV {SETTINGS_VARIABLE}=/etc/slackwater/cluster.toml \
    {SHARDS_VARIABLE}={shards}{number}
USER 10001
VOLUME {STATE}
{port}STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/location"]
"#
    )
}

/// The name of this machine's Debian, which the programs are linked against; the one that we test on, if it has none.
fn debian() -> String {
    let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
    let is_debian = release.lines().any(|line| line == "ID=debian");
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.filter(|_| is_debian).unwrap_or("bookworm").to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    const MANIFEST: &str = r#"{
        "processes": {
            "slackwater::host::cluster::Gateway": {
                "build": { "project_dir": "/c/target/hydro_trybuild/slackwater", "target_dir": "/c/target/hydro_trybuild",
                    "bin_name": "gateway_1A", "package_name": "slackwater-hydro-trybuild",
                    "features": ["hydro___feature_ecs_runtime", "default"] },
                "ports": { "exposed-7070": { "protocol": "tcp", "port": 7070 } },
                "task_family": "hy-gateway-loc1v1"
            },
            "slackwater::host::containers::Shard1": {
                "build": { "project_dir": "/c/p", "target_dir": "/c/t", "bin_name": "shard1_2B", "package_name": "x", "features": [] },
                "ports": {},
                "task_family": "hy-shard1-loc3v1"
            }
        },
        "clusters": {}
    }"#;

    fn dockerfiles() -> Vec<String> {
        let manifest: Manifest = serde_json::from_str(MANIFEST).unwrap();
        ["gateway", "shard1"]
            .iter()
            .zip(manifest.processes.values())
            .map(|(name, one)| dockerfile(name, one, 2))
            .collect()
    }

    #[test]
    fn a_location_has_its_program_its_number_and_its_port() {
        let [gateway, shard] = dockerfiles().try_into().unwrap();
        assert!(gateway.contains("COPY bin/gateway_1A ") && shard.contains("COPY bin/shard1_2B "));
        assert!(gateway.contains("EXPOSE 7070") && !shard.contains("EXPOSE"));
        let number = format!("{SHARD_VARIABLE}=1");
        let own = format!("{SHARD_VARIABLE}=");
        assert!(shard.contains(&number) && !gateway.contains(&own) && gateway.contains(SHARDS_VARIABLE));
        assert!([gateway, shard].iter().all(|file| file.contains(SETTINGS_VARIABLE) && file.contains("USER 10001")));
    }

    #[test]
    fn the_settings_are_settings() {
        let settings: slackwater::settings::Settings = toml::from_str(SETTINGS).unwrap();
        assert_eq!((settings.gateway.listen.port(), settings.directory), (PORT, PathBuf::from(STATE)));
    }

    #[test]
    fn the_script_builds_what_the_manifest_says() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("build.sh");
        std::fs::write(&path, build_script(&serde_json::from_str(MANIFEST).unwrap())).unwrap();
        assert!(Command::new("sh").arg("-n").arg(&path).status().unwrap().success(), "it is no script");
        let text = std::fs::read_to_string(&path).unwrap();
        let line = "STAGELEFT_TRYBUILD_BUILD_STAGED=1 cargo build --release --package 'slackwater-hydro-trybuild' --example 'gateway_1A' --no-default-features --features 'hydro___feature_ecs_runtime,default,jemalloc'";
        assert!(text.contains(line), "{text}");
        assert!(text.contains("cp '/c/t/release/examples/shard1_2B' bin/"), "{text}");
    }

    #[test]
    fn hadolint_finds_nothing_in_a_dockerfile() {
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let peers = std::env::var_os("SLACKWATER_PEERS").map_or(checkout.join("target/peers"), PathBuf::from);
        let linter = peers.join("hadolint/bin/hadolint");
        assert!(linter.is_file(), "{} is not installed; run: bash tests/peers/hadolint.sh", linter.display());
        for text in dockerfiles() {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("Dockerfile");
            std::fs::write(&path, &text).unwrap();
            let said = Command::new(&linter).arg(&path).output().unwrap();
            assert!(said.status.success(), "{}\n{text}", String::from_utf8_lossy(&said.stdout));
        }
    }
}
