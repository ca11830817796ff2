//! Problems: how a request is told that it was not done (RFC 9457).
//!
//! In: what was wrong. Out: an `application/problem+json` response. Always: says what was wrong, in which field if it was
//! one, and what to do; the `type` of a kind of problem never changes.

use super::shards::SubmitError;
use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use slackwater_core::effect::{Declined, Refusal};

/// What every `type` begins with.
const TYPE_PREFIX: &str = "urn:slackwater:problem:";

/// What a request that cannot be done is told.
#[derive(Clone, Debug)]
pub(super) struct Problem(Box<Parts>);

#[derive(Clone, Debug)]
struct Parts {
    status: StatusCode,
    kind: &'static str,
    title: &'static str,
    detail: String,
    /// What to do about it.
    help: String,
    /// The field that was wrong.
    field: Option<String>,
    /// The input's id, with which it can be sent again.
    id: Option<String>,
    retry_after_s: Option<u32>,
}

impl Problem {
    pub(super) fn new(
        status: StatusCode,
        kind: &'static str,
        title: &'static str,
        detail: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self(Box::new(Parts {
            status,
            kind,
            title,
            detail: detail.into(),
            help: help.into(),
            field: None,
            id: None,
            retry_after_s: None,
        }))
    }

    /// A field that is not as it should be.
    pub(super) fn field(field: impl Into<String>, detail: impl Into<String>) -> Self {
        let field = field.into();
        let help = format!("Correct {field} and send the request again; GET /openapi.json describes it.");
        Self::new(StatusCode::BAD_REQUEST, "bad-field", "A field is not as it should be", detail, help).in_field(&field)
    }

