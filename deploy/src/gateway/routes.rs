//! The routes: everything that can be asked over HTTP, one line each.
//!
//! In: nothing. Out: the table. Always: the table is the truth; the router is built from it, and `openapi.json` has the
//! same lines (a test compares them).

use super::server::AppState;
use super::{answers, callbacks, events, health, messages, openapi, status, threads};
use axum::routing::{MethodRouter, get, post};

/// One thing that can be asked.
pub(super) struct Route {
    /// `GET` or `POST`.
    pub(super) method: &'static str,
    pub(super) path: &'static str,
    /// What it does, for the index.
    pub(super) summary: &'static str,
    pub(super) access: Access,
    pub(super) handler: fn() -> MethodRouter<AppState>,
}

/// Who may ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Anybody who reaches the gateway.
    Open,
    /// A sender who is known.
    Sender,
    /// Whoever has the capability in the path; the handler checks it.
    Capability,
}

const fn route(
    method: &'static str,
    path: &'static str,
    access: Access,
    handler: fn() -> MethodRouter<AppState>,
    summary: &'static str,
) -> Route {
    Route { method, path, summary, access, handler }
}

#[rustfmt::skip]
pub(super) static ROUTES: &[Route] = &[
    route("POST", "/v1/threads/{thread}/messages", Access::Sender,     || post(messages::post),   "Send a message to a thread."),
    route("GET",  "/v1/threads/{thread}/events",   Access::Sender,     || get(events::get),       "Follow a thread's outputs."),
    route("POST", "/v1/threads/{thread}/stop",     Access::Sender,     || post(threads::stop),    "Stop what a thread is doing."),
    route("POST", "/v1/threads/{thread}/answers",  Access::Sender,     || post(answers::post),    "Answer a question that a thread has asked."),
    route("POST", "/v1/threads/{thread}/compact",  Access::Sender,     || post(threads::compact), "Have a thread's history summarized."),
    route("GET",  "/v1/threads/{thread}",          Access::Sender,     || get(threads::get),      "Where a thread stands and what it waits for."),
    route("GET",  "/v1/threads/{thread}/why",      Access::Sender,     || get(threads::why),      "What a thread waits for, since when, and who can release it."),
    route("GET",  "/v1/threads/{thread}/view",     Access::Sender,     || get(threads::view),     "What the model sees of a thread."),
    route("GET",  "/v1/threads/{thread}/records",  Access::Sender,     || get(threads::records),  "The records of a thread."),
    route("GET",  "/v1/threads",                   Access::Sender,     || get(threads::list),     "The threads, by page."),
    route("POST", "/v1/callbacks/{token}",         Access::Capability, || post(callbacks::post),  "Answer a call (Reactive Agent Protocol)."),
    route("GET",  "/v1/status",                    Access::Sender,     || get(status::get),       "What the process costs at the moment."),
    route("GET",  "/health",                       Access::Open,       || get(health::live),      "Whether the process lives."),
    route("GET",  "/ready",                        Access::Open,       || get(health::ready),     "Whether inputs are taken."),
    route("GET",  "/openapi.json",                 Access::Open,       || get(openapi::document), "This interface, as OpenAPI 3.1."),
    route("GET",  "/",                             Access::Open,       || get(openapi::index),    "This list."),
];
