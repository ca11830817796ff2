//! Forward: a request for a thread of another cell goes to that cell's gateway, so that a client may enter at any.
//!
//! In: a request. Out: it goes on here, or the other gateway's answer, as it comes. Always: bodies and streams pass through and are
//! not kept; a request is forwarded once at most; who sends is checked where the thread is, with the same keys; while the other
//! cell is being started the sender is told to come back.

use super::name;
use super::problem::Problem;
use super::server::{App, AppState};
use super::shards::now_ms;
use super::threads::PAGE_LENGTH;
use crate::placement::Cell;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use slackwater_core::id::ThreadId;
use std::time::Duration;

/// Says that a request comes from another cell's gateway, and from which. Whoever sends it by himself only has his request
/// answered here.
const FROM_CELL: &str = "x-slackwater-from-cell";

/// How long another gateway may take to accept a connection.
const CONNECT_MS_MAX: u64 = 1_000;

/// How long nothing of what was sent may be acknowledged by the other machine: then it is cut off.
const CUT_OFF_MS: u64 = 3_000;

/// What is about one connection and not about the request (RFC 9110, section 7.6.1), or was checked here already.
const NOT_PASSED_ON: [HeaderName; 8] = [
    header::CONNECTION,
    header::HOST,
    header::ORIGIN,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// The way to the gateways of the other cells.
pub(super) struct Peers {
    cell: Cell,
    client: reqwest::Client,
}

impl Peers {
    pub(super) fn new(cell: Option<&Cell>) -> Option<Self> {
        let cell = cell.filter(|cell| cell.placement.cells > 1)?.clone();
        let client = reqwest::Client::builder().no_proxy().connect_timeout(Duration::from_millis(CONNECT_MS_MAX));
        let client = client.tcp_user_timeout(Duration::from_millis(CUT_OFF_MS));
        let client = client.redirect(reqwest::redirect::Policy::none()).build();
        Some(Self { cell, client: client.expect("invariant: these settings of a client go together") })
    }
}

/// Passes a request on that is for another cell.
pub(super) async fn to_owner(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let Some(peers) = &app.peers else { return next.run(request).await };
    let forwarded = request.headers().contains_key(FROM_CELL);
    if request.uri().path() == "/v1/threads" && request.method() == Method::GET && !forwarded {
        return list(peers, request, next).await.unwrap_or_else(Problem::into_response);
    }
    let owner = thread(&app, request.uri()).map(|thread| peers.cell.placement.cell_of(thread));
    match owner.filter(|owner| *owner != peers.cell.cell) {
        None => next.run(request).await,
        Some(owner) if forwarded => {
            let detail = format!("This is cell {}, and the thread is at cell {owner}.", peers.cell.cell);
            unavailable(detail).into_response()
        }
        Some(owner) => pass_on(peers, owner, request).await.unwrap_or_else(Problem::into_response),
    }
}

/// The thread that a request is about.
fn thread(app: &App, uri: &Uri) -> Option<ThreadId> {
    let mut parts = uri.path().split('/').skip(1);
    match (parts.next()?, parts.next()?, decoded(parts.next()?)?) {
        ("v1", "threads", text) => name::address(&text).ok().map(|address| address.thread),
        // A token that proves nothing is refused here as well as there.
        ("v1", "callbacks", token) => app.key.verify(&token, now_ms()).ok().map(|(thread, _)| thread),
        _ => None,
    }
}

/// A segment of a path without its percent-encoding (RFC 3986, section 2.1).
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let (high, low) = (char::from(rest.next()?).to_digit(16)?, char::from(rest.next()?).to_digit(16)?);
                bytes.push((high * 16 + low) as u8);
            }
            byte => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

async fn pass_on(peers: &Peers, owner: u32, request: Request) -> Result<Response, Problem> {
    let is_question = request.method() == Method::GET;
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let mut asked = peers.client.request(parts.method, format!("{}{path}", gateway(peers, owner)));
    asked = asked.headers(passed_on(&parts.headers)).header(FROM_CELL, peers.cell.cell);
    let has_body =
        parts.headers.contains_key(header::CONTENT_LENGTH) || parts.headers.contains_key(header::TRANSFER_ENCODING);
    if has_body {
        asked = asked.body(reqwest::Body::wrap_stream(body.into_data_stream()));
    }
    let answer = asked
        .send()
        .await
        .map_err(|error| if is_question || error.is_connect() { starting(owner) } else { unknown_fate(owner) })?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = passed_on(answer.headers());
    *response.body_mut() = Body::from_stream(answer.bytes_stream());
    Ok(response)
}