    pub(super) fn unknown_thread() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "unknown-thread",
            "There is no such thread",
            "No message was ever taken for this thread.",
            "Check its id or name; a thread is made by its first message: POST /v1/threads/{thread}/messages.",
        )
    }

    pub(super) fn damaged(detail: impl Into<String>) -> Self {
        Self::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "damaged",
            "Records are damaged on disk",
            detail,
            "Run `slackwater doctor DIR` on the data directory; other threads are served.",
        )
    }

    /// What became of an input that was refused by the shard.
    pub(super) fn refused(refusal: Refusal) -> Self {
        match refusal {
            Refusal::UnknownThread => Self::unknown_thread(),
            Refusal::NoSuchCall => Self::new(
                StatusCode::CONFLICT,
                "no-such-call",
                "The thread made no such call",
                "The thread has no call that this result could answer.",
                "Do not send it again. Answer the calls that you were invoked for, each at its own callback_url.",
            ),
            Refusal::QueueFull => Self::new(
                StatusCode::TOO_MANY_REQUESTS,
                "queue-full",
                "The thread has too many inputs that its model has not seen",
                "The thread's queue is full.",
                "Wait until its model has caught up, or stop it: POST /v1/threads/{thread}/stop.",
            )
            .retry_after(5),
            Refusal::Closed => Self::new(
                StatusCode::GONE,
                "closed",
                "The thread is closed",
                "The thread has closed and takes no more inputs.",
                "Write to its parent or to another thread.",
            ),
            Refusal::NoSuchSubscription => Self::new(
                StatusCode::CONFLICT,
                "no-such-subscription",
                "The call is no subscription",
                "The thread has no subscription of this call.",
                "Answer the call with a tool_result that says `subscription: true` first.",
            ),
            Refusal::SubscriptionEnded => Self::new(
                StatusCode::GONE,
                "subscription-ended",
                "The subscription has ended",
                "Its last event came, or it was cancelled.",
                "Send no more events of it.",
            ),
            Refusal::Unrelated => Self::new(
                StatusCode::CONFLICT,
                "unrelated",
                "The input is not for this thread",
                "Only a thread of the same tree sends this.",
                "Do not send it.",
            ),
            Refusal::NoSuchQuestion => Self::new(
                StatusCode::NOT_FOUND,
                "no-such-question",
                "There is no such question",
                "The thread has asked no question of this number.",
                "Take the number from the output `question`, or from what the thread waits for: GET /v1/threads/{thread}.",
            )
            .in_field("question"),
            Refusal::QuestionAnswered => Self::new(
                StatusCode::CONFLICT,
                "question-answered",
                "The question has its answer",
                "Somebody has answered the question already.",
                "Do not answer it again; the output `answer` says who answered and what.",
            )
            .in_field("question"),
            Refusal::QuestionWithdrawn => Self::new(
                StatusCode::GONE,
                "question-withdrawn",
                "Nobody waits for the answer any more",
                "The call was stopped, timed out or has its result, or its tool has asked anew.",
                "Look at what the thread waits for: GET /v1/threads/{thread}.",
            )
            .in_field("question"),
            Refusal::WrongAnswer => Self::new(
                StatusCode::CONFLICT,
                "wrong-answer",
                "The answer does not fit the question",
                "An approval is answered with `approve`, a choice with `choice`; an authorization ends by itself.",
                "Look at the question's kind: GET /v1/threads/{thread}.",
            )
            .in_field("question"),
            Refusal::NoSuchChoice => Self::new(
                StatusCode::BAD_REQUEST,
                "no-such-choice",
                "The question has no such choice",
                "The choice is none of those that the question names.",
                "Look at the question's choices: GET /v1/threads/{thread}.",
            )
            .in_field("choice"),
            Refusal::Damaged => Self::damaged("The records of this thread cannot be read."),
        }
    }

    /// What an operator of this runtime did not let in.
    pub(super) fn declined(declined: Declined) -> Self {
        let problem =
            |status, help: &str| Self::new(status, "declined", "It is not let in", declined.reason.clone(), help);
        match declined.retry_after_ms {
            Some(after_ms) => {
                problem(StatusCode::TOO_MANY_REQUESTS, "Send it again after the time in Retry-After, with the same id.")
                    .retry_after(u32::try_from(after_ms.div_ceil(1_000)).unwrap_or(u32::MAX))
            }
            None => problem(StatusCode::FORBIDDEN, "Ask whoever runs this server; it was not recorded."),
        }
    }

    pub(super) fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after_s = Some(seconds);
        self
    }

    /// Names the field that was wrong.
    pub(super) fn in_field(mut self, field: &str) -> Self {
        self.0.field = Some(field.to_owned());
        self
    }

    /// Names the input, so that it can be sent again as the same one.
    pub(super) fn of_input(mut self, id: &str) -> Self {
        self.0.id = Some(id.to_owned());
        self
    }

    fn body(&self) -> Value {
        let mut body = json!({
            "type": format!("{TYPE_PREFIX}{}", self.0.kind),
            "title": self.0.title,
            "status": self.0.status.as_u16(),
            "detail": self.0.detail,
            "help": self.0.help,
        });
        if let Some(field) = &self.0.field {
            body["field"] = json!(field);
        }
        if let Some(id) = &self.0.id {
            body["id"] = json!(id);
        }
        body
    }
}

impl From<SubmitError> for Problem {
    fn from(error: SubmitError) -> Self {
        let detail = error.to_string();
        let again = "Send it again after the time in Retry-After, with the same id.";
        match error {
            SubmitError::Busy(_) | SubmitError::ThreadBusy(_) | SubmitError::QueriesBusy(_) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "busy", "Too much at a time", detail, again).retry_after(1)
            }
            SubmitError::SubscribersBusy(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "busy", "Too much at a time", detail, again).retry_after(5)
            }
            SubmitError::Unavailable(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", "Nothing can be taken now", detail, again)
                    .retry_after(1)
            }
            SubmitError::Interrupted(_) | SubmitError::NoAnswer(_) => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "unknown-fate", "There is no answer", detail, again)
                    .retry_after(1)
            }
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.body().to_string()));
        *response.status_mut() = self.0.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(seconds) = self.0.retry_after_s {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.0.status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}
