//! `examples/operator`, a user's package outside the workspace: it builds, its simulation passes, and its hosts do what its
//! operators say.
//!
//! In: the package as it is in the checkout. Out: what its programs print and answer. Always: it is built into the
//! workspace's target directory with the workspace's versions, so that Hydro's stack is not built once more.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/kills.rs"]
mod kills;

use kills::Patience;
use kills::client::Client;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// A first launch compiles the locations; that is not what is tested.
const LAUNCHES_MAX: usize = 20;

fn package() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("examples/operator")
}

/// Cargo in the package, on the workspace's versions and in its target directory.
fn cargo(arguments: &[&str]) -> Command {
    static LOCKED: OnceLock<()> = OnceLock::new();
    LOCKED.get_or_init(|| {
        let lock = package().join("../../Cargo.lock");
        std::fs::copy(lock, package().join("Cargo.lock")).unwrap();
    });
    let target = Path::new(env!("CARGO_BIN_EXE_slackwater")).parent().unwrap().parent().unwrap();
    let mut command = Command::new("cargo");
    command.args(arguments).current_dir(package()).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
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

struct Cluster(Child);

impl Drop for Cluster {
    fn drop(&mut self) {
        // It holds the locations, and ends them when it is told to.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_has_the_operators() {
    let place = tempfile::tempdir().unwrap();
    let state = place.path().join("state");
    let settings = kills::server_process::Settings::new(place.path(), u64::from(std::process::id()) + 4_999, "", None);
    let address = format!("127.0.0.1:{}", settings.port);
    let (out, log) = (place.path().join("log"), std::fs::File::create(place.path().join("log")).unwrap());
    let mut command = cargo(&["run", "--offline", "--quiet", "--example", "cluster", "--"]);
    command.arg(&state).args([address.as_str(), "2"]).stdout(log.try_clone().unwrap()).stderr(log);
    let mut cluster = Cluster(command.spawn().unwrap());

    let client = Client::new(settings.url(""));
    let mut ready = false;
    for _ in 0..LAUNCHES_MAX {
        let patience = Patience::until("a part of the launch is over");
        for _ in 0..1_000 {
            ready = ready || client.readiness().await.is_some_and(|(status, _)| status == 200);
            if ready {
                break;
            }
            let ended = cluster.0.try_wait().unwrap();
            assert!(ended.is_none(), "the cluster has ended:\n{}", std::fs::read_to_string(&out).unwrap());
            patience.again().await;
        }
    }
    assert!(ready, "the cluster is not ready:\n{}", std::fs::read_to_string(&out).unwrap());

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

    // The shards' audit trails have all five messages, the refused one with its reason.
    let trail = kills::within("all messages are in the audit trails", async || {
        let read = |shard| std::fs::read_to_string(state.join(format!("notes-{shard}.log"))).unwrap_or_default();
        let trail = read(0) + &read(1);
        (trail.matches(r#""what":"message""#).count() == 5).then_some(trail)
    })
    .await;
    let lines: Vec<Value> = trail.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |tenant: &str| lines.iter().filter(|line| line["tenant"] == tenant).count();
    assert_eq!((of("acme"), of("globex")), (4, 1));
    assert_eq!(lines.iter().filter(|line| line["refused"].is_string()).count(), 1);
}
