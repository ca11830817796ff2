//! `slackwater cluster`: a gateway and shards as processes that hydro_deploy places on this machine.
//!
//! In: the configuration, and how many shards. Out: a cluster that runs until it is told to stop. Always: the state of the
//! shards stays in the directory; SIGTERM or SIGINT ends all processes; a launch that fails says what the launcher said.

use super::Failure;
use super::client::Client;
use super::signals::Signals;
use crate::{Settings, output};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

/// The configuration that the locations read, in the cluster's directory.
const SETTINGS_FILE: &str = "cluster.toml";

/// What the launcher and the locations say, in the cluster's directory.
const LOG_FILE: &str = "cluster.log";

/// How often it is looked whether the cluster is ready, and still there.
const LOOK_MS: u64 = 200;

/// How often in a row the gateway may fail to answer before the cluster is taken for broken. Hydro's channels are fail-stop: a
/// location that ends takes those along that send to it, and the wired group starts again only as a whole.
const SILENT_LOOKS_MAX: u32 = 25;

/// How many lines of the launcher's last words are shown.
const LAST_WORDS: usize = 12;

#[derive(clap::Subcommand)]
pub(crate) enum Command {
    /// Place a gateway and shards as processes on this machine, and run them until told to stop
    #[command(after_help = "\
Examples:
  slackwater cluster up
  slackwater cluster up --shards 4 --directory /var/lib/agents --listen 127.0.0.1:7070

Each location is compiled with cargo when it is placed, so this needs the checkout that the program was built from: a
minute or two the first time, then seconds. The number of shards belongs to the directory: with another number, threads
would be looked for where they are not, so it is refused. Ctrl-C ends all processes; what was acknowledged is on disk.")]
    Up(Up),
    /// Write what it takes to run a gateway and shards as containers
    Export(super::containers::Arguments),
}

#[derive(clap::Args)]
pub(crate) struct Up {
    #[command(flatten)]
    settings: Settings,
    /// How many shards
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    shards: u32,
    /// The address and port that the gateway listens on; not port 0 [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", help_heading = "Configuration")]
    listen: Option<String>,
}

pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Up(arguments) => super::block_on(up(arguments)),
        Command::Export(arguments) => super::containers::run(arguments),
    }
}

async fn up(arguments: Up) -> Result<(), Failure> {
    let listen = ("--listen", "gateway.listen", arguments.listen.as_ref());
    let loaded = arguments.settings.load(&[listen])?;
    let address = loaded.config.gateway.listen;
    if address.port() == 0 {
        return Err(Failure::Usage("--listen: a cluster needs a port that stays the same, because tools keep the address of their callbacks; give another than 0".to_owned()));
    }
    if std::net::TcpStream::connect_timeout(&address, Duration::from_millis(LOOK_MS)).is_ok() {
        return Err(Failure::Failed(format!(
            "something listens on {address} already; give another address with --listen"
        )));
    }
    let directory = prepare(&loaded.config.directory, arguments.shards)?;
    let settings = directory.join(SETTINGS_FILE);
    write(&settings, &loaded.to_toml(&directory, &arguments.settings.tools))?;

    let log = directory.join(LOG_FILE);
    output::line(format!(
        "placing a gateway and {} shards with hydro_deploy; the log is {}",
        arguments.shards,
        log.display()
    ));
    let mut signals = Signals::new()?;
    let gateway = Client::new(&format!("http://{address}"), None).map_err(Failure::Failed)?;
    let mut launcher = Launcher::start(&settings, arguments.shards, &log)?;
    let url = slackwater::gateway::base_url(&loaded.config.gateway, address);
    let stopped = tokio::select! {
        failure = launcher.watch(address, &gateway) => Err(failure),
        () = signals.next() => Ok(()),
    };
    launcher.stop().await;
    match stopped {
        Ok(()) => {
            output::line(format!("{url} has stopped; the shards' state is in {}", directory.display()));
            Ok(())
        }
        Err(why) => Err(Failure::Failed(format!("{why}\n{}", last_words(&log)))),
    }
}

/// Makes the directory ready: it is there, has its key, and belongs to a cluster of so many shards.
fn prepare(directory: &Path, shards: u32) -> Result<PathBuf, Failure> {
    let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", directory.display()));
    std::fs::create_dir_all(directory).map_err(named)?;
    let directory = directory.canonicalize().map_err(named)?;
    slackwater::capability::CapabilityKey::open(&directory).map_err(Failure::because)?;
    let there = (0..).take_while(|shard| slackwater::sidecar::shard_directory(&directory, *shard).is_dir()).count();
    if there != 0 && there != shards as usize {
        return Err(Failure::Failed(format!(
            "{} is the state of a cluster of {there} shards; start it with --shards {there}, or give another --directory",
            directory.display()
        )));
    }
    for shard in 0..shards {
        std::fs::create_dir_all(slackwater::sidecar::shard_directory(&directory, shard)).map_err(named)?;
    }
    Ok(directory)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    use std::io::Write as _;
    use std::os::unix::fs::OpenOptionsExt as _;
    // It may hold keys.
    let file = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::Failed(format!("{}: {error}", path.display())))
}

/// The process that compiles, places and holds the locations.
struct Launcher(Child);

impl Launcher {
    /// Starts it through cargo, in the checkout that this program was built from.
    fn start(settings: &Path, shards: u32, log: &Path) -> Result<Self, Failure> {
        let package = Path::new(env!("CARGO_MANIFEST_DIR"));
        if !package.join("Cargo.toml").is_file() {
            return Err(Failure::Failed(format!(
                "the checkout that this program was built from is not at {} any more, and the locations are compiled from it; build the program again where the checkout is",
                package.display()
            )));
        }
        let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", log.display()));
        let file = File::create(log).map_err(named)?;
        let child = std::process::Command::new("cargo")
            .args(["run", "--quiet", "--package", "slackwater", "--example", "cluster", "--"])
            .arg(settings)
            .arg(shards.to_string())
            .current_dir(package)
            .stdin(Stdio::null())
            .stdout(file.try_clone().map_err(named)?)
            .stderr(file)
            .spawn();
        let child = child.map_err(|error| {
            Failure::Failed(format!(
                "cannot start cargo, which compiles the locations: {error}; install Rust, or put cargo into PATH"
            ))
        })?;
        Ok(Self(child))
    }

    /// Says when the cluster is ready; returns only when it has ended by itself.
    async fn watch(&mut self, address: std::net::SocketAddr, gateway: &Client) -> String {
        let mut silent_looks = None;
        loop {
            match self.0.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return format!("the launcher has ended ({status})"),
                Err(error) => return format!("the launcher cannot be watched: {error}"),
            }
            let look = tokio::time::timeout(Duration::from_secs(1), gateway.get("/ready")).await;
            match (matches!(look, Ok(Ok(_))), silent_looks) {
                (true, None) => {
                    silent_looks = Some(0);
                    output::line(format!("ready: http://{address}"));
                }
                (true, Some(_)) => silent_looks = Some(0),
                (false, None) => {}
                (false, Some(SILENT_LOOKS_MAX)) => {
                    return "the gateway does not answer any more: a location has ended, and takes the others along; start the cluster again, what was acknowledged is on disk".to_owned();
                }
                (false, Some(looks)) => silent_looks = Some(looks + 1),
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }

    /// Ends it and all that it holds.
    async fn stop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        // It may have ended already.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        for _ in 0..50 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The last lines of the log that are no backtrace.
fn last_words(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let is_frame = |line: &str| {
        let line = line.trim_start();
        line.starts_with("at ") || line.split_once(": ").is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty() && !is_frame(line)).collect();
    lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n")
}
