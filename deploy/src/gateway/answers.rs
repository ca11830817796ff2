//! Answers: `POST /v1/threads/{thread}/answers`, by which a person answers a question that a thread has asked.
//!
//! In: the question's number and an answer, as JSON. Out: the record's number, once it is on stable storage. Always: an answer
//! is for the question that it names and no other; what does not fit the question is refused by field, with what would fit.

use super::body::{self, Fields, wrong_type};
use super::messages;
use super::problem::Problem;
use super::server::{AppState, ThreadPath};
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::HeaderMap;
use axum::response::Response;
use serde_json::Value;
use slackwater_core::effect::{Refusal, Wait};
use slackwater_core::id::Number;
use slackwater_core::port::{Query, Reply};
use slackwater_core::record::{Asks, Decision, Origin, Record, Verdict};

/// How long a reason may be, in characters.
const REASON_LENGTH_MAX: usize = 2_000;

pub(super) async fn post(
    State(app): State<AppState>,
    Extension(origin): Extension<Origin>,
    ThreadPath(address): ThreadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let read = body::read(&app, &headers, body, app.config.limits.message_bytes_max).await?;
    let mut fields = Fields::parse(&read.bytes)?;
    let id = messages::input_id(&mut fields, &headers)?;
    let (question, said) = said(fields)?;
    let answer = match said {
        Said::Decision(answer) => answer,
        Said::Choice(choice) => {
            let reply = app.shards.query(Query::Thread(address.thread)).await;
            let choices = choices(reply?, question).map_err(|problem| problem.of_input(&id.0))?;
            Decision::Choose { index: place(&choices, &choice)? }
        }
    };
    let verdict = Verdict { id: id.clone(), origin, question, answer };
    messages::take(&app, &address, &id.0, Record::Answered(verdict)).await
}

/// What somebody says to a question.
enum Said {
    Decision(Decision),
    /// A choice, by its place or its words.
    Choice(Value),
}

fn said(mut fields: Fields) -> Result<(Number, Said), Problem> {
    let question = match fields.take("question") {
        None => return Err(Problem::field("question", "question is missing: the number of the question's output.")),
        Some(value) => value.as_u64().ok_or_else(|| wrong_type("question", "the number of a question", &value))?,
    };
    let approve = fields.take_bool("approve")?;
    let reason = fields.take_string("reason")?;
    let choice = fields.take("choice");
    fields.finish("question, approve, reason, choice, id")?;
    if reason.as_ref().is_some_and(|reason| reason.trim().is_empty() || reason.chars().count() > REASON_LENGTH_MAX) {
        return Err(Problem::field("reason", format!("A reason has 1 to {REASON_LENGTH_MAX} characters.")));
    }
    if reason.is_some() && approve != Some(false) {
        return Err(Problem::field("reason", "A reason is for a denial: `approve` has to be false beside it."));
    }
    let said = match (approve, choice) {
        (Some(_), Some(_)) => {
            return Err(Problem::field("choice", "An answer has approve or choice, not both."));
        }
        (None, None) => return Err(Problem::field("approve", "An answer needs approve (true or false) or choice.")),
        (Some(true), None) => Said::Decision(Decision::Approve),
        (Some(false), None) => Said::Decision(Decision::Deny { reason }),
        (None, Some(choice @ (Value::String(_) | Value::Number(_)))) => Said::Choice(choice),
        (None, Some(other)) => return Err(wrong_type("choice", "the place of a choice, from 0, or its words", &other)),
    };
    Ok((question, said))
}

/// What can be chosen in a question that is open. Of one that is not, the shard says what has become of it.
fn choices(reply: Reply, question: Number) -> Result<Vec<String>, Problem> {
    let standing = match reply {
        Reply::Thread(standing) => standing,
        Reply::UnknownThread => return Err(Problem::unknown_thread()),
        Reply::Damaged(reason) => return Err(Problem::damaged(reason)),
        _ => {
            unreachable!("invariant: a question about a thread's standing is answered with it")
        }
    };
    let found = standing.waits.into_iter().find_map(|wait| match wait {
        Wait::Question { question: number, asks, .. } if number == question => Some(asks),
        _ => None,
    });
    match found {
        Some(Asks::Choice { choices, .. }) => Ok(choices),
        Some(_) => Err(Problem::refused(Refusal::WrongAnswer)),
        // Any place will do: what is not open takes none.
        None => Ok(Vec::new()),
    }
}

/// The place of a choice among these.
fn place(choices: &[String], choice: &Value) -> Result<u32, Problem> {
    let found = match choice {
        Value::String(words) => choices.iter().position(|choice| choice == words),
        other => other.as_u64().and_then(|place| usize::try_from(place).ok()).filter(|place| *place < choices.len()),
    };
    if choices.is_empty() {
        return Ok(0);
    }
    let place = found.and_then(|place| u32::try_from(place).ok());
    place.ok_or_else(|| {
        let all: Vec<String> = choices.iter().enumerate().map(|(at, words)| format!("{at} ({words:?})")).collect();
        Problem::field("choice", format!("{choice} is none of the choices: {}.", all.join(", ")))
    })
}