/// The threads of all cells: one page of each, merged.
async fn list(peers: &Peers, request: Request, next: Next) -> Result<Response, Problem> {
    let headers = passed_on(request.headers());
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let others = (0..peers.cell.placement.cells).filter(|cell| *cell != peers.cell.cell).map(async |cell| {
        let asked = peers.client.get(format!("{}{path}", gateway(peers, cell))).headers(headers.clone());
        let answer = asked.header(FROM_CELL, peers.cell.cell).send().await.map_err(|_| starting(cell))?;
        let answer = answer.error_for_status().map_err(|_| starting(cell))?;
        answer.json::<Value>().await.map_err(|_| starting(cell))
    });
    let (own, others) = tokio::join!(next.run(request), futures::future::join_all(others));
    if own.status() != StatusCode::OK {
        return Ok(own);
    }
    let own = axum::body::to_bytes(own.into_body(), usize::MAX).await.map_err(|_| starting(peers.cell.cell))?;
    let own: Value = serde_json::from_slice(&own).map_err(|_| starting(peers.cell.cell))?;
    let mut pages = vec![own];
    for other in others {
        pages.push(other?);
    }
    // The handler of this gateway has read it before and found it good.
    let pairs = url::form_urlencoded::parse(path.split_once('?').map_or("", |(_, query)| query).as_bytes());
    let limit = pairs.filter(|(name, _)| name == "limit").find_map(|(_, text)| text.parse().ok());
    Ok(axum::Json(merged(pages, limit.unwrap_or(PAGE_LENGTH))).into_response())
}

/// Pages of threads as one, so long at most: up to the first thread that ends a page after which there are more.
fn merged(pages: Vec<Value>, limit: usize) -> Value {
    let id = |thread: &Value| thread["thread"].as_str().unwrap_or_default().to_owned();
    let mut end = pages.iter().filter_map(|page| page["next"].as_str()).min().map(str::to_owned);
    let lists = pages.into_iter().filter_map(|mut page| match page["threads"].take() {
        Value::Array(threads) => Some(threads),
        _ => None,
    });
    let mut threads: Vec<Value> = lists.flatten().collect();
    threads.sort_by_key(id);
    if let Some(end) = &end {
        threads.retain(|thread| id(thread) <= *end);
    }
    if threads.len() > limit {
        threads.truncate(limit);
        end = threads.last().map(id);
    }
    json!({"threads": threads, "next": end})
}

fn gateway(peers: &Peers, cell: u32) -> &str {
    peers.cell.gateways.get(cell as usize).map_or("", |url| url.trim_end_matches('/'))
}

fn passed_on(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for name in NOT_PASSED_ON {
        headers.remove(name);
    }
    headers.remove("keep-alive");
    headers
}

fn starting(cell: u32) -> Problem {
    unavailable(format!("Cell {cell}, where the thread is, cannot be reached; it is being started."))
}

fn unavailable(detail: String) -> Problem {
    let help = "Send it again after the time in Retry-After, with the same id.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Nothing can be taken now", detail, help)
        .retry_after(1)
}

fn unknown_fate(cell: u32) -> Problem {
    let detail = format!("Cell {cell} stopped before it answered, so it is not known whether this was taken.");
    let help = "Send it again after the time in Retry-After, with the same id, which does not take it twice.";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unknown-fate", "There is no answer", detail, help).retry_after(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_segment_is_decoded_as_the_handlers_see_it() {
        assert_eq!(decoded("demo").as_deref(), Some("demo"));
        assert_eq!(decoded("d%65mo").as_deref(), Some("demo"));
        for bad in ["%", "%6", "%6x", "%ff"] {
            assert_eq!(decoded(bad), None, "{bad}");
        }
    }

    #[test]
    fn pages_are_merged_without_gap() {
        let page = |ids: &[&str], next: Option<&str>| {
            let threads: Vec<Value> = ids.iter().map(|id| json!({ "thread": id })).collect();
            json!({"threads": threads, "next": next})
        };
        // The second cell has more after `d`, so what is known of the first one after `d` is left for the next page.
        let merged = merged(vec![page(&["a", "c", "e"], None), page(&["b", "d"], Some("d"))], 50);
        assert_eq!(merged, page(&["a", "b", "c", "d"], Some("d")));
        let pages = || vec![page(&["b"], None), page(&["a"], None)];
        assert_eq!(super::merged(pages(), 50), page(&["a", "b"], None));
        assert_eq!(super::merged(pages(), 1), page(&["a"], Some("a")));
    }
}
