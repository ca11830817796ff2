//! Threads: `GET /v1/threads`, `GET /v1/threads/{thread}`, `POST /v1/threads/{thread}/stop`.
//!
//! In: which threads. Out: where they stand; a stop is answered when it is on stable storage. Always: asking wakes nobody.

use super::body::{self, Fields};
use super::messages;
use super::outputs;
use super::problem::Problem;
use super::server::{AppState, Parameters, ThreadPath};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{Json, Response};
use serde_json::{Value, json};
use slackwater_core::port::{Query, Reply};
use slackwater_core::record::{Origin, Record, Stop};

/// How many threads one page has when nobody says.
pub(super) const PAGE_LENGTH: usize = 50;
const PAGE_LENGTH_MAX: usize = 100;

pub(super) async fn list(
    State(app): State<AppState>,
    Parameters(mut parameters): Parameters,
) -> Result<Json<Value>, Problem> {
    let after = parameters.take_string("after")?;
    let limit = parameters.take_string("limit")?;
    parameters.finish("after, limit")?;
    let after = after
        .map(|text| text.parse().map_err(|error| Problem::field("after", format!("{text:?} is no thread: {error}."))))
        .transpose()?;
    let limit = match limit {
        None => PAGE_LENGTH,
        Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_LENGTH_MAX).contains(limit)).ok_or_else(|| {
            Problem::field("limit", format!("limit is {text:?}; it has to be a number from 1 to {PAGE_LENGTH_MAX}."))
        })?,
    };
    let (threads, next) = app.shards.threads(after, limit).await?;
    let threads: Vec<Value> = threads.iter().map(outputs::standing).collect();
    Ok(Json(json!({"threads": threads, "next": next.map(|thread| thread.to_string())})))
}

pub(super) async fn get(State(app): State<AppState>, ThreadPath(address): ThreadPath) -> Result<Json<Value>, Problem> {
    match app.shards.query(Query::Thread(address.thread)).await? {
        Reply::Thread(standing) => Ok(Json(outputs::standing(&standing))),
        Reply::UnknownThread => Err(Problem::unknown_thread()),
        Reply::Damaged(reason) => Err(Problem::damaged(reason)),
        Reply::Outputs(..) | Reply::Threads(_) => {
            unreachable!("invariant: a question about a thread's standing is answered with it")
        }
    }
}

pub(super) async fn stop(
    State(app): State<AppState>,
    Extension(origin): Extension<Origin>,
    ThreadPath(address): ThreadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let read = body::read_optional(&app, &headers, body, app.config.limits.message_bytes_max).await?;
    let mut fields = Fields::parse(read.as_ref().map_or(b"{}", |read| &read.bytes))?;
    let id = messages::input_id(&mut fields, &headers)?;
    fields.finish("id")?;
    let taken = app.shards.submit(address.thread, Record::Stop(Stop { id: id.clone(), origin })).await;
    let (number, duplicate) = messages::number(taken.map_err(|error| Problem::from(error).of_input(&id.0))?, &id.0)?;
    Ok(messages::answer(&address, number, &id.0, duplicate))
}
