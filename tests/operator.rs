//! `examples/operator`, a user's package outside the workspace: it builds, its simulation passes, and its hosts do what its
//! operators say.
//!
//! In: the package as it is in the checkout. Out: what its programs print and answer. Always: it is built into the
//! workspace's target directory with the workspace's versions, so that Hydro's stack is not built once more.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/kills.rs"]
mod kills;

use kills::client::Client;
use kills::server_process::{Server, Settings};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The model repeats what it is told.
const SCRIPT: &str = "[[rule]]\nsay = \"You said: {message}\"\n";

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/operator")
}

/// The workspace's target directory.
fn target() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_slackwater")).parent().unwrap().parent().unwrap()
}

/// Gives the package the workspace's versions.
fn lock() {
    static LOCKED: OnceLock<()> = OnceLock::new();
    LOCKED.get_or_init(|| {
        let lock = package().join("../../Cargo.lock");
        std::fs::copy(lock, package().join("Cargo.lock")).unwrap();
    });
}

/// Cargo in the package, on the workspace's versions and in its target directory.
fn cargo(arguments: &[&str]) -> Command {
    lock();
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(package()).env("CARGO_TARGET_DIR", target()).stdin(Stdio::null());
    command
}

/// Runs it to its end; returns what it printed.
fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let (out, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} has failed:\n{out}\n{error}");
    out.into_owned()
}

#[test]
fn the_packages_simulation_passes() {
    let said = printed(&mut cargo(&["test", "--offline", "--test", "simulated"]));
    assert!(said.contains("1 passed"), "{said}");
}

#[test]
fn an_embedded_host_has_the_operators() {
    let place = tempfile::tempdir().unwrap();
    let log = place.path().join("audit.log");
    let run = ["run", "--offline", "--quiet", "--example", "embedded", "--", log.to_str().unwrap()];
    let said = printed(&mut cargo(&run));
    let expected = "\
acme: That makes 5.
acme: I was told: This house does not wipe. Do without it, or tell the user.
acme: You said: two
acme is refused: acme has sent its 3 messages of this minute; wait, or ask the house for more
globex: You said: one
audit: 6 arrival completion
audit: 4 arrival message
audit: 1 arrival message, refused
audit: 2 arrival result
audit: 1 call
audit: 1 call, refused
";
    assert!(said.starts_with(expected), "{said}");
    // Outputs beside these (waiting) depend on how the work was batched; turns and messages do not.
    let count = |what: &str| -> usize {
        let line = said.lines().find(|line| line.ends_with(what)).unwrap_or_else(|| panic!("no {what} in {said}"));
        line.split(' ').nth(1).unwrap().parse().unwrap()
    };
    assert_eq!(count(" prompt"), 6);
    assert!(count(" output") >= 12, "{said}");
    let lines = std::fs::read_to_string(log).unwrap();
    let refused: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let refused: Vec<&Value> = refused.iter().filter(|line| line["refused"].is_string()).collect();
    assert_eq!(refused.len(), 2, "{lines}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_the_operators_and_starts_a_cell_anew() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), u64::from(std::process::id()) + 4_999, SCRIPT, None);
    let mut command = settings.cells_command(1, 2);
    command.arg("--operators").arg(package()).env("CARGO_TARGET_DIR", target()).env("CARGO_NET_OFFLINE", "true");
    lock();
    let client = Client::new(settings.url(""));
    let cluster = Server::launch(&settings, &mut command, std::slice::from_ref(&client)).await;

    for id in ["one", "two", "three"] {
        client.post("acme.orders", id, id).await;
    }
    let refused = client.try_post("acme.orders", "four", "four").await.unwrap();
    assert_eq!(refused.status().as_u16(), 429);
    assert!(refused.headers().contains_key("retry-after"));
    let problem: Value = refused.json().await.unwrap();
    assert_eq!(problem["type"], "urn:slackwater:problem:declined");
    assert_eq!(problem["detail"], "acme has sent its 3 messages of this minute; wait, or ask the house for more");
    client.post("globex.orders", "one", "one").await;
    client.idle("globex.orders").await;

    // The supervisor keeps it as it keeps a cluster without operators.
    let cell = || slackwater::host::plan::running(&settings.directory).unwrap().unwrap().cells[0].clone();
    let victim = kills::within("its processes are told", async || {
        cell().processes.into_iter().find(|process| process.name == "shard 1")
    })
    .await;
    kill_process(Pid::from_raw(victim.process as i32).unwrap(), Signal::KILL).unwrap();
    kills::within("the cell is started anew", async || {
        (cell().restarts == 1 && cell().phase == slackwater::host::plan::Phase::Ready).then_some(())
    })
    .await;
    // A limit of this minute is not durable; what was said is.
    client.post("globex.orders", "two", "two").await;
    client.idle("globex.orders").await;

    // The shards' audit trails have all six messages, the refused one with its reason.
    let trail = kills::within("all messages are in the audit trails", async || {
        let read =
            |shard| std::fs::read_to_string(settings.directory.join(format!("notes-{shard}.log"))).unwrap_or_default();
        let trail = read(0) + &read(1);
        (trail.matches(r#""what":"message""#).count() == 6).then_some(trail)
    })
    .await;
    let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |tenant: &str| lines.iter().filter(|line| line["tenant"] == tenant).count();
    assert_eq!((of("acme"), of("globex")), (4, 2));
    assert_eq!(lines.iter().filter(|line| line["refused"].is_string()).count(), 1);
    assert!(cluster.terminate().0.success(), "{}", settings.log());
}
