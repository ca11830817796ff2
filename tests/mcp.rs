//! MCP servers behind a whole runtime: what a scripted agent does through them.
//!
//! In: a server on MCP's own SDK for Python, as a command and over HTTP, and the reference server `server-everything`
//! (`tests/peers/mcp.sh` installs them). Out: what the thread has in the end. Always: each call has one answer; a server that dies is
//! connected to again.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on should stop")]

#[path = "support/peers.rs"]
mod peers;

use peers::peer;
use serde_json::Value;
use slackwater::conversation::Conversation;
use slackwater::model::{Reply, Request, Scripted};
use slackwater::tool::{Config, McpConfig};
use slackwater::{Runtime, Slackwater};
use slackwater_core::history::Item;
use slackwater_core::record::Content;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(120);

/// The model: a message is `TOOL ARGUMENTS`; what comes of the call is said, a picture as its kind.
fn follow(request: &Request) -> Reply {
    let newest = request.prompt.history.newest_first().next().unwrap().clone();
    let words = |content: &[Content]| -> String {
        let word = |piece: &Content| match piece {
            Content::Text(text) => text.clone(),
            Content::Image { media_type, .. } => media_type.clone(),
            Content::File { name, .. } => name.clone(),
        };
        content.iter().map(word).collect::<Vec<_>>().join(" ")
    };
    match &*newest {
        Item::User { content, .. } => {
            let message = words(content);
            let (tool, arguments) = message.split_once(' ').unwrap_or((&message, "{}"));
            Reply::text("").call(tool, &serde_json::from_str::<Value>(arguments).unwrap())
        }
        Item::Result(answer) => Reply::text(format!("{:?}: {}", answer.by, words(&answer.content))),
        other => panic!("{other:?}"),
    }
}

async fn started(servers: Vec<McpConfig>) -> (Runtime, Conversation) {
    let config = Config { mcp: servers, ..Config::default() };
    let runtime = Slackwater::builder().model(Scripted::from_fn(follow)).tool_config(config).start().await.unwrap();
    assert_eq!(runtime.troubles(), []);
    let conversation = runtime.conversation("work").unwrap();
    (runtime, conversation)
}

async fn ask(conversation: &mut Conversation, text: &str) -> String {
    conversation.send(text).await.unwrap();
    tokio::time::timeout(PATIENCE, conversation.receive()).await.expect("the agent says nothing").unwrap()
}

async fn there(file: &Path) {
    let begun = Instant::now();
    while !file.exists() {
        assert!(begun.elapsed() < PATIENCE, "{} does not come", file.display());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn python(place: &Path) -> Vec<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/peers/mcp_server.py");
    [peer("mcp/python/bin/python", "mcp.sh"), script, place.to_owned()].map(|part| part.display().to_string()).into()
}

/// A server that runs somewhere: nobody's child but the test's.
struct Somewhere(Child);

impl Drop for Somewhere {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn listening(place: &Path, port: u16) -> Somewhere {
    let words = python(place);
    let mut command = Command::new(&words[0]);
    let child = command.args(&words[1..]).arg(port.to_string()).stdin(Stdio::null()).stderr(Stdio::null()).spawn();
    Somewhere(child.unwrap())
}

/// What a server is for, whatever it is reached by.
async fn behaves(conversation: &mut Conversation, place: &Path) {
    assert_eq!(ask(conversation, r#"add {"a": 2, "b": 3}"#).await, "Tool: 5");
    assert_eq!(ask(conversation, "picture").await, "Tool: image/png");
    let said = ask(conversation, "fail").await;
    assert_eq!(said, "ToolFailure: Error executing tool fail");
    // Arguments that do not fit are not sent.
    let said = ask(conversation, r#"add {"a": "two", "b": 3}"#).await;
    assert!(said.starts_with("Refusal: "), "{said}");
    assert_eq!(std::fs::read_to_string(place.join("added")).unwrap(), "2 3\n");
    // Who interrupts a call has it cancelled at the server.
    conversation.send("wait").await.unwrap();
    there(&place.join("waiting")).await;
    assert_eq!(ask(conversation, r#"add {"a": 1, "b": 1}"#).await, "Tool: 2");
    there(&place.join("cancelled")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_a_command() {
    let place = tempfile::tempdir().unwrap();
    let server = McpConfig { command: Some(python(place.path())), ..McpConfig::default() };
    let (runtime, mut conversation) = started(vec![server]).await;
    behaves(&mut conversation, place.path()).await;
    let said = ask(&mut conversation, "die").await;
    assert!(said.starts_with("ToolFailure: ") && said.contains("It is not known whether the call was done"), "{said}");
    assert_eq!(ask(&mut conversation, r#"add {"a": 4, "b": 4}"#).await, "Tool: 8", "it is started again");
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_over_http() {
    let place = tempfile::tempdir().unwrap();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = listening(place.path(), port);
    let url = Some(format!("http://127.0.0.1:{port}/mcp"));
    let headers = BTreeMap::from([("X-Tests".to_owned(), "1".to_owned())]);
    let (runtime, mut conversation) = started(vec![McpConfig { url, headers, ..McpConfig::default() }]).await;
    behaves(&mut conversation, place.path()).await;
    let said = ask(&mut conversation, "die").await;
    assert!(said.starts_with("ToolFailure: "), "{said}");
    drop(server);
    let _server = listening(place.path(), port);
    let begun = Instant::now();
    // The first calls may still meet nobody.
    while ask(&mut conversation, r#"add {"a": 4, "b": 4}"#).await != "Tool: 8" {
        assert!(begun.elapsed() < PATIENCE, "it is not found again");
    }
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server() {
    let program = peer("mcp/node_modules/.bin/mcp-server-everything", "mcp.sh");
    let command = Some(vec![program.display().to_string()]);
    let server = McpConfig { name: Some("everything".into()), command, ..McpConfig::default() };
    let (runtime, mut conversation) = started(vec![server]).await;
    assert_eq!(ask(&mut conversation, r#"echo {"message": "hello"}"#).await, "Tool: Echo: hello");
    assert!(ask(&mut conversation, "get-tiny-image").await.contains("image/png"));
    runtime.stop().await.unwrap();
}

#[tokio::test]
async fn bad_input_is_told() {
    let start = async |server: McpConfig| {
        let config = Config { mcp: vec![server], ..Config::default() };
        Slackwater::builder()
            .model(Scripted::from_fn(follow))
            .tool_config(config)
            .start()
            .await
            .err()
            .unwrap()
            .to_string()
    };
    let url = Some("http://127.0.0.1:1/mcp".to_owned());
    let headers = BTreeMap::from([("X".to_owned(), "1".to_owned())]);
    let command = Some(vec!["program".to_owned()]);
    let said = start(McpConfig { command: command.clone(), headers, ..McpConfig::default() }).await;
    assert!(said.contains("`headers` belong to a URL"), "{said}");
    let said = start(McpConfig { command, url, ..McpConfig::default() }).await;
    assert!(said.contains("needs either `url` or `command`"), "{said}");
    let said = start(McpConfig { name: Some("x".into()), ..McpConfig::default() }).await;
    assert!(said.contains("x: needs either"), "{said}");
}
