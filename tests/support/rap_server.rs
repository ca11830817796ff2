//! A tool server that remembers: RAP over HTTP, in the test's own process, so that it outlives every life of the runtime.
//!
//! In: invocations. Out: results by callback, repeated until they are taken. Always: an id is one piece of work, however
//! often it is asked for; every id ever asked for is remembered with what it was asked with.

use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A piece of work.
#[derive(Clone, Debug)]
pub struct Work {
    /// How often it was asked for.
    pub asked: usize,
    pub arguments: Value,
    pub thread: String,
    pub callback_url: String,
    /// How the callback was answered at last, once it was.
    pub answered: Option<u16>,
    /// What was chosen, each time that it was told.
    pub chosen: Vec<u64>,
}

/// What a tool server is and knows. A clone is the same server.
#[derive(Clone)]
pub struct RapServer(Arc<Inner>);

struct Inner {
    url: String,
    /// Work is answered after so many milliseconds at most; never by itself, if there is no number.
    answer_ms_max: Option<u64>,
    /// Whether invocations are heard and not acknowledged.
    deaf: AtomicBool,
    /// Whether it says that it knows none of its calls.
    forgetful: AtomicBool,
    ticks: AtomicU64,
    client: reqwest::Client,
    work: Mutex<BTreeMap<String, Work>>,
}

impl RapServer {
    /// Starts a server with the tool `look`; `deploy`, which is destructive; `ask`, which has a person choose; and `doze`, which
    /// may take half a second and answers nothing by itself.
    pub async fn start(answer_ms_max: Option<u64>) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self(Arc::new(Inner {
            url: format!("http://{}", listener.local_addr().unwrap()),
            answer_ms_max,
            deaf: AtomicBool::new(false),
            forgetful: AtomicBool::new(false),
            ticks: AtomicU64::new(0),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            work: Mutex::default(),
        }));
        let router = Router::new()
            .route("/.well-known/rap-toolset", get(toolset))
            .route("/invoke", post(invoke))
            .route("/choice", post(chosen))
            .route("/tool_call_status", post(status))
            .route("/cancel_tool_call", post(async || StatusCode::OK))
            .with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        server
    }

    pub fn url(&self) -> &str {
        &self.0.url
    }

    /// Makes it hear invocations without acknowledging them, or acknowledge them again.
    pub fn set_deaf(&self, deaf: bool) {
        self.0.deaf.store(deaf, Ordering::SeqCst);
    }

    /// Makes it say that it knows none of its calls.
    pub fn forget(&self) {
        self.0.forgetful.store(true, Ordering::SeqCst);
    }

    /// Everything it was asked to do, by id.
    pub fn work(&self) -> BTreeMap<String, Work> {
        self.0.work.lock().unwrap().clone()
    }

    /// Waits until it was asked for so many pieces of work, each so often at least.
    pub async fn asked(&self, pieces: usize, times: usize) -> BTreeMap<String, Work> {
        super::within("the tool server is asked", async || {
            let work = self.work();
            (work.len() >= pieces && work.values().all(|work| work.asked >= times)).then_some(work)
        })
        .await
    }

    /// Answers a piece of work, however often that takes; says how the runtime answered.
    pub async fn answer(&self, id: &str) -> u16 {
        let work = self.0.work.lock().unwrap()[id].clone();
        let mut text = format!("seen: {}", work.arguments["about"].as_str().unwrap_or_default());
        if let Some(chosen) = work.chosen.last() {
            text.push_str(&format!(", chosen: {chosen}"));
        }
        let body = json!({"type": "tool_result", "group_id": work.thread, "id": id, "text": text});
        let status = self.call_back(&work.callback_url, &body).await;
        self.0.work.lock().unwrap().get_mut(id).unwrap().answered = Some(status);
        status
    }

    /// Has a person choose for a piece of work.
    async fn ask(&self, id: &str) -> u16 {
        let work = self.0.work.lock().unwrap()[id].clone();
        let response_url = format!("{}/choice", self.0.url);
        let body = json!({
            "type": "user_choice", "group_id": work.thread, "id": id, "prompt": "Which one?", "choices": ["this", "that"],
            "default": 0, "response_url": response_url,
        });
        self.call_back(&work.callback_url, &body).await
    }

    async fn call_back(&self, url: &str, body: &Value) -> u16 {
        loop {
            let sent = self.0.client.post(url).json(body).timeout(Duration::from_secs(10)).send().await;
            if let Ok(answer) = sent {
                let status = answer.status().as_u16();
                if !matches!(status, 429 | 503) {
                    return status;
                }
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    }
}

async fn toolset(State(server): State<RapServer>) -> Json<Value> {
    let schema = json!({"type": "object", "properties": {"about": {"type": "string"}}});
    let tool = |name: &str, annotations: Value| json!({"name": name, "description": "Looks.", "inputSchema": schema, "annotations": annotations});
    let tools = [
        tool("look", json!({})),
        tool("deploy", json!({"destructive": true})),
        tool("ask", json!({})),
        tool("doze", json!({"timeoutMs": 500})),
    ];
    Json(json!({"name": "watch", "endpoint": format!("{}/invoke", server.0.url), "tools": tools}))
}

async fn status(State(server): State<RapServer>, Json(asked): Json<Value>) -> Json<Value> {
    let known = server.work().contains_key(asked["tool_call_id"].as_str().unwrap());
    Json(json!({"alive": known && !server.0.forgetful.load(Ordering::SeqCst)}))
}

async fn chosen(State(server): State<RapServer>, Json(said): Json<Value>) -> StatusCode {
    let id = said["id"].as_str().unwrap().to_owned();
    let chosen = said["selected"].as_u64().unwrap();
    server.0.work.lock().unwrap().get_mut(&id).unwrap().chosen.push(chosen);
    tokio::spawn(async move { server.answer(&id).await });
    StatusCode::OK
}

async fn invoke(State(server): State<RapServer>, Json(asked): Json<Value>) -> StatusCode {
    let text = |field: &str| asked[field].as_str().unwrap().to_owned();
    let id = text("id");
    let first = {
        let mut all = server.0.work.lock().unwrap();
        let work = all.entry(id.clone()).or_insert_with(|| Work {
            asked: 0,
            arguments: asked["arguments"].clone(),
            thread: text("group_id"),
            callback_url: text("callback_url"),
            answered: None,
            chosen: Vec::new(),
        });
        assert_eq!(
            (&work.arguments, &work.thread),
            (&asked["arguments"], &text("group_id")),
            "one id, one effect: {id}"
        );
        work.asked += 1;
        work.asked == 1
    };
    if server.0.deaf.load(Ordering::SeqCst) {
        std::future::pending::<()>().await;
    }
    let operation = text("operation");
    if operation == "ask" {
        if first {
            tokio::spawn(async move { server.ask(&id).await });
        }
    } else if let Some(answer_ms_max) = server.0.answer_ms_max
        && operation != "doze"
        && first
    {
        // Spread over the time, without chance: the storm's chances are in its seed.
        let pause_ms = server.0.ticks.fetch_add(37, Ordering::SeqCst) % (answer_ms_max + 1);
        let server = server.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            server.answer(&id).await;
        });
    }
    StatusCode::ACCEPTED
}
