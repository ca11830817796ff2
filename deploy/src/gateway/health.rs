//! Health and readiness: `GET /health`, `GET /ready`.
//!
//! In: whether the shards run. Out: 200, or 503 with the reason. Always: health asks nobody else.

use super::problem::Problem;
use super::server::AppState;
use super::shards::Readiness;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Json;
use serde_json::{Value, json};

pub(super) async fn live() -> Json<Value> {
    Json(json!({"live": true}))
}

pub(super) async fn ready(State(app): State<AppState>) -> Result<Json<Value>, Problem> {
    let reason = match app.shards.readiness() {
        Readiness::Ready => return Ok(Json(json!({"ready": true}))),
        Readiness::Starting => "The journal is being opened.".to_owned(),
        Readiness::Failed(reason) | Readiness::Stopping(reason) => reason,
    };
    let help = "Ask again after the time in Retry-After; the log of the process says more.";
    Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "not-ready", "Inputs are not taken now", reason, help)
        .retry_after(1))
}
