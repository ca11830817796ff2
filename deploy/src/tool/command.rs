//! A command that is a tool server: the process.
//!
//! In: a program. Out: the base URL of the server that it is, or its standard input and output, and the moment it ends. Always: it has a process group of its
//! own, and nothing of that group outlives this value. (It does outlive a SIGKILL of ours: what it works on then still
//! reaches the callback address after our next start.)

use super::Error;
use super::config;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// The longest line of output that is read as one, in bytes.
const LINE_LENGTH_MAX: u64 = 8 << 10;
/// How long a group has between the request to end and its end, in milliseconds. Short: dropping waits for it.
const GRACE_MS: u64 = 200;

/// A running server. Dropping it ends its process group.
pub(super) struct Process {
    program: String,
    child: Child,
    group: Option<Pid>,
    port: u16,
}

/// The first line that an embedded server writes.
#[derive(Deserialize)]
struct Ready {
    port: u16,
}

impl Process {
    /// Starts a command and waits for the line that says its port.
    pub(super) async fn start(label: &str, command: &config::Command, limit: Duration) -> Result<Self, Error> {
        let fault = |fault: String| Error::Command { command: command.program.clone(), fault };
        let (mut process, stdout) = Self::spawn(label, command, &[("RAP_EMBEDDED", "1")], Stdio::null())?;
        let mut stdout = BufReader::new(stdout);
        let line = tokio::time::timeout(limit, next_line(&mut stdout))
            .await
            .map_err(|_| fault(format!("wrote no line {{\"port\": N}} within {} ms", limit.as_millis())))?;
        let Some(line) = line else {
            return Err(process.ended().await);
        };
        let Ready { port } = serde_json::from_str(&line)
            .map_err(|error| fault(format!("its first line is {line:?} and not {{\"port\": N}}: {error}")))?;
        process.port = port;
        tokio::spawn(trace(label.to_owned(), stdout));
        Ok(process)
    }

    /// Starts a command that is spoken to over its standard input and output.
    pub(super) fn piped(label: &str, command: &config::Command) -> Result<(Self, ChildStdout, ChildStdin), Error> {
        let (mut process, stdout) = Self::spawn(label, command, &[], Stdio::piped())?;
        let stdin = process.child.stdin.take().expect("invariant: the input is piped");
        Ok((process, stdout, stdin))
    }

    fn spawn(
        label: &str,
        command: &config::Command,
        more: &[(&str, &str)],
        stdin: Stdio,
    ) -> Result<(Self, ChildStdout), Error> {
        let mut spawn = Command::new(&command.program);
        spawn.args(&command.arguments).envs(&command.env).envs(more.iter().copied()).process_group(0);
        spawn.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(directory) = &command.cwd {
            spawn.current_dir(directory);
        }
        let mut child = spawn.spawn().map_err(|error| Error::Command {
            command: command.program.clone(),
            fault: format!("cannot be started: {error}"),
        })?;
        let stdout = child.stdout.take().expect("invariant: the output is piped");
        let stderr = child.stderr.take().expect("invariant: the output is piped");
        let group = child.id().and_then(|id| Pid::from_raw(id as i32));
        tokio::spawn(trace(label.to_owned(), BufReader::new(stderr)));
        Ok((Self { program: command.program.clone(), child, group, port: 0 }, stdout))
    }

    /// The server's base URL.
    pub(super) fn base(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Waits until the command has ended.
    pub(super) async fn ended(&mut self) -> Error {
        let fault = match self.child.wait().await {
            Ok(status) => format!("it ended ({status})"),
            Err(error) => format!("it cannot be waited for: {error}"),
        };
        Error::Command { command: self.program.clone(), fault }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let Some(group) = self.group else { return };
        // The group may be gone already: then there is nothing to end.
        let _ = kill_process_group(group, Signal::TERM);
        let deadline = Instant::now() + Duration::from_millis(GRACE_MS);
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = kill_process_group(group, Signal::KILL);
    }
}

/// Sends what a command writes to the log.
async fn trace(label: String, mut output: impl AsyncBufRead + Unpin) {
    while let Some(line) = next_line(&mut output).await {
        tracing::debug!(server = label, "{line}");
    }
}

/// The next line, or as much of it as is read as one; nothing at the end.
async fn next_line(output: &mut (impl AsyncBufRead + Unpin)) -> Option<String> {
    let mut line = Vec::new();
    match output.take(LINE_LENGTH_MAX).read_until(b'\n', &mut line).await {
        Ok(length) if length > 0 => Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
        // A pipe that breaks is a pipe that has ended.
        _ => None,
    }
}
