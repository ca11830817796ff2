//! Terraform, or OpenTofu, as a program that is run.
//!
//! In: a directory with a configuration. Out: its progress as lines, its outputs. Always: it is asked to end and waited for when
//! this program is told to stop, so that it has written down what it made; it goes on alone when this program is killed, and the
//! next start waits for it; what it says of a failure is passed on.

use crate::command::Failure;
use crate::command::signals::Signals;
use crate::output;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::process::Command;

/// The programs that will do, the first that is there.
const PROGRAMS: [&str; 2] = ["tofu", "terraform"];

/// How often it is looked what it does.
const LOOK: Duration = Duration::from_millis(100);

/// A program and the directory that it works in.
#[derive(Debug)]
pub(super) struct Terraform {
    program: PathBuf,
    place: PathBuf,
}

/// The resources that are machines; the last one stands for them in tests.
const MACHINES: [&str; 4] =
    ["aws_instance", "google_compute_instance", "azurerm_linux_virtual_machine", "terraform_data"];

#[derive(Deserialize)]
struct Planned {
    #[serde(default)]
    resource_changes: Vec<ResourceChange>,
}

#[derive(Deserialize)]
struct ResourceChange {
    #[serde(rename = "type")]
    kind: String,
    name: String,
    change: Change,
}

#[derive(Deserialize)]
struct Change {
    actions: Vec<String>,
}

#[derive(Deserialize)]
struct Output {
    value: String,
}

