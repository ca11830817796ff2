//! Another machine, by the `ssh` of this one: its keys, its agent and its known hosts are those that people use already.
//!
//! In: a location. Out: its files and its process there. Always: what is copied is whole or not there under its name; one process
//! of a name runs there at a time, also after the connection to the last one was lost; a location ends with its connection.

use crate::process::Launch;
use anyhow::Context as _;
use futures::future::try_join_all;
use hydro_deploy::rust_crate::build::BuildOutput;
use slackwater::host::directory;
use slackwater::host::plan::{Machine, Ssh, quoted};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

/// The program of a location on a machine, and where its libraries are there.
pub(crate) fn place(machine: &Machine, binary: &BuildOutput) -> (PathBuf, Vec<PathBuf>) {
    let place = machine.directory.join("bin");
    (place.join(format!("location-{}", binary.unique_id())), vec![place.join("lib")])
}

/// What this process has put where: a machine, its directory, a program here and when it was changed last. To compare large files
/// again takes longer than all else that a move needs.
static SENT: Mutex<BTreeSet<(String, PathBuf, PathBuf, SystemTime)>> = Mutex::new(BTreeSet::new());

/// Forgets what is on the other machines: a location could not be started, so perhaps it is not.
pub(crate) fn forget() {
    SENT.lock().unwrap_or_else(PoisonError::into_inner).clear();
}

/// Copies the program of a location and what it needs.
pub(crate) async fn copy(
    ssh: &Ssh,
    machine: &Machine,
    binary: &BuildOutput,
    libraries: &[PathBuf],
) -> anyhow::Result<()> {
    // The locations of a cell share libraries: the second one finds them there.
    static ONE_AT_A_TIME: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
    let _mine = ONE_AT_A_TIME.lock().await;
    let changed = std::fs::metadata(&binary.bin_path).and_then(|file| file.modified())?;
    let sent =
        (format!("{}:{:?}", ssh.destination, ssh.port), machine.directory.clone(), binary.bin_path.clone(), changed);
    if SENT.lock().unwrap_or_else(PoisonError::into_inner).contains(&sent) {
        return Ok(());
    }
    let (program, there) = place(machine, binary);
    let mut files = vec![(binary.bin_path.clone(), program)];
    for library in needed(&binary.bin_path, libraries).await? {
        let name = library.file_name().context("a library has a name")?.to_owned();
        files.extend(there.iter().map(|place| (library.clone(), place.join(&name))));
    }
    for (here, there) in files {
        send(ssh, &here, &there).await.with_context(|| format!("cannot copy to {}", machine.name))?;
    }
    SENT.lock().unwrap_or_else(PoisonError::into_inner).insert(sent);
    Ok(())
}

/// Copies what the locations are told: settings, cells and the key of the callbacks.
pub(crate) async fn tell(ssh: &Ssh, here: &Path, machine: &Machine, cell: u32) -> anyhow::Result<()> {
    let there = &machine.directory;
    let files = [
        (directory::settings_file(here), directory::settings_file(there)),
        (directory::cell_file(here, cell), directory::cell_file(there, cell)),
        (here.join("capability.key"), there.join("capability.key")),
    ];
    let all = files.iter().map(|(from, to)| send(ssh, from, to));
    try_join_all(all).await.with_context(|| format!("cannot copy to {}", machine.name)).map(|_| ())
}

/// The command that runs a location there.
pub(crate) fn command(ssh: &Ssh, launch: &Launch) -> Command {
    let place = &launch.machine.directory;
    let own = quoted(&place.join("run").join(format!("{}.pid", launch.name.replace(' ', "-"))));
    let programs = place.join("bin").display().to_string();
    let mut script = format!(
        "if old=$(cat {own} 2>/dev/null) && case $(readlink /proc/$old/exe) in {}/*) true;; *) false;; esac; then \
         kill -KILL $old; while kill -0 $old 2>/dev/null; do sleep 0.02; done; fi; echo $$ > {own}; exec env ",
        quoted(Path::new(&programs)),
    );
    for (name, value) in &launch.environment {
        script.push_str(&format!("{name}={} ", quoted(Path::new(value))));
    }
    let libraries: Vec<String> = launch.libraries.iter().map(|path| path.display().to_string()).collect();
    script.push_str(&format!("LD_LIBRARY_PATH={} ", quoted(Path::new(&libraries.join(":")))));
    script.push_str(&quoted(&launch.program));
    let mut command = Command::new("ssh");
    command.args(ssh.arguments()).arg(script);
    command
}

