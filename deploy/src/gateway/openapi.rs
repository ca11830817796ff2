//! The description of this interface: `GET /openapi.json`, and `GET /` for people.
//!
//! In: `openapi.json`, written by hand. Out: the same. Always: it has the routes of the table and no others, and what is
//! answered is as it says (tests check both).

use super::routes::ROUTES;
use axum::http::header;
use axum::response::{IntoResponse, Json, Response};
use serde_json::{Value, json};

/// The interface as OpenAPI 3.1.
pub const OPENAPI: &str = include_str!("openapi.json");

pub(super) async fn document() -> Response {
    ([(header::CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

pub(super) async fn index() -> Json<Value> {
    let routes: Vec<Value> = ROUTES
        .iter()
        .map(|route| json!({"method": route.method, "path": route.path, "summary": route.summary}))
        .collect();
    Json(json!({"name": "slackwater", "version": env!("CARGO_PKG_VERSION"), "routes": routes}))
}
