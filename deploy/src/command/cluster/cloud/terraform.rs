//! Terraform, or OpenTofu, as a program that is run.
//!
//! In: a directory with a configuration. Out: its progress as lines, its outputs. Always: it is asked to end and waited for when
//! this program is told to stop, so that it has written down what it made; what it says of a failure is passed on.

use crate::command::Failure;
use crate::command::signals::Signals;
use crate::output;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use tokio::process::Command;

/// The programs that will do, the first that is there.
const PROGRAMS: [&str; 2] = ["tofu", "terraform"];

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

    /// Runs it and shows how far it is.
    pub(super) async fn run(&self, arguments: &[&str], signals: &mut Signals) -> Result<(), Failure> {
        let mut child = self
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| Failure::Failed(format!("{}: {error}", self.program.display())))?;
        let stdout = child.stdout.take().expect("invariant: it was asked for");
        let mut stderr = child.stderr.take().expect("invariant: it was asked for");
        let mut lines = BufReader::new(stdout).lines();
        let words = tokio::spawn(async move {
            let mut words = String::new();
            // What cannot be read is not shown.
            let _ = stderr.read_to_string(&mut words).await;
            words
        });
        let mut is_told = false;
        loop {
            tokio::select! {
                line = lines.next_line() => match line {
                    Ok(Some(line)) if is_progress(&line) => output::line(format!("  {}", line.trim())),
                    Ok(Some(_)) => {}
                    Ok(None) | Err(_) => break,
                },
                // Once: a second one would have it end without writing down what it made.
                () = signals.next(), if !is_told => {
                    is_told = true;
                    output::line(format!("stopping {}, so that it writes down what it has made", self.name()));
                    if let Some(id) = child.id().and_then(|id| Pid::from_raw(id as i32)) {
                        // It may have ended in this moment.
                        let _ = kill_process(id, Signal::INT);
                    }
                }
            }
        }
        let status = child.wait().await.map_err(Failure::because)?;
        let words = words.await.unwrap_or_default();
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
            words.trim()
        )))
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

/// Whether a line is about something that is made or destroyed.
fn is_progress(line: &str) -> bool {
    ["Creating...", "Creation complete", "Destroying...", "Destruction complete", "Modifying...", "complete!"]
        .iter()
        .any(|part| line.contains(part))
}
