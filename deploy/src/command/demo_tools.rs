//! `slackwater demo-tools`: the tool server of the demo, a process of its own (Reactive Agent Protocol).
//!
//! In: invocations of `start_build`. Out: an acknowledgement at once, and the result by callback when the build has ended; a
//! line of JSON on standard output for everything that happens. Always: a result that cannot be delivered is tried again
//! until it is; the same call twice is one build.

use super::Failure;
use crate::output;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use axum::routing::{get, post};
use serde_json::{Value, json};
use slackwater::tool::wire::{Callback, Invocation, Manifest, ToolDef, ToolResult};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the build does, and how long each step takes, in milliseconds.
const STEPS: [(&str, u64); 4] =
    [("fetch 14 sources", 900), ("compile", 2_200), ("run 212 tests", 2_000), ("pack the release", 900)];

/// The pause before a callback is tried again: the first, doubling up to the last.
const AGAIN_FIRST_MS: u64 = 200;
const AGAIN_LAST_MS: u64 = 1_000;

/// How long it tries.
const DELIVERY_MS_MAX: u64 = 120_000;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// End when the process ends that started this one
    #[arg(long)]
    end_with_parent: bool,
}

#[derive(Default)]
struct Server {
    endpoint: String,
    /// The calls that were taken over, so that a repeated invocation is no second build.
    calls: Mutex<BTreeSet<String>>,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::end_with_parent(arguments.end_with_parent)?;
    super::block_on(serve())
}

async fn serve() -> Result<(), Failure> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.map_err(Failure::because)?;
    let port = listener.local_addr().map_err(Failure::because)?.port();
    let server = Arc::new(Server { endpoint: format!("http://127.0.0.1:{port}/invoke"), ..Server::default() });
    let app = axum::Router::new()
        .route("/.well-known/rap-toolset", get(toolset))
        .route("/invoke", post(invoke))
        .route("/cancel_tool_call", post(async || StatusCode::OK))
        .with_state(server);
    output::line(json!({"port": port}));
    axum::serve(listener, app).await.map_err(Failure::because)
}

async fn toolset(State(server): State<Arc<Server>>) -> Json<Manifest> {
    let start_build = ToolDef {
        name: "start_build".to_owned(),
        description: "Builds a target and says how it went. Takes a while.".to_owned(),
        input_schema: json!({"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]}),
        annotations: None,
        display_script: None,
    };
    Json(Manifest {
        name: "demo-build".to_owned(),
        description: Some("A build service, as far as the demo needs one.".to_owned()),
        endpoint: server.endpoint.clone(),
        tools: vec![start_build],
        needs_migration: false,
    })
}

async fn invoke(State(server): State<Arc<Server>>, Json(invocation): Json<Invocation>) -> StatusCode {
    let id = &invocation.id;
    let is_new = server.calls.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone());
    output::line(
        json!({"event": if is_new { "accepted" } else { "repeated" }, "call": id, "callback_url": invocation.callback_url}),
    );
    if is_new {
        tokio::spawn(build(invocation));
    }
    StatusCode::ACCEPTED
}

async fn build(invocation: Invocation) {
    let begun = Instant::now();
    for (step, (name, takes_ms)) in STEPS.iter().enumerate() {
        output::line(json!({"event": "step", "step": step + 1, "of": STEPS.len(), "name": name}));
        tokio::time::sleep(Duration::from_millis(*takes_ms)).await;
    }
    let text = format!("build passed: 212 tests, {:.1} s", begun.elapsed().as_secs_f64());
    output::line(json!({"event": "built", "text": text}));
    let result = Callback::ToolResult(ToolResult {
        group_id: invocation.group_id,
        id: invocation.id,
        call_id: invocation.call_id,
        text: Some(text),
        content: None,
        display_as: None,
        subscription: None,
    });
    deliver(&invocation.callback_url, &result).await;
}

async fn deliver(url: &str, result: &Callback) {
    let client = match reqwest::Client::builder().no_proxy().build() {
        Ok(client) => client,
        Err(error) => return output::line(json!({"event": "gave up", "why": error.to_string()})),
    };
    let begun = Instant::now();
    let mut pause_ms = AGAIN_FIRST_MS;
    for attempt in 1.. {
        let (why, may_pass) = match client.post(url).json(result).send().await {
            Ok(answer) if answer.status().is_success() => {
                let answer: Value = answer.json().await.unwrap_or_default();
                return output::line(
                    json!({"event": "delivered", "attempt": attempt, "callback_url": url, "answer": answer}),
                );
            }
            Ok(answer) => (format!("answered {}", answer.status()), answer.status().is_server_error()),
            Err(error) if error.is_connect() => ("nobody listens".to_owned(), true),
            Err(error) => (error.to_string(), true),
        };
        if !may_pass || begun.elapsed().as_millis() as u64 > DELIVERY_MS_MAX {
            return output::line(json!({"event": "gave up", "why": why}));
        }
        output::line(json!({"event": "undelivered", "attempt": attempt, "why": why, "again_in_ms": pause_ms}));
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        pause_ms = (pause_ms * 2).min(AGAIN_LAST_MS);
    }
}
