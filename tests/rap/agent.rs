//! An agent that follows a plan, in a whole runtime with one published server.
//!
//! In: a server, how it is reached, and plans: which calls are made after which message. Out: what was said, and at the end
//! the thread as its records on disk make it. Always: the model sees each result before it makes its next call; the server
//! has an empty home directory and ends with the test.

use crate::kills::records::{self, Folded};
use crate::peers::peer;
use serde_json::Value;
use slackwater::conversation::Conversation;
use slackwater::model::{Reply, Request, Scripted};
use slackwater::tool::{Config, ServerConfig};
use slackwater::{Runtime, Slackwater};
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::id::CallId;
use slackwater_core::record::{Content, Origin, Proof, Record};
use std::io::BufRead as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// How a server is reached.
#[derive(Clone, Copy, PartialEq)]
pub enum As {
    Url,
    Command,
}

/// A message, and the calls that are made one after another when it has come.
pub type Plan = (&'static str, Vec<(&'static str, Value)>);

/// A server that runs somewhere: nobody's child but the test's.
struct Somewhere(Child);

impl Drop for Somewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A runtime with one server and one conversation.
pub struct Agent {
    runtime: Runtime,
    conversation: Conversation,
    place: TempDir,
    _somewhere: Option<Somewhere>,
}

/// Where the server lives, under the place of a test.
const HOME: &str = "home";
/// Where the runtime keeps its records.
const DATA: &str = "data";

impl Agent {
    /// Starts everything in this place.
    pub async fn start(place: TempDir, server: &str, reached: As, plans: Vec<Plan>) -> Self {
        let home = place.path().join(HOME);
        std::fs::create_dir(&home).unwrap();
        let (server, somewhere) = server_of(server, &home, reached);
        let runtime = Slackwater::builder()
            .directory(place.path().join(DATA))
            .model(Scripted::from_fn(move |request| follow(&plans, request)))
            .tool_config(Config { server: vec![server], ..Config::default() })
            .start()
            .await
            .unwrap();
        assert_eq!(runtime.troubles(), []);
        let conversation = runtime.conversation("work").unwrap();
        Self { runtime, conversation, place, _somewhere: somewhere }
    }

    /// Sends a message without waiting for what comes of it.
    pub async fn send(&mut self, text: &str) {
        self.conversation.send(text).await.unwrap();
    }

    /// The next turn that makes no calls.
    pub async fn receive(&mut self) -> String {
        tokio::time::timeout(PATIENCE, self.conversation.receive()).await.expect("the agent says nothing").unwrap()
    }

    /// Sends a message and waits for what the agent reports.
    pub async fn ask(&mut self, text: &str) -> String {
        self.send(text).await;
        self.receive().await
    }

    pub fn thread(&self) -> String {
        self.conversation.thread().to_string()
    }

    /// A URL of the gateway.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.runtime.address())
    }

    /// Ends the runtime and reads what it has kept: the thread, and the place in which everything happened.
    pub async fn end(self) -> (Folded, TempDir) {
        let id = self.conversation.thread();
        self.runtime.stop().await.unwrap();
        let mut threads = records::read(&self.place.path().join(DATA)).await;
        assert_eq!(threads.len(), 1);
        (threads.remove(&id).unwrap(), self.place)
    }
}

/// The model: it makes the calls of the plan for the last message, one a turn, and then repeats the last result.
fn follow(plans: &[Plan], request: &Request) -> Reply {
    let items: Vec<&Arc<Item>> = request.prompt.history.to_vec();
    let last = items.iter().rposition(|item| matches!(&***item, Item::User { .. })).unwrap();
    let Item::User { content, .. } = &**items[last] else { unreachable!() };
    let message = text(content);
    let results: Vec<&str> = items[last..]
        .iter()
        .filter_map(|item| match &***item {
            Item::Result(answer) => Some(text(&answer.content)),
            _ => None,
        })
        .collect();
    let (_, calls) = plans.iter().find(|(of, _)| *of == message).unwrap();
    match calls.get(results.len()) {
        Some((tool, arguments)) => Reply::text(format!("I call {tool}.")).call(*tool, arguments),
        None => Reply::text(results.last().copied().unwrap_or("Nothing to do.")),
    }
}

fn text(content: &[Content]) -> &str {
    match content {
        [Content::Text(text)] => text,
        other => panic!("not one text: {other:?}"),
    }
}

fn server_of(name: &str, home: &Path, reached: As) -> (ServerConfig, Option<Somewhere>) {
    let program = peer(&format!("rap/bin/{name}"), "rap.sh");
    let arguments: &[&str] = if name == "sandbox-local" { &["--metadata-dir", "metadata"] } else { &[] };
    let environment = [("HOME".to_owned(), home.display().to_string())];
    if reached == As::Command {
        let line = std::iter::once(program.to_str().unwrap()).chain(arguments.iter().copied());
        let command = Some(line.map(str::to_owned).collect());
        let server =
            ServerConfig { command, cwd: Some(home.to_owned()), env: environment.into(), ..ServerConfig::default() };
        return (server, None);
    }
    let mut child = Command::new(program)
        .args(arguments)
        .envs(environment)
        // So that it chooses a port that is free and says which.
        .env("RAP_EMBEDDED", "1")
        .current_dir(home)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut said = String::new();
    let stdout = child.stdout.take().unwrap();
    let somewhere = Somewhere(child);
    std::io::BufReader::new(stdout).read_line(&mut said).unwrap();
    let said: Value = serde_json::from_str(&said).unwrap();
    let url = Some(format!("http://127.0.0.1:{}", said["port"]));
    (ServerConfig { url, ..ServerConfig::default() }, Some(somewhere))
}

/// Checks that the thread made these calls, that the server took each of them over once, and answered each that was not
/// cancelled once, by the capability of the call; returns the answers in the order of the calls.
pub fn answers(folded: &Folded, plans: &[Plan]) -> Vec<String> {
    let planned: Vec<String> =
        plans.iter().flat_map(|(_, calls)| calls).map(|(_, arguments)| arguments.to_string()).collect();
    let calls = folded.calls();
    assert_eq!(calls.values().cloned().collect::<Vec<_>>(), planned);
    let of = |call: CallId, is: fn(&Record) -> Option<CallId>| -> Vec<&Record> {
        let records = folded.records.iter().map(|record| &record.arrival.record);
        records.filter(|record| is(record) == Some(call)).collect()
    };
    let mut answers = Vec::new();
    for (call, shown) in folded.answers() {
        let accepted = of(call, |record| if let Record::Accepted(call) = record { Some(*call) } else { None });
        assert_eq!(accepted.len(), 1, "{call:?}");
        let results = of(call, |record| if let Record::Result(result) = record { Some(result.call) } else { None });
        match (&shown[..], &results[..]) {
            ([AnsweredBy::Cancelled], _) => {}
            ([AnsweredBy::Tool], [Record::Result(result)]) => {
                assert_eq!(result.origin, Origin { who: "tool".into(), proof: Proof::Capability });
                answers.push(text(&result.content).to_owned());
            }
            other => panic!("{call:?} is not answered once: {other:?}"),
        }
    }
    answers
}
