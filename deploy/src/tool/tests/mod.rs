//! Tests of the tools as a whole, against servers that behave and servers that do not.
//!
//! In: a scripted RAP server and a configuration. Out: the records that the flow would get. Always: a time limit, so that
//! an answer that never comes fails the test and does not hang it.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod asks;
mod command;
mod local;
mod rap;

use super::{Config, LocalTool, ServerConfig, Tools, start};
use crate::capability::CapabilityKey;
use crate::catalog::Catalog;
use crate::port::{FromAdapter, ToAdapter};
use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use futures::StreamExt as _;
use serde_json::{Value, json};
use slackwater_core::effect::Dispatch;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::ToTool;
use slackwater_core::record::{Arrival, Content, Record, ToolResult};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Notify;

const PATIENCE: Duration = Duration::from_secs(20);

/// How a server reacts to one invocation.
#[derive(Clone)]
enum Reaction {
    Status(u16, &'static str),
    /// It answers 202, but only after the next notification of its gate.
    Gate,
    Hang,
}

/// A RAP server that does what the test says.
struct TestServer {
    base: String,
    seen: Arc<Mutex<Vec<(&'static str, Value)>>>,
    gate: Arc<Notify>,
    task: tokio::task::JoinHandle<()>,
}

#[derive(Clone)]
struct Script {
    manifest: Value,
    reactions: Arc<Mutex<VecDeque<Reaction>>>,
    seen: Arc<Mutex<Vec<(&'static str, Value)>>>,
    gate: Arc<Notify>,
}

/// A manifest as it should be.
fn manifest(base: &str, tools: &[&str]) -> Value {
    let tools: Vec<Value> = tools
        .iter()
        .map(|name| json!({"name": name, "description": "d", "inputSchema": {"type": "object", "properties": {}}}))
        .collect();
    json!({"name": "test-tools", "endpoint": format!("{base}/invoke"), "tools": tools, "unknown": 1})
}

impl TestServer {
    /// A server that offers these tools and reacts like this, one after another, and then with 202.
    async fn with_tools(tools: &[&str], reactions: &[Reaction]) -> Self {
        Self::with_manifest(|base| manifest(base, tools), reactions).await
    }

    async fn with_manifest(manifest: impl FnOnce(&str) -> Value, reactions: &[Reaction]) -> Self {
        Self::on(TcpListener::bind("127.0.0.1:0").await.unwrap(), manifest, reactions)
    }

    fn on(listener: TcpListener, manifest: impl FnOnce(&str) -> Value, reactions: &[Reaction]) -> Self {
        let base = format!("http://{}", listener.local_addr().unwrap());
        let script = Script {
            manifest: manifest(&base),
            reactions: Arc::new(Mutex::new(reactions.iter().cloned().collect())),
            seen: Arc::default(),
            gate: Arc::default(),
        };
        let (seen, gate) = (script.seen.clone(), script.gate.clone());
        let app = axum::Router::new()
            .route("/.well-known/rap-toolset", get(|State(script): State<Script>| async move { Json(script.manifest) }))
            .route("/invoke", post(invoke))
            .route(
                "/cancel_tool_call",
                post(|State(script): State<Script>, Json(body): Json<Value>| async move {
                    script.seen.lock().unwrap().push(("cancel", body));
                    std::future::pending::<()>().await
                }),
            )
            .route(
                "/close_thread",
                post(|State(script): State<Script>, Json(body): Json<Value>| async move {
                    script.seen.lock().unwrap().push(("close", body));
                    std::future::pending::<()>().await
                }),
            )
            .route(
                "/tool_call_status",
                post(|State(script): State<Script>, Json(body): Json<Value>| async move {
                    script.seen.lock().unwrap().push(("status", body));
                    react(&script).await
                }),
            )
            .route(
                "/answer",
                post(|State(script): State<Script>, Json(body): Json<Value>| async move {
                    script.seen.lock().unwrap().push(("answer", body));
                    react(&script).await
                }),
            )
            .with_state(script);
        let task = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { base, seen, gate, task }
    }

    fn config(&self) -> ServerConfig {
        ServerConfig { url: Some(self.base.clone()), ..ServerConfig::default() }
    }

