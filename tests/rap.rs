//! The published RAP servers `rap-steering-server` and `sandbox-local` 0.2 work unchanged, as a URL and as a command that is
//! supervised.
//!
//! In: the programs that `tests/peers/rap.sh` installs (`SLACKWATER_PEERS` names another place than `target/peers`). Out: what
//! their tools answer, by callback. Always: every process that is started here is ended here.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![allow(clippy::print_stdout, reason = "what the servers answer is worth reading, and only shown when asked for")]

use axum::body::Bytes;
use axum::extract::{Path as UrlPath, State};
use futures::StreamExt as _;
use serde_json::{Value, json};
use slackwater::capability::CapabilityKey;
use slackwater::catalog::Catalog;
use slackwater::port::{FromAdapter, ToAdapter};
use slackwater::tool::wire::Callback;
use slackwater::tool::{self, Config, ServerConfig, Tools};
use slackwater_core::effect::Dispatch;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::ToTool;
use slackwater_core::record::{Arrival, Content, Origin, Proof, Record};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::sync::mpsc;

const PATIENCE: Duration = Duration::from_secs(60);

/// Where an installed server is.
fn program(name: &str) -> PathBuf {
    let peers = std::env::var_os("SLACKWATER_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"), PathBuf::from);
    let program = peers.join("rap/bin").join(name);
    assert!(program.exists(), "{} is missing; run: bash tests/peers/rap.sh", program.display());
    program
}

/// How a server is reached.
enum As {
    Url,
    Command,
}

/// A server that runs somewhere: nobody's child but the test's.
struct Somewhere(Child);

impl Drop for Somewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A thread's view of one server: it makes calls and gets their results.
struct Agent {
    from: FromAdapter<Arrival>,
    to: ToAdapter<ToTool>,
    tools: Tools,
    catalog: Catalog,
    key: CapabilityKey,
    callbacks: mpsc::UnboundedReceiver<(String, Bytes)>,
    thread: ThreadId,
    made: u64,
    home: TempDir,
    _somewhere: Option<Somewhere>,
}

impl Agent {
    async fn with(name: &str, arguments: &[&str], reached: As) -> Self {
        let home = tempfile::tempdir().unwrap();
        // The servers look into the home directory; the test's has nothing in it.
        let environment = [("HOME".to_owned(), home.path().display().to_string())];
        let mut line = vec![program(name).display().to_string()];
        line.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let (server, somewhere) = match reached {
            As::Command => (
                ServerConfig {
                    command: Some(line),
                    cwd: Some(home.path().to_owned()),
                    env: environment.into(),
                    ..ServerConfig::default()
                },
                None,
            ),
            As::Url => {
                let mut child = Command::new(&line[0])
                    .args(&line[1..])
                    .envs(environment)
                    // So that it chooses a port that is free and says which.
                    .env("RAP_EMBEDDED", "1")
                    .current_dir(home.path())
                    .stdin(Stdio::null())
                    .stdout(Stdio::piped())
                    .stderr(Stdio::inherit())
                    .spawn()
                    .unwrap();
                let mut said = String::new();
                std::io::BufReader::new(child.stdout.take().unwrap()).read_line(&mut said).unwrap();
                let said: Value = serde_json::from_str(&said).unwrap();
                let url = Some(format!("http://127.0.0.1:{}", said["port"]));
                (ServerConfig { url, ..ServerConfig::default() }, Some(Somewhere(child)))
            }
        };
        let (callback_base, callbacks) = receiver().await;
        let (catalog, key) = (Catalog::default(), CapabilityKey::random().unwrap());
        let config = Config { server: vec![server], ..Config::default() };
        let (from, to, mut tools) =
            tool::start(config, Vec::new(), catalog.clone(), key.clone(), callback_base).unwrap();
        assert_eq!(tools.ready(PATIENCE).await, []);
        let thread = ThreadId::from_bytes(*uuid::Uuid::now_v7().as_bytes());
        Self { from, to, tools, catalog, key, callbacks, thread, made: 0, home, _somewhere: somewhere }
    }

    /// Sends a call on its way and waits until the server has taken it over.
    async fn dispatch(&mut self, name: &str, arguments: &Value) -> Dispatch {
        self.made += 1;
        let call = CallId { number: self.made, index: 0 };
        let dispatch = Dispatch { thread: self.thread, call, name: name.to_owned(), arguments: arguments.to_string() };
        self.to.put(ToTool::Dispatch(dispatch.clone()));
        let arrival = tokio::time::timeout(PATIENCE, self.from.next()).await.expect("no record came").unwrap();
        assert_eq!(arrival.record, Record::Accepted(call), "{name} {arguments}");
        dispatch
    }

    /// Makes a call and waits for its result.
    async fn call(&mut self, name: &str, arguments: Value) -> String {
        let call = self.dispatch(name, &arguments).await.call;
        loop {
            let (token, body) =
                tokio::time::timeout(PATIENCE, self.callbacks.recv()).await.expect("no callback came").unwrap();
            let (thread, of) = self.key.verify(&token, 0).unwrap();
            let callback = Callback::parse(&body).unwrap();
            callback.check(thread, of).unwrap();
            match callback {
                Callback::ToolResult(result) => {
                    let origin = Origin { who: name.to_owned(), proof: Proof::Capability };
                    let result = result.into_record(thread, of, origin).unwrap();
                    assert_eq!((thread, result.call), (self.thread, call));
                    let [Content::Text(text)] = &result.content[..] else { panic!("{result:?}") };
                    println!("{name} {arguments}\n  -> {}", text.replace('\n', "\n     "));
                    return text.clone();
                }
                // What the sandbox shows to people after a change.
                Callback::ViewUpdate(_) => {}
                other => panic!("{name} wants something that this test does not give: {other:?}"),
            }
        }
    }

