//! The least tool server (Reactive Agent Protocol) that the stories need.
//!
//! In: one tool, and a function that is given each call once. Out: the server's URL; results and events go where the call says.
//! Always: a call is taken over at once and answered later; the same id again is the same call.

use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Serves a tool, beside whatever else the router has.
pub(crate) async fn serve(
    tool: &str,
    beside: Router,
    called: impl Fn(Value) + Clone + Send + Sync + 'static,
) -> std::io::Result<String> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let tool = json!({"name": tool, "description": "Takes a while.", "inputSchema": {"type": "object"}});
    let toolset = json!({"name": "example", "endpoint": format!("{url}/invoke"), "tools": [tool]});
    let known = Arc::new(Mutex::new(BTreeSet::new()));
    let invoke = async move |Json(call): Json<Value>| {
        if known.lock().unwrap_or_else(PoisonError::into_inner).insert(call["id"].to_string()) {
            called(call);
        }
        StatusCode::ACCEPTED
    };
    let app = beside.route("/.well-known/rap-toolset", get(async move || Json(toolset))).route("/invoke", post(invoke));
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

/// Delivers a callback of a call, however often that has to be tried.
pub(crate) async fn deliver(call: &Value, mut callback: Value) {
    callback["group_id"] = call["group_id"].clone();
    let client = reqwest::Client::builder().no_proxy().build().unwrap_or_default();
    let url = call["callback_url"].as_str().unwrap_or_default();
    while !client.post(url).json(&callback).send().await.is_ok_and(|answer| answer.status().is_success()) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
