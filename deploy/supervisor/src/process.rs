//! A process of a cell: started, spoken to by lines, watched, ended.
//!
//! In: a program on a machine. Out: what it says, and its end. Always: its standard input stays open as long as it should run,
//! because a location ends when that closes; it has a process group of its own, so that a terminal's Ctrl-C reaches only the
//! supervisor, which ends it in order.

use crate::remote;
use async_trait::async_trait;
use futures::{FutureExt as _, StreamExt as _};
use hydro_deploy::LaunchedBinary;
use hydro_deploy::util::{PriorityBroadcast, prioritized_broadcast};
use rustix::process::{Pid, Signal};
use slackwater::host::plan::Machine;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncWriteExt as _, BufReader};
use tokio::process::Command;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::LinesStream;

/// What a process is started with, so that it can be started again in the same way.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    /// `gateway 0` or `shard 3`.
    pub(crate) name: String,
    pub(crate) machine: Machine,
    /// The program, on that machine.
    pub(crate) program: PathBuf,
    /// Where its libraries are, on that machine.
    pub(crate) libraries: Vec<PathBuf>,
    pub(crate) environment: BTreeMap<String, String>,
}

/// How a process ended.
#[derive(Clone, Debug)]
pub(crate) struct End {
    pub(crate) name: String,
    pub(crate) status: ExitStatus,
}

/// A process that runs, or has run.
pub(crate) struct Process {
    pub(crate) launch: Launch,
    /// The process on this machine: of a location on another one, the connection to it.
    pub(crate) id: u32,
    ended: watch::Receiver<Option<End>>,
    stdin: mpsc::UnboundedSender<String>,
    stdout: PriorityBroadcast,
    stderr: PriorityBroadcast,
    /// The lines of the handshake, in both directions, in order.
    pub(crate) told: Arc<Mutex<Vec<String>>>,
    pub(crate) said: Arc<Mutex<Vec<String>>>,
}

/// How many lines each way are the handshake: a bind and a start there, a ready and an acknowledgement back.
const HANDSHAKE_LINES: usize = 2;

impl Process {
    /// Starts it. Its end is told to `ends`, too.
    pub(crate) fn start(launch: Launch, ends: mpsc::UnboundedSender<End>) -> anyhow::Result<Arc<Self>> {
        let mut command = match &launch.machine.ssh {
            Some(ssh) => remote::command(ssh, &launch),
            None => {
                let mut command = Command::new(&launch.program);
                let libraries = std::env::join_paths(&launch.libraries)?;
                command.envs(&launch.environment).env("LD_LIBRARY_PATH", libraries);
                command
            }
        };
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| anyhow::anyhow!("{}: {error}", launch.program.display()))?;
        let id = child.id().unwrap_or_default();
        let (told, said) = (Arc::<Mutex<Vec<String>>>::default(), Arc::<Mutex<Vec<String>>>::default());

        let (stdin, mut lines) = mpsc::unbounded_channel::<String>();
        let mut pipe = child.stdin.take().ok_or_else(|| anyhow::anyhow!("no standard input"))?;
        let record = told.clone();
        tokio::spawn(async move {
            while let Some(line) = lines.recv().await {
                keep(&record, &line);
                if pipe.write_all(line.as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        let out = child.stdout.take().ok_or_else(|| anyhow::anyhow!("no standard output"))?;
        let err = child.stderr.take().ok_or_else(|| anyhow::anyhow!("no standard error"))?;
        let stdout = lines_of(out, launch.name.clone(), Some(said.clone()));
        let stderr = lines_of(err, launch.name.clone(), None);

        let (end, ended) = watch::channel(None);
        let name = launch.name.clone();
        tokio::spawn(async move {
            if let Ok(status) = child.wait().await {
                let how = End { name, status };
                end.send_replace(Some(how.clone()));
                // Nobody listens any more when the whole cell is being ended.
                let _ = ends.send(how);
            }
        });
        Ok(Arc::new(Self { launch, id, ended, stdin, stdout, stderr, told, said }))
    }

    /// Sends it a signal, unless it has ended.
    pub(crate) fn signal(&self, signal: Signal) {
        if self.ended.borrow().is_none()
            && let Some(id) = Pid::from_raw(self.id as i32)
        {
            // It may end in this very moment.
            let _ = rustix::process::kill_process(id, signal);
        }
    }

    /// Waits for its end.
    pub(crate) async fn end(&self) -> Option<End> {
        self.ended.clone().wait_for(Option::is_some).await.ok().and_then(|end| end.clone())
    }

    /// Asks it to end, and ends it when it has not after a while.
    pub(crate) async fn stop(&self, patience: Duration) {
        self.signal(Signal::TERM);
        if tokio::time::timeout(patience, self.end()).await.is_err() {
            self.signal(Signal::KILL);
            self.end().await;
        }
    }

    /// Says a line of the handshake and waits for the answer.
    pub(crate) async fn ask(&self, line: String, patience: Duration) -> anyhow::Result<String> {
        let answer = self.stdout.receive_priority();
        let name = &self.launch.name;
        let _ = self.stdin.send(line);
        tokio::select! {
            answer = answer => answer.map_err(|_| anyhow::anyhow!("{name} has ended during its start")),
            end = self.end() => match end {
                Some(end) => anyhow::bail!("{name} has ended during its start ({})", end.status),
                None => anyhow::bail!("{name} has ended during its start"),
            },
            () = tokio::time::sleep(patience) => anyhow::bail!("{name} has not started within {} s", patience.as_secs()),
        }
    }
}

/// What a process says, line by line: to whoever asked for the next line, or into the log.
fn lines_of(
    pipe: impl AsyncRead + Send + Unpin + 'static,
    name: String,
    record: Option<Arc<Mutex<Vec<String>>>>,
) -> PriorityBroadcast {
    let lines = LinesStream::new(BufReader::new(pipe).lines()).inspect(move |line| {
        if let (Some(record), Ok(line)) = (&record, line) {
            keep(record, line);
        }
    });
    prioritized_broadcast(lines, move |line| eprintln!("[{name}] {line}"))
}

fn keep(record: &Mutex<Vec<String>>, line: &str) {
    let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
    if record.len() < HANDSHAKE_LINES {
        record.push(line.to_owned());
    }
}

/// What hydro_deploy holds of a process.
pub(crate) struct Held(pub(crate) Arc<Process>);

#[async_trait]
impl LaunchedBinary for Held {
    fn stdin(&self) -> mpsc::UnboundedSender<String> {
        self.0.stdin.clone()
    }

    fn deploy_stdout(&self) -> oneshot::Receiver<String> {
        self.0.stdout.receive_priority()
    }

    fn stdout(&self) -> mpsc::UnboundedReceiver<String> {
        self.0.stdout.receive(None)
    }

    fn stderr(&self) -> mpsc::UnboundedReceiver<String> {
        self.0.stderr.receive(None)
    }

    fn stdout_filter(&self, prefix: String) -> mpsc::UnboundedReceiver<String> {
        self.0.stdout.receive(Some(prefix))
    }

    fn stderr_filter(&self, prefix: String) -> mpsc::UnboundedReceiver<String> {
        self.0.stderr.receive(Some(prefix))
    }

    fn exit_code(&self) -> Option<i32> {
        self.0.end().now_or_never().flatten().and_then(|end| end.status.code())
    }

    async fn wait(&self) -> anyhow::Result<i32> {
        Ok(self.0.end().await.and_then(|end| end.status.code()).unwrap_or(-1))
    }

    async fn stop(&self) -> anyhow::Result<()> {
        self.0.stop(Duration::from_secs(2)).await;
        Ok(())
    }
}
