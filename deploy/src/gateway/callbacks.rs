//! Callbacks: `POST /v1/callbacks/{token}`, by which tools answer (Reactive Agent Protocol).
//!
//! In: a callback, at the URL that its call was given. Out: 200 once the result, event, question or view is on stable storage. Always: the capability
//! in the URL is checked before anything else, and the body can only speak for the thread and call that it names.

use super::body;
use super::problem::Problem;
use super::server::AppState;
use super::shards::{Shards, now_ms};
use crate::capability::BadToken;
use crate::tool::wire::{BadCallback, Callback, UserChoice};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Json;
use serde_json::{Value, json};
use slackwater_core::effect::Outcome;
use slackwater_core::record::{Asks, Origin, Proof, Question, Record, ViewUpdate};

/// The most characters of an event's own id.
const ID_LENGTH_MAX: usize = 128;
/// The most choices of a question.
const CHOICES_MAX: usize = 100;

pub(super) async fn post(
    State(app): State<AppState>,
    token: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    body: Body,
) -> Result<Json<Value>, Problem> {
    let Path(token) = token.map_err(|_| bad_token(BadToken::Malformed))?;
    let (thread, call) = app.key.verify(&token, now_ms()).map_err(bad_token)?;
    let read = body::read(&app, &headers, body, app.config.limits.callback_bytes_max).await?;
    let callback = Callback::parse(&read.bytes).map_err(bad_callback)?;
    callback.check(thread, call).map_err(bad_callback)?;
    let origin = Origin { who: "tool".to_owned(), proof: Proof::Capability };
    let record = match callback {
        Callback::ToolResult(result) => Record::Result(result.into_record(thread, call, origin).map_err(bad_callback)?),
        Callback::SubscriptionEvent(event) if event.event_id.as_deref().is_some_and(|id| !is_id(id)) => {
            return Err(Problem::field("event_id", format!("An event_id has 1 to {ID_LENGTH_MAX} characters.")));
        }
        Callback::SubscriptionEvent(event) => {
            app.pace.pass(thread, call, now_ms()).map_err(|after_s| too_fast(&app, after_s))?;
            Record::Event(event.into_record(call, origin, Shards::fresh_id()))
        }
        Callback::Oauth(oauth) => {
            web_url("auth_url", &oauth.auth_url)?;
            let asks = Asks::Authorization { url: oauth.auth_url };
            Record::Asked(Question { call, origin, asks })
        }
        Callback::UserChoice(choice) => Record::Asked(Question { call, origin, asks: choices(choice)? }),
        Callback::ViewUpdate(update) => {
            let (view_type, content) = (update.view_type, update.content.get().to_owned());
            Record::View(ViewUpdate { call, origin, view_type, content })
        }
    };
    let (number, duplicate) = match app.shards.submit(thread, record).await? {
        Outcome::Taken(number) => (number, false),
        Outcome::Duplicate(number) => (number, true),
        Outcome::Refused(refusal) => return Err(Problem::refused(refusal)),
        Outcome::Declined(declined) => return Err(Problem::declined(declined)),
    };
    Ok(Json(json!({
        "thread": thread.to_string(),
        "call": call.to_string(),
        "number": number,
        "duplicate": duplicate,
    })))
}

fn is_id(text: &str) -> bool {
    (1..=ID_LENGTH_MAX).contains(&text.chars().count())
}

fn bad_token(bad: BadToken) -> Problem {
    let (status, kind) = match bad {
        BadToken::Malformed => (StatusCode::UNAUTHORIZED, "malformed-token"),
        BadToken::Forged => (StatusCode::FORBIDDEN, "forged-token"),
        BadToken::Expired => (StatusCode::FORBIDDEN, "expired-token"),
    };
    let help = "Post to the callback_url of the invocation that is answered, unchanged. A call that was not answered in time cannot be answered any more.";
    Problem::new(status, kind, "The capability in the URL is not accepted", sentence(&bad.to_string()), help)
}

fn bad_callback(bad: BadCallback) -> Problem {
    let (status, kind, title, field) = match &bad {
        BadCallback::OtherThread { .. } => {
            (StatusCode::FORBIDDEN, "other-thread", "The callback is for another thread", Some("group_id"))
        }
        BadCallback::OtherCall { .. } => {
            (StatusCode::FORBIDDEN, "other-call", "The callback is for another call", Some("id"))
        }
        BadCallback::UnknownType(_) => {
            (StatusCode::BAD_REQUEST, "bad-callback", "This is not a callback", Some("type"))
        }
        _ => (StatusCode::BAD_REQUEST, "bad-callback", "This is not a callback", None),
    };
    let help = "Send a callback of the Reactive Agent Protocol; `thread` and call are those of the invocation.";
    let problem = Problem::new(status, kind, title, sentence(&bad.to_string()), help);
    match field {
        Some(field) => problem.in_field(field),
        None => problem,
    }
}

fn too_fast(app: &AppState, after_s: u32) -> Problem {
    let most = app.config.limits.events_per_minute_max;
    Problem::new(
        StatusCode::TOO_MANY_REQUESTS,
        "too-fast",
        "The events of this subscription come too fast",
        format!("At most {most} events of one subscription are taken in a minute; this one was not taken."),
        "Send it again later, or gather several events into one. The gateway's limit is gateway.limits.events_per_minute_max.",
    )
    .retry_after(after_s)
}

/// A choice that a person can make, and whose tool can be told.
fn choices(asked: UserChoice) -> Result<Asks, Problem> {
    let UserChoice { prompt, choices, default, response_url, .. } = asked;
    if !(1..=CHOICES_MAX).contains(&choices.len()) {
        return Err(Problem::field("choices", format!("There are 1 to {CHOICES_MAX} choices.")));
    }
    if default >= choices.len() {
        let why = format!("default is {default}; it has to be the place of one of {} choices, from 0.", choices.len());
        return Err(Problem::field("default", why));
    }
    web_url("response_url", &response_url)?;
    let default = u32::try_from(default).expect("invariant: a choice's place is below CHOICES_MAX");
    Ok(Asks::Choice { prompt, choices, default, respond_to: response_url })
}

fn web_url(field: &str, text: &str) -> Result<(), Problem> {
    match url::Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => Ok(()),
        _ => Err(Problem::field(field, format!("{field} is {text:?}; it has to be an http or https URL."))),
    }
}

fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
}
