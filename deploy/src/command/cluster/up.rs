//! `slackwater cluster up`: starts the supervisor, and shows how far it is.
//!
//! In: what the cluster should be. Out: a cluster that is ready; with `--detach` it is left alone. Always: SIGTERM or SIGINT ends
//! all processes and leaves the state where it is; a start that fails says what was said last.

use super::super::Failure;
use super::super::signals::Signals;
use super::tell::{Teller, counted};
use super::{Up, file, look, prepare};
use crate::output;
use slackwater::host::directory;
use slackwater::host::plan::{Phase, Plan, running};
use std::fs::File;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How often it is looked what the supervisor does.
const LOOK_MS: u64 = 100;

/// How often it is said that the locations are still being compiled.
const STILL: Duration = Duration::from_secs(15);

/// How long the processes may take to end.
const FAREWELL_MS: u64 = 15_000;

/// How many of the last words are shown.
const LAST_WORDS: usize = 12;

pub(super) async fn run(arguments: Up) -> Result<(), Failure> {
    super::super::end_with_parent(arguments.end_with_parent)?;
    let file = arguments.file.as_deref().map(file::read).transpose()?.unwrap_or_default();
    let package = package(arguments.operators.as_deref().or(file.cluster.operators.as_deref()))?;
    let listen = ("--listen", "gateway.listen", arguments.listen.as_ref());
    let loaded = arguments.settings.load(&[listen])?;
    let plan = prepare::prepare(&arguments, &file, &loaded).await?;
    let log = directory::log_file(&plan.directory);
    output::line(format!(
        "placing {} with {} and {} each, with hydro_deploy; the log is {}",
        counted(plan.cells.len(), "cell"),
        counted(plan.cells[0].shards_on.len(), "shard"),
        counted(plan.cells[0].toolhosts_on.len(), "toolhost"),
        log.display()
    ));
    let mut signals = Signals::new()?;
    let mut supervisor = Supervisor::start(&plan, &log, package)?;
    let outcome = tokio::select! {
        outcome = supervisor.watch(&plan, arguments.detach) => outcome,
        () = signals.next() => Ok(Watched::Stopped),
    };
    match outcome {
        Ok(Watched::Ready) => {
            output::line(format!(
                "it goes on without this command (process {}); `slackwater cluster down --directory {}` ends it",
                supervisor.0.id(),
                plan.directory.display()
            ));
            Ok(())
        }
        Ok(Watched::Stopped) => {
            supervisor.stop().await;
            look::tell_end(&plan.directory, &plan.machines);
            Ok(())
        }
        Err(why) => {
            supervisor.stop().await;
            Err(Failure::Failed(format!("{why}\n{}", last_words(&log))))
        }
    }
}

/// The package that the locations are compiled from: that of the operators, or without any the checkout that this program was
/// built from.
fn package(operators: Option<&Path>) -> Result<&Path, Failure> {
    let package = operators.unwrap_or(Path::new(env!("CARGO_MANIFEST_DIR")));
    match operators {
        _ if package.join("Cargo.toml").is_file() => Ok(package),
        Some(_) => Err(Failure::Usage(format!(
            "--operators: there is no package in {}; give the directory with its Cargo.toml, which has an example named cluster",
            package.display()
        ))),
        None => Err(Failure::Failed(format!(
            "the checkout that this program was built from is not at {} any more, and the locations are compiled from it; build the program again where the checkout is",
            package.display()
        ))),
    }
}

enum Watched {
    /// It is ready and to be left alone.
    Ready,
    /// It has been told to stop.
    Stopped,
}

/// The process that compiles, places and holds the locations. It leads a process group, so that a terminal's Ctrl-C reaches
/// this process alone, which then ends it in order.
struct Supervisor(Child);

impl Supervisor {
    /// Starts it through cargo: each location is compiled from the package that it is an example of.
    fn start(plan: &Plan, log: &Path, package: &Path) -> Result<Self, Failure> {
        let named = |error: std::io::Error| Failure::Failed(format!("{}: {error}", log.display()));
        let file = File::create(log).map_err(named)?;
        let child = std::process::Command::new("cargo")
            .args(["run", "--quiet", "--example", "cluster", "--"])
            .arg(directory::plan_file(&plan.directory))
            .current_dir(package)
            .process_group(0)
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

    /// Says what it does; returns when the cluster is ready and should be left alone, or has ended by itself.
    async fn watch(&mut self, plan: &Plan, detach: bool) -> Result<Watched, String> {
        // Since when something is being compiled, and when it was said last.
        let (mut begun, mut said) = (Instant::now(), Instant::now());
        let mut teller = Teller::new(plan.directory.clone());
        loop {
            match self.0.try_wait() {
                Ok(None) => {}
                Ok(Some(status)) => return Err(format!("the supervisor has ended ({status})")),
                Err(error) => return Err(format!("the supervisor cannot be watched: {error}")),
            }
            // While it is being compiled itself there is nothing to read.
            let state = running(&plan.directory).ok().flatten();
            if let Some(state) = &state {
                teller.tell(state);
                if detach && state.cells.iter().all(|cell| cell.phase == Phase::Ready) {
                    return Ok(Watched::Ready);
                }
            }
            let compiling = state.is_none_or(|state| state.cells.iter().any(|cell| cell.phase == Phase::Compiling));
            if !compiling {
                (begun, said) = (Instant::now(), Instant::now());
            } else if said.elapsed() >= STILL {
                said = Instant::now();
                output::line(format!("still compiling, {} s so far", begun.elapsed().as_secs()));
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
    }

    /// Ends it and all that it holds.
    async fn stop(&mut self) {
        let id = rustix::process::Pid::from_child(&self.0);
        // It may have ended already. While it is being compiled, cargo is in its place.
        let _ = rustix::process::kill_process(id, rustix::process::Signal::TERM);
        for _ in 0..FAREWELL_MS / LOOK_MS {
            if !matches!(self.0.try_wait(), Ok(None)) {
                break;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
        }
        let _ = rustix::process::kill_process_group(id, rustix::process::Signal::KILL);
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