    /// What was posted, of one kind.
    fn seen(&self, kind: &str) -> Vec<Value> {
        self.seen.lock().unwrap().iter().filter(|(of, _)| *of == kind).map(|(_, body)| body.clone()).collect()
    }

    /// Waits until so much was posted of a kind.
    async fn has_seen(&self, kind: &str, count: usize) {
        until(|| self.seen(kind).len() >= count).await;
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn invoke(State(script): State<Script>, Json(body): Json<Value>) -> (StatusCode, &'static str) {
    script.seen.lock().unwrap().push(("invoke", body));
    react(&script).await
}

async fn react(script: &Script) -> (StatusCode, &'static str) {
    let reaction = script.reactions.lock().unwrap().pop_front().unwrap_or(Reaction::Status(202, ""));
    match reaction {
        Reaction::Status(status, said) => (StatusCode::from_u16(status).unwrap(), said),
        Reaction::Gate => {
            script.gate.notified().await;
            (StatusCode::ACCEPTED, "")
        }
        Reaction::Hang => std::future::pending().await,
    }
}

/// An address at which nobody listens, and nobody else in this process can, for as long as the socket lives. It can begin to
/// listen; a second one for the same address can be made beside it.
fn reserve(address: &str) -> (TcpSocket, std::net::SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address.parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

/// Waits until something holds.
async fn until(mut holds: impl FnMut() -> bool) {
    tokio::time::timeout(PATIENCE, async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("what was waited for did not come");
}

/// Running tools, with both of their ends.
struct Running {
    from: FromAdapter<Arrival>,
    to: ToAdapter<ToTool>,
    tools: Tools,
    catalog: Catalog,
    key: CapabilityKey,
}

/// Short limits, so that tests of failures are quick.
fn config(servers: &[ServerConfig]) -> Config {
    Config {
        server: servers.to_vec(),
        invocation_timeout_ms: 5_000,
        invocation_attempts: 3,
        retry_first_ms: 1,
        retry_max_ms: 10,
        ..Config::default()
    }
}

fn run(config: Config, local: Vec<LocalTool>) -> Running {
    let catalog = Catalog::default();
    let key = CapabilityKey::random().unwrap();
    let (from, to, tools) =
        start(config, local, catalog.clone(), key.clone(), "http://127.0.0.1:9/".to_owned()).unwrap();
    Running { from, to, tools, catalog, key }
}

/// Runs with servers that are all found.
async fn ready(servers: &[&TestServer]) -> Running {
    let servers: Vec<ServerConfig> = servers.iter().map(|server| server.config()).collect();
    let mut running = run(config(&servers), Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running
}

fn thread() -> ThreadId {
    ThreadId::from_bytes([3; 16])
}

fn id(number: u64) -> CallId {
    CallId { number, index: 0 }
}

fn dispatch(number: u64, name: &str, arguments: &str) -> Dispatch {
    let (name, arguments) = (name.to_owned(), arguments.to_owned());
    Dispatch { thread: thread(), call: id(number), name, arguments, approved: false, ancestors: Vec::new() }
}

impl Running {
    fn call(&self, number: u64, name: &str, arguments: &str) {
        self.to.put(ToTool::Dispatch(dispatch(number, name, arguments)));
    }

    fn cancel(&self, number: u64, name: &str) {
        self.to.put(ToTool::Cancel(dispatch(number, name, "")));
    }

    async fn next(&mut self) -> Record {
        let arrival = tokio::time::timeout(PATIENCE, self.from.next()).await.expect("no record came").unwrap();
        assert_eq!((arrival.ticket, arrival.thread), (None, thread()));
        assert!(arrival.at_ms > 1_500_000_000_000);
        arrival.record
    }

    async fn result(&mut self) -> ToolResult {
        match self.next().await {
            Record::Result(result) => result,
            other => panic!("not a result: {other:?}"),
        }
    }

    /// The next record, which must be an error result of this call; its text.
    async fn error(&mut self, number: u64) -> String {
        let result = self.result().await;
        assert!(result.is_error && result.call == id(number), "{result:?}");
        text(&result).to_owned()
    }

    fn offered(&self) -> Vec<String> {
        self.catalog.tools().iter().map(|tool| tool.name.clone()).collect()
    }
}

fn text(result: &ToolResult) -> &str {
    match &result.content[..] {
        [Content::Text(text)] => text,
        other => panic!("not one text: {other:?}"),
    }
}