    fn offers(&self, names: &[&str]) {
        let tools = self.catalog.tools();
        for name in names {
            assert!(tools.iter().any(|tool| tool.name == *name), "{name} is not among {tools:?}");
        }
    }
}

/// Takes callbacks in, in place of the gateway.
async fn receiver() -> (String, mpsc::UnboundedReceiver<(String, Bytes)>) {
    async fn take(
        State(send): State<mpsc::UnboundedSender<(String, Bytes)>>,
        UrlPath(token): UrlPath<String>,
        body: Bytes,
    ) {
        // The test may be over already.
        let _ = send.send((token, body));
    }
    let (send, callbacks) = mpsc::unbounded_channel();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let app = axum::Router::new().route("/v1/callbacks/{token}", axum::routing::post(take)).with_state(send);
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    (base, callbacks)
}

async fn steering(mut agent: Agent) {
    agent.offers(&["list_steering", "load_steering"]);
    let project = tempfile::tempdir().unwrap();
    std::fs::write(project.path().join("AGENTS.md"), "Be brief.\n").unwrap();
    std::fs::create_dir_all(project.path().join(".kiro/steering")).unwrap();
    std::fs::write(project.path().join(".kiro/steering/style.md"), "No tabs.\n").unwrap();
    let root = project.path().display().to_string();
    assert_eq!(agent.call("list_steering", json!({"root": root})).await, ".kiro/steering/style.md\nAGENTS.md");
    assert_eq!(agent.call("load_steering", json!({"root": root, "path": "AGENTS.md"})).await, "Be brief.\n");
    let refused = agent.call("load_steering", json!({"root": root, "path": "../x"})).await;
    assert_eq!(refused, "Error: not a steering file location");
    agent.tools.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn steering_server_as_a_url() {
    steering(Agent::with("rap-steering-server", &[], As::Url).await).await;
}

#[tokio::test]
async fn steering_server_as_a_command() {
    steering(Agent::with("rap-steering-server", &[], As::Command).await).await;
}

fn git(directory: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git").args(arguments).current_dir(directory).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Whether any process on this machine was started with this argument.
fn somebody_runs(argument: &str) -> bool {
    std::fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        std::fs::read(entry.path().join("cmdline"))
            .is_ok_and(|line| line.split(|byte| *byte == 0).any(|part| part == argument.as_bytes()))
    })
}

async fn until(holds: impl Fn() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("what was waited for did not come");
}

/// A thread first says on which repository it works (`clone_repo`: a worktree on a branch of its own, in which files may be
/// changed without asking anybody); then it searches, reads, edits, and runs a command. `open_sandbox_direct` is not used: in
/// that mode each change asks the user by a `user_choice` callback.
async fn sandbox(mut agent: Agent) {
    agent.offers(&["clone_repo", "grep", "read_file", "edit_file", "create_file", "execute_command"]);
    let repository = agent.home.path().join("repository");
    std::fs::create_dir(&repository).unwrap();
    std::fs::write(repository.join("tide.txt"), "low\nslack water\nhigh\n").unwrap();
    git(&repository, &["init", "--quiet", "--initial-branch=main"]);
    git(&repository, &["config", "user.name", "A Test"]);
    git(&repository, &["config", "user.email", "test@example.org"]);
    git(&repository, &["add", "."]);
    git(&repository, &["commit", "--quiet", "--message", "The tide"]);

    let before = agent.call("read_file", json!({"path": "tide.txt"})).await;
    assert!(!before.contains("slack"), "a thread without a repository read one: {before}");
    agent.call("clone_repo", json!({"repo": repository})).await;
    let found = agent.call("grep", json!({"query": "slack +water"})).await;
    assert!(found.contains("tide.txt"), "{found}");
    let read = agent.call("read_file", json!({"path": "tide.txt"})).await;
    assert!(read.contains("slack water"), "{read}");
    agent.call("edit_file", json!({"path": "tide.txt", "old_str": "slack water", "new_str": "still water"})).await;
    let ran = agent.call("execute_command", json!({"command": "tr a-z A-Z < tide.txt; echo done >&2; exit 3"})).await;
    assert!(ran.contains("STILL WATER") && ran.contains("done") && ran.contains('3'), "{ran}");
    let branch = format!("sandbox-{}:tide.txt", agent.thread);
    assert_eq!(git(&repository, &["show", &branch]), "low\nstill water\nhigh\n");

    // A command that is cancelled is ended by its server. The number makes it recognisable among all processes.
    let seconds = format!("{}", 1_000_000 + std::process::id());
    let call = agent.dispatch("execute_command", &json!({"command": format!("exec sleep {seconds}")})).await;
    until(|| somebody_runs(&seconds)).await;
    agent.to.put(ToTool::Cancel(call));
    until(|| !somebody_runs(&seconds)).await;
    agent.tools.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sandbox_as_a_url() {
    sandbox(Agent::with("sandbox-local", &["--metadata-dir", "url"], As::Url).await).await;
}

#[tokio::test]
async fn sandbox_as_a_command() {
    sandbox(Agent::with("sandbox-local", &["--metadata-dir", "command"], As::Command).await).await;
}
