//! Status: `GET /v1/status`, what the process costs at the moment.
//!
//! In: what the shards said last, and the system. Out: how many threads are in memory, and how much memory that is. Always:
//! asks no thread, so it costs the same however many there are.

use super::problem::Problem;
use super::server::AppState;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use serde_json::{Value, json};

pub(super) async fn get(State(app): State<AppState>) -> Result<Json<Value>, Problem> {
    let resident_bytes = resident_bytes().map_err(|error| {
        let help = "The other fields are in the process's log.";
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no-status", "The system does not say", error.to_string(), help)
    })?;
    Ok(Json(json!({
        "awake": app.shards.awake(),
        "resident_bytes": resident_bytes,
        "uptime_ms": app.started.elapsed().as_millis() as u64,
    })))
}

/// How much of the process is in memory, in bytes: the second field of `/proc/self/statm` (proc(5)), in pages.
fn resident_bytes() -> std::io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| std::io::Error::other("/proc/self/statm has not the form of proc(5)"))?;
    Ok(pages * rustix::param::page_size() as u64)
}
