//! Threads: `GET /v1/threads`, `GET /v1/threads/{thread}` and what is below it (`why`, `view`, `records`), `POST …/stop` and `…/compact`.
//!
//! In: which threads. Out: where they stand; a stop or a wish to compact is answered when it is on stable storage. Always:
//! asking wakes nobody.

use super::body::{self, Fields};
use super::messages;
use super::name::Address;
use super::problem::Problem;
use super::server::{AppState, Parameters, ThreadPath};
use super::{outputs, view};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::{Json, Response};
use serde_json::{Value, json};
use slackwater_core::id::InputId;
use slackwater_core::port::{Query, Reply};
use slackwater_core::record::{Compact, CompactWhy, Origin, Record, Stop};

/// How many threads one page has when nobody says.
pub(super) const PAGE_LENGTH: usize = 50;
const PAGE_LENGTH_MAX: usize = 100;

pub(super) async fn list(
    State(app): State<AppState>,
    Parameters(mut parameters): Parameters,
) -> Result<Json<Value>, Problem> {
    let (after, limit) = page(&mut parameters)?;
    parameters.finish("after, limit")?;
    let after = after
        .map(|text| text.parse().map_err(|error| Problem::field("after", format!("{text:?} is no thread: {error}."))))
        .transpose()?;
    let (threads, next) = app.shards.threads(after, limit).await?;
    let threads: Vec<Value> = threads.iter().map(outputs::standing).collect();
    Ok(Json(json!({"threads": threads, "next": next.map(|thread| thread.to_string())})))
}

pub(super) async fn get(State(app): State<AppState>, ThreadPath(address): ThreadPath) -> Result<Json<Value>, Problem> {
    ask(&app, Query::Thread(address.thread)).await
}

pub(super) async fn why(State(app): State<AppState>, ThreadPath(address): ThreadPath) -> Result<Json<Value>, Problem> {
    ask(&app, Query::Why(address.thread)).await
}

pub(super) async fn view(
    State(app): State<AppState>,
    ThreadPath(address): ThreadPath,
    Parameters(mut parameters): Parameters,
) -> Result<Json<Value>, Problem> {
    let (after, limit) = page(&mut parameters)?;
    parameters.finish("after, limit")?;
    let after = number(after)?.try_into().unwrap_or(usize::MAX);
    ask(&app, Query::View { thread: address.thread, after, limit }).await
}

pub(super) async fn records(
    State(app): State<AppState>,
    ThreadPath(address): ThreadPath,
    Parameters(mut parameters): Parameters,
) -> Result<Json<Value>, Problem> {
    let (after, limit) = page(&mut parameters)?;
    parameters.finish("after, limit")?;
    ask(&app, Query::Records { thread: address.thread, after: number(after)?, limit }).await
}

/// Asks about one thread.
async fn ask(app: &AppState, question: Query) -> Result<Json<Value>, Problem> {
    let thread = question.thread();
    let reply = app.shards.query(question).await?;
    match view::reply(thread, &reply) {
        Some(shown) => Ok(Json(shown)),
        None => match reply {
            Reply::Damaged(reason) => Err(Problem::damaged(reason)),
            _ => Err(Problem::unknown_thread()),
        },
    }
}

/// Which page is asked for: where it begins, and how long it is.
fn page(parameters: &mut Fields) -> Result<(Option<String>, usize), Problem> {
    let after = parameters.take_string("after")?;
    let limit = match parameters.take_string("limit")? {
        None => PAGE_LENGTH,
        Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_LENGTH_MAX).contains(limit)).ok_or_else(|| {
            Problem::field("limit", format!("limit is {text:?}; it has to be a number from 1 to {PAGE_LENGTH_MAX}."))
        })?,
    };
    Ok((after, limit))
}

/// A place counted from the beginning; 0 when none is named.
fn number(after: Option<String>) -> Result<u64, Problem> {
    let Some(text) = after else { return Ok(0) };
    text.parse().map_err(|_| Problem::field("after", format!("after is {text:?}; it has to be the `next` of a page.")))
}

pub(super) async fn stop(
    State(app): State<AppState>,
    Extension(origin): Extension<Origin>,
    ThreadPath(address): ThreadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let stop = |fields: &mut Fields, id, origin| {
        let subtree = fields.take_bool("subtree")?.unwrap_or(false);
        let stop = Stop { id, origin };
        Ok(if subtree { Record::StopAll(stop) } else { Record::Stop(stop) })
    };
    wish(&app, origin, &address, &headers, body, (stop, "id, subtree")).await
}

pub(super) async fn compact(
    State(app): State<AppState>,
    Extension(origin): Extension<Origin>,
    ThreadPath(address): ThreadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let compact = |_: &mut Fields, id, origin| Ok(Record::Compact(Compact { id, origin, why: CompactWhy::ByHand }));
    wish(&app, origin, &address, &headers, body, (compact, "id")).await
}

/// What is asked for, from the fields of a body, its id and its sender.
type Wish = fn(&mut Fields, InputId, Origin) -> Result<Record, Problem>;

/// Takes something that has an id and says little else: what that is, and the fields there are.
async fn wish(
    app: &AppState,
    origin: Origin,
    address: &Address,
    headers: &HeaderMap,
    body: Body,
    (record, fields_known): (Wish, &str),
) -> Result<Response, Problem> {
    let read = body::read_optional(app, headers, body, app.config.limits.message_bytes_max).await?;
    let mut fields = Fields::parse(read.as_ref().map_or(b"{}", |read| &read.bytes))?;
    let id = messages::input_id(&mut fields, headers)?;
    let record = record(&mut fields, id.clone(), origin)?;
    fields.finish(fields_known)?;
    messages::take(app, address, &id.0, record).await
}