impl Terraform {
    /// Finds the program.
    pub(super) fn find(place: &Path) -> Result<Self, Failure> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let found = PROGRAMS.iter().find_map(|name| {
            std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
        });
        let program = found.ok_or_else(|| {
            Failure::Failed(
                "neither tofu nor terraform is in PATH, and machines of a cloud are made with one of them; install OpenTofu (https://opentofu.org) or Terraform".to_owned(),
            )
        })?;
        Ok(Self { program, place: place.to_owned() })
    }

    /// What it is called.
    pub(super) fn name(&self) -> String {
        self.program.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments).arg("-no-color").current_dir(&self.place);
        // A terminal's Ctrl-C reaches this program alone, which passes it on once.
        command.stdin(Stdio::null()).process_group(0).env("TF_IN_AUTOMATION", "1");
        command
    }

    /// Runs it and shows how far it is. It writes into files and not to this program, which it may outlive.
    pub(super) async fn run(&self, arguments: &[&str], signals: &mut Signals) -> Result<(), Failure> {
        let turn = self.turn(signals).await?;
        let (log, errors) = (self.place.join("terraform.log"), self.place.join("terraform.errors"));
        let said = File::create(&log).map_err(named(&log))?;
        let mut follow = Follow { file: File::open(&log).map_err(named(&log))?, rest: String::new() };
        let mut child = self
            .command(arguments)
            // As long as it lives it has its turn, since its standard input is what is locked: an empty file.
            .stdin(turn)
            .stdout(said)
            .stderr(File::create(&errors).map_err(named(&errors))?)
            .spawn()
            .map_err(named(&self.program))?;
        let mut is_told = false;
        let status = loop {
            tokio::select! {
                status = child.wait() => break status.map_err(Failure::because)?,
                () = tokio::time::sleep(LOOK) => follow.show(),
                // Once: a second one would have it end without writing down what it made.
                () = signals.next(), if !is_told => {
                    is_told = true;
                    // Before anything is said: a terminal that is gone takes no words, and that ends this program.
                    if let Some(id) = child.id().and_then(|id| Pid::from_raw(id as i32)) {
                        // It may have ended in this moment.
                        let _ = kill_process(id, Signal::INT);
                    }
                    output::line(format!("stopping {}, so that it writes down what it has made", self.name()));
                }
            }
        };
        follow.show();
        if is_told {
            return Err(Failure::Failed(format!(
                "stopped; what was made is in the state in {}: `slackwater cluster up` goes on with it, `slackwater cluster destroy` destroys it",
                self.place.display()
            )));
        }
        if status.success() {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "{} {} has failed ({status}); what was made before is in the state in {}\n{}",
            self.name(),
            arguments[0],
            self.place.display(),
            std::fs::read_to_string(&errors).unwrap_or_default().trim()
        )))
    }

    /// Waits until no Terraform of an earlier start works here. Returns what keeps others away.
    async fn turn(&self, signals: &mut Signals) -> Result<File, Failure> {
        let path = self.place.join("lock");
        let opened = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let lock = opened.map_err(named(&path))?;
        let mut is_said = false;
        while let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != Errno::WOULDBLOCK {
                return Err(named(&path)(error.into()));
            }
            if !is_said {
                is_said = true;
                let log = self.place.join("terraform.log");
                output::line(format!(
                    "{} of an earlier start is still at work, and is waited for; {} says how far it is",
                    self.name(),
                    log.display()
                ));
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = signals.next() => {
                    return Err(Failure::Failed("stopped; the Terraform of an earlier start goes on".to_owned()));
                }
            }
        }
        Ok(lock)
    }

    /// Looks what would be done, and refuses it if a machine would be destroyed: its disk has threads.
    ///
    /// # Errors
    /// Names the machines.
    pub(super) async fn check_keeps(&self, signals: &mut Signals) -> Result<(), Failure> {
        self.run(&["plan", "-input=false", "-out=plan"], signals).await?;
        let told = self.command(&["show", "-json", "plan"]).output().await.map_err(Failure::because)?;
        if !told.status.success() {
            let words = String::from_utf8_lossy(&told.stderr).trim().to_owned();
            return Err(Failure::Failed(format!("{} show has failed: {words}", self.name())));
        }
        let plan: Planned = serde_json::from_slice(&told.stdout).map_err(|error| {
            Failure::Failed(format!("what {} said of its plan is not understood: {error}", self.name()))
        })?;
        let lost: Vec<String> = plan
            .resource_changes
            .into_iter()
            .filter(|one| MACHINES.contains(&one.kind.as_str()) && one.change.actions.iter().any(|act| act == "delete"))
            .map(|one| one.name)
            .collect();
        if lost.is_empty() {
            return Ok(());
        }
        Err(Failure::Failed(format!(
            "this would destroy {} with the threads on their disks, and nothing was done. Give the hosts that the cluster has their names, count and places back; to give up all of them, use `slackwater cluster destroy`",
            lost.join(", ")
        )))
    }

    /// What the configuration says of the machines.
    pub(super) async fn outputs(&self) -> Result<BTreeMap<String, String>, Failure> {
        let told = self
            .command(&["output", "-json"])
            .output()
            .await
            .map_err(|error| Failure::Failed(format!("{}: {error}", self.program.display())))?;
        if !told.status.success() {
            let words = String::from_utf8_lossy(&told.stderr).trim().to_owned();
            return Err(Failure::Failed(format!("{} output has failed: {words}", self.name())));
        }
        let outputs: BTreeMap<String, Output> = serde_json::from_slice(&told.stdout).map_err(|error| {
            Failure::Failed(format!("what {} said of its outputs is not understood: {error}", self.name()))
        })?;
        Ok(outputs.into_iter().map(|(name, output)| (name, output.value)).collect())
    }
}

/// Names where something went wrong.
fn named(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    move |error| Failure::Failed(format!("{}: {error}", path.display()))
}

/// What it writes, as it comes.
struct Follow {
    file: File,
    /// The line that is not whole yet.
    rest: String,
}

impl Follow {
    /// Shows what has come of its progress.
    fn show(&mut self) {
        // What cannot be read is not shown; it is in the file.
        let _ = self.file.read_to_string(&mut self.rest);
        while let Some((line, rest)) = self.rest.split_once('\n') {
            if is_progress(line) {
                output::line(format!("  {}", line.trim()));
            }
            self.rest = rest.to_owned();
        }
    }
}

/// Whether a line is about something that is made or destroyed.
fn is_progress(line: &str) -> bool {
    ["Creating...", "Creation complete", "Destroying...", "Destruction complete", "Modifying...", "complete!"]
        .iter()
        .any(|part| line.contains(part))
}
