//! The sandbox: an agent works on a repository, and what it does is there afterwards.
//!
//! A thread first says on which repository it works (`clone_repo`: a worktree on a branch of its own, in which files may be
//! changed without asking anybody). `open_sandbox_direct` is not used: in that mode each change asks the user by a
//! `user_choice` callback.

use crate::agent::{Agent, As, Plan, answers};
use crate::kills::within;
use serde_json::json;
use std::path::Path;
use std::process::Command;

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn repository(directory: &Path) {
    std::fs::create_dir(directory).unwrap();
    std::fs::write(directory.join("tide.txt"), "low\nslack water\nhigh\n").unwrap();
    git(directory, &["init", "--quiet", "--initial-branch=main"]);
    git(directory, &["config", "user.name", "A Test"]);
    git(directory, &["config", "user.email", "test@example.org"]);
    git(directory, &["add", "."]);
    git(directory, &["commit", "--quiet", "--message", "The tide"]);
}

/// Whether any process on this machine was started with this argument.
fn somebody_runs(argument: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
    })
}

async fn sandbox(reached: As) {
    let place = tempfile::tempdir().unwrap();
    let repository_path = place.path().join("repository");
    repository(&repository_path);
    // The number makes it recognisable among all processes.
    let seconds = format!("{}", 1_000_000 + u64::from(std::process::id()) * 2 + u64::from(reached == As::Url));
    let plans: Vec<Plan> = vec![
        (
            "Still the water.",
            vec![
                ("read_file", json!({"path": "tide.txt"})),
                ("clone_repo", json!({"repo": repository_path})),
                ("grep", json!({"query": "slack +water"})),
                ("read_file", json!({"path": "tide.txt"})),
                ("edit_file", json!({"path": "tide.txt", "old_str": "slack water", "new_str": "still water"})),
                ("execute_command", json!({"command": "tr a-z A-Z < tide.txt; echo done >&2; exit 3"})),
            ],
        ),
        ("What now?", vec![]),
        ("Wait.", vec![("execute_command", json!({"command": format!("exec sleep {seconds}")}))]),
    ];
    let mut agent = Agent::start(place, "sandbox-local", reached, plans.clone()).await;
    let reported = agent.ask("Still the water.").await;
    assert!(reported.contains("STILL WATER") && reported.contains("done") && reported.contains('3'), "{reported}");
    let branch = format!("sandbox-{}:tide.txt", agent.thread());
    assert_eq!(git(&repository_path, &["show", &branch]), "low\nstill water\nhigh\n");
    assert_eq!(std::fs::read_to_string(repository_path.join("tide.txt")).unwrap(), "low\nslack water\nhigh\n");

    // A command that is cancelled is ended by its server.
    agent.send("Wait.").await;
    within("the command runs", async || somebody_runs(&seconds).then_some(())).await;
    let url = agent.url(&format!("/v1/threads/{}/stop", agent.thread()));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let stopped = client.post(url).send().await.unwrap();
    assert!(stopped.status().is_success(), "{stopped:?}");
    within("the command is ended", async || (!somebody_runs(&seconds)).then_some(())).await;

    assert_eq!(agent.ask("What now?").await, "Nothing to do.");
    let (folded, _place) = agent.end().await;
    let answers = answers(&folded, &plans);
    let [before, cloned, found, read, edited, ran] = &answers[..] else { panic!("{answers:#?}") };
    assert!(before.starts_with("Error: ") && !before.contains("slack"), "{before}");
    assert!(!cloned.starts_with("Error"), "{cloned}");
    assert!(found.contains("tide.txt:2:slack water"), "{found}");
    assert!(read.contains("slack water"), "{read}");
    assert!(edited.contains("tide.txt"), "{edited}");
    assert_eq!(*ran, reported);
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_as_a_url() {
    sandbox(As::Url).await;
}

#[tokio::test]
async fn sandbox_as_a_command() {
    sandbox(As::Command).await;
}
