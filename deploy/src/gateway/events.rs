//! Events: `GET /v1/threads/{thread}/events`, a thread's outputs as Server-Sent Events (WHATWG HTML, section 9.2).
//!
//! In: a thread and where to begin. Out: numbered outputs with their `id`, and chunks without. Always: a client that
//! reconnects with `Last-Event-ID` goes on without gap or repeat, also across restarts.

use super::outputs;
use super::problem::Problem;
use super::server::{AppState, Parameters, ThreadPath};
use super::subscription::Event;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::sse::{self, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use slackwater_core::id::OutputId;
use slackwater_core::port::{Query, Reply};
use std::convert::Infallible;
use std::time::Duration;

/// How long a client waits before it connects again.
const RECONNECT_MS: u64 = 500;

/// How often a silent stream shows that it lives.
const KEEP_ALIVE_S: u64 = 15;

pub(super) async fn get(
    State(app): State<AppState>,
    ThreadPath(address): ThreadPath,
    Parameters(mut parameters): Parameters,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let after = parameters.take_string("after")?;
    let from = parameters.take_string("from")?;
    parameters.finish("after, from")?;
    let last = headers.get("last-event-id").map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    // A browser that reconnects sends the header beside the parameters of its first request.
    let after = match (last.filter(|last| !last.is_empty()), after) {
        (Some(last), _) => Some(position("Last-Event-ID", &last)?),
        (None, Some(after)) => Some(position("after", &after)?),
        (None, None) => None,
    };
    let subscribed = match (after, from.as_deref()) {
        (_, Some(other)) if !matches!(other, "now" | "start") => {
            return Err(Problem::field("from", format!("from is {other:?}; it has to be start or now.")));
        }
        (Some(after), _) => app.shards.subscribe(address.thread, after),
        (None, Some("now")) => app.shards.subscribe_now(address.thread),
        (None, _) => app.shards.subscribe(address.thread, OutputId::default()),
    };
    let subscription = subscribed?;
    // Bounded by the subscriptions: a question that is refused would end stock clients, which give up for good at an error.
    match app.shards.ask(Query::Thread(address.thread)).await {
        Ok(Reply::UnknownThread) => return Err(Problem::unknown_thread()),
        Ok(Reply::Damaged(reason)) => return Err(Problem::damaged(reason)),
        // Without a reply the shard is being started again: the stream is opened, and goes on when the shard is there.
        Ok(_) | Err(_) => {}
    }
    let hello = sse::Event::default().retry(Duration::from_millis(RECONNECT_MS)).comment("slackwater");
    let events = subscription.into_stream().map(event);
    let stream = futures::stream::once(async { hello }).chain(events).map(Ok::<_, Infallible>);
    let keep_alive = KeepAlive::new().interval(Duration::from_secs(KEEP_ALIVE_S)).text("waiting");
    let mut response = Sse::new(stream).keep_alive(keep_alive).into_response();
    // Proxies that buffer would hold chunks back.
    response.headers_mut().insert("x-accel-buffering", axum::http::HeaderValue::from_static("no"));
    Ok(response)
}

fn position(field: &str, text: &str) -> Result<OutputId, Problem> {
    text.parse().map_err(|error| Problem::field(field, format!("{text:?} is no place in the stream: {error}.")))
}

fn event(event: Event) -> sse::Event {
    let (id, (kind, data)) = match event {
        Event::Output(output) => (Some(output.id), outputs::output(&output)),
        Event::Chunk(chunk) => (None, outputs::chunk(&chunk)),
        Event::End(reason) => return sse::Event::default().comment(reason.replace(['\r', '\n'], " ")),
    };
    let event = sse::Event::default().event(kind).data(data.to_string());
    match id {
        Some(id) => event.id(id.to_string()),
        None => event,
    }
}