/// Puts a file there, unless the same is there already.
async fn send(ssh: &Ssh, here: &Path, there: &Path) -> anyhow::Result<()> {
    let sum = Command::new("sha256sum").arg("--").arg(here).stdin(Stdio::null()).output().await?;
    let sum = String::from_utf8(sum.stdout)?;
    let sum = sum.split_whitespace().next().with_context(|| format!("cannot read {}", here.display()))?.to_owned();
    let look = format!("sha256sum < {} 2>/dev/null | cut -d' ' -f1", quoted(there));
    let is = run(ssh, &look, None).await?;
    if is.trim() == sum {
        return Ok(());
    }
    let mode = if std::fs::metadata(here)?.permissions().readonly() { "600" } else { "700" };
    run(ssh, &take(there, &sum, mode), Some(here)).await.map(|_| ())
}

/// The script that takes a file from its input. When a connection is cut off, what came by then ends as if it were all: so it is
/// compared before it has its name.
fn take(there: &Path, sum: &str, mode: &str) -> String {
    let folder = quoted(there.parent().unwrap_or(Path::new("/")));
    let (there, aside) = (quoted(there), quoted(&there.with_extension("new")));
    format!(
        "umask 077 && mkdir -p {folder} && cat > {aside} && chmod {mode} {aside} && \
         {{ [ \"$(sha256sum < {aside} | cut -d' ' -f1)\" = {sum} ] || {{ echo 'not all of it has come' >&2; false; }}; }} && \
         mv -f {aside} {there}"
    )
}

/// Runs something there, with a file as its input.
async fn run(ssh: &Ssh, script: &str, input: Option<&Path>) -> anyhow::Result<String> {
    let mut command = Command::new("ssh");
    command.args(ssh.arguments()).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.kill_on_drop(true).spawn().context("cannot start ssh; install openssh-client")?;
    let mut pipe = child.stdin.take().context("no standard input")?;
    if let Some(input) = input {
        let mut file = tokio::fs::File::open(input).await?;
        tokio::io::copy(&mut file, &mut pipe).await?;
    }
    pipe.shutdown().await?;
    drop(pipe);
    let output = child.wait_with_output().await?;
    anyhow::ensure!(
        output.status.success(),
        "{} answered {}: {}",
        ssh.destination,
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The libraries of a program that are in these directories.
async fn needed(program: &Path, libraries: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if libraries.is_empty() {
        return Ok(Vec::new());
    }
    let told =
        Command::new("ldd").arg(program).env("LD_LIBRARY_PATH", std::env::join_paths(libraries)?).output().await?;
    let paths = String::from_utf8(told.stdout)?;
    let paths = paths.lines().filter_map(|line| line.split("=> ").nth(1)?.split(" (").next()).map(PathBuf::from);
    Ok(paths.filter(|path| libraries.iter().any(|place| path.starts_with(place))).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;

    #[tokio::test]
    async fn a_file_that_breaks_off_does_not_get_its_name() {
        let place = tempfile::tempdir().unwrap();
        let there = place.path().join("bin").join("it's a location");
        // What `sha256sum` says of "a whole location".
        let sum = "81024468fca44754eda77aa77b5dd06e717c854b0b6f7ed8fa961370cf7ed611";
        let came = async |input: &[u8]| {
            let mut shell = Command::new("sh");
            shell.arg("-c").arg(take(&there, sum, "700")).stdin(Stdio::piped()).stderr(Stdio::piped());
            let mut shell = shell.spawn().unwrap();
            shell.stdin.take().unwrap().write_all(input).await.unwrap();
            shell.wait_with_output().await.unwrap()
        };
        let told = came(b"a whole").await;
        assert!(!told.status.success() && !there.exists(), "{told:?}");
        assert_eq!(String::from_utf8_lossy(&told.stderr), "not all of it has come\n");
        assert!(came(b"a whole location").await.status.success());
        assert_eq!(std::fs::read(&there).unwrap(), b"a whole location");
        came(b"a whole").await;
        assert_eq!(std::fs::read(&there).unwrap(), b"a whole location", "what is there stays");
    }
}
