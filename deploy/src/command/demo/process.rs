//! The demo's processes: this same binary, as a runtime and as a tool server.
//!
//! In: arguments. Out: a running child and the lines of its standard output. Always: a child ends with the value that
//! stands for it, however the demo ends; what it says on standard error is kept in a file for the case that it fails.

use crate::command::Failure;
use serde_json::Value;
use std::fs::File;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

/// How long a child may take to say its first word.
const FIRST_WORD_MS: u64 = 15_000;

/// How long a child may take to end when it is told to. A cluster ends many.
const END_MS: u64 = 3_000;
const END_CLUSTER_MS: u64 = 20_000;

/// How often it is looked whether it has.
const LOOK_MS: u64 = 20;

/// The name of the child that holds the processes of a cluster.
pub(super) const CLUSTER: &str = "cluster";

/// The lines that a child says.
pub(super) struct JsonLines(Lines<BufReader<ChildStdout>>);

impl JsonLines {
    /// The next one; nothing once it has ended.
    pub(super) async fn next(&mut self) -> Option<Value> {
        let line = self.0.next_line().await.ok()??;
        Some(serde_json::from_str(&line).unwrap_or(Value::String(line)))
    }
}

/// A child of the demo.
pub(super) struct Process {
    name: &'static str,
    child: Child,
    lines: Option<JsonLines>,
    log: PathBuf,
}

impl Process {
    /// Starts this binary with other arguments, and waits for its first line, which is JSON.
    pub(super) async fn start(
        name: &'static str,
        arguments: &[&str],
        directory: &Path,
    ) -> Result<(Self, Value), Failure> {
        let failed = |error| Failure::Failed(format!("cannot start the {name}: {error}"));
        let log = directory.join(format!("{name}.log"));
        let errors = File::options().create(true).append(true).open(&log).map_err(failed)?;
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        // What is configured here for other runtimes is not meant for this one.
        for (variable, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("SLACKWATER_")) {
            command.env_remove(variable);
        }
        command
            .args(arguments)
            .env_remove("RUST_LOG")
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(errors)
            // A Ctrl-C on the terminal is for the demo, which then ends its children.
            .process_group(0)
            .kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().expect("invariant: it was asked for");
        let mut lines = JsonLines(BufReader::new(stdout).lines());
        let first = tokio::time::timeout(Duration::from_millis(FIRST_WORD_MS), lines.next()).await;
        let process = Self { name, child, lines: Some(lines), log };
        match first {
            Ok(Some(line)) => Ok((process, line)),
            _ => Err(Failure::Failed(format!("the {name} does not start; it said: {}", process.log()))),
        }
    }

    /// Its process id; 0 once it has ended.
    pub(super) fn id(&self) -> u32 {
        self.child.id().unwrap_or(0)
    }

    /// What it says from now on, for one reader.
    pub(super) fn take_lines(&mut self) -> JsonLines {
        self.lines.take().expect("invariant: there is one reader")
    }

    /// Ends it as a crash would (SIGKILL), and waits until it is gone.
    pub(super) async fn kill(mut self) -> Result<(), Failure> {
        self.child.start_kill().map_err(|error| Failure::Failed(format!("cannot kill the {}: {error}", self.name)))?;
        let status = self.child.wait().await.map_err(Failure::because)?;
        if status.signal() == Some(9) {
            return Ok(());
        }
        Err(Failure::Failed(format!("the {} ended by itself ({status}); it said: {}", self.name, self.log())))
    }

    /// Asks it to end (SIGTERM), and waits until it has. The time it took, in milliseconds.
    pub(super) async fn terminate(&mut self) -> Result<u64, Failure> {
        let begun = std::time::Instant::now();
        if !self.tell_to_end() {
            return Err(Failure::Failed(format!("the {} has ended by itself; it said: {}", self.name, self.log())));
        }
        let end_ms = self.end_ms();
        let ended = tokio::time::timeout(Duration::from_millis(end_ms), self.child.wait()).await;
        match ended {
            Ok(Ok(status)) if status.success() => Ok(begun.elapsed().as_millis() as u64),
            Ok(Ok(status)) => Err(Failure::Failed(format!("the {} ended with {status}: {}", self.name, self.log()))),
            Ok(Err(error)) => Err(Failure::because(error)),
            Err(_) => Err(Failure::Failed(format!("the {} does not end within {end_ms} ms of SIGTERM", self.name))),
        }
    }

    /// Asks it to end and waits for that, where nothing can be awaited any more.
    pub(super) fn end(&mut self) {
        let asked = self.tell_to_end();
        for _ in 0..self.end_ms() / LOOK_MS {
            if !asked || !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(LOOK_MS));
        }
    }

    /// Sends SIGTERM. False when it has ended before.
    fn tell_to_end(&self) -> bool {
        let process = i32::try_from(self.id()).ok().and_then(rustix::process::Pid::from_raw);
        process.is_some_and(|process| rustix::process::kill_process(process, rustix::process::Signal::TERM).is_ok())
    }

    fn end_ms(&self) -> u64 {
        if self.name == CLUSTER { END_CLUSTER_MS } else { END_MS }
    }

    /// The end of what it has logged.
    pub(super) fn log(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
