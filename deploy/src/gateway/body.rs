//! Bodies: from bytes on a connection to the fields of a JSON object.
//!
//! In: a request's body. Out: its fields, each of the type that is asked for. Always: no more is read than the bounds let
//! in; what is wrong is named by field, and a field that nobody asked for is an error.

use super::problem::Problem;
use super::server::App;
use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use futures::StreamExt;
use serde_json::{Map, Value};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// How many bytes of all bodies one permit stands for.
pub(super) const BYTES_PER_PERMIT: usize = 4096;

/// A body that was read. While it is held, it counts as one that is being worked on.
pub(super) struct Bytes {
    pub(super) bytes: Vec<u8>,
    _permits: Option<OwnedSemaphorePermit>,
}

/// Reads a JSON body of at most `bytes_max` bytes.
pub(super) async fn read(app: &App, headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    check_media_type(headers)?;
    read_any(app, headers, body, bytes_max).await
}

/// Reads a JSON body that may be empty, and then need not be declared as JSON.
pub(super) async fn read_optional(
    app: &App,
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Option<Bytes>, Problem> {
    let read = read_any(app, headers, body, bytes_max).await?;
    if read.bytes.is_empty() {
        return Ok(None);
    }
    check_media_type(headers)?;
    Ok(Some(read))
}

/// A web page can only send JSON declared as JSON after the browser has asked whether it may.
fn check_media_type(headers: &HeaderMap) -> Result<(), Problem> {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = declared.split(';').next().unwrap_or_default().trim();
    if media_type.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "unsupported-media-type",
        "The body is not declared as JSON",
        format!("The Content-Type is {declared:?}; it has to be application/json."),
        "Send JSON with the header `Content-Type: application/json`.",
    ))
}

async fn read_any(app: &App, headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "too-large",
            "The body is too large",
            format!("The body has more than {bytes_max} bytes."),
            "Send less at a time, or raise the gateway's limits in the configuration.",
        )
    };
    let declared = headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok());
    if declared.is_some_and(|length: usize| length > bytes_max) {
        return Err(too_large());
    }
    let reading = async {
        let mut read = Bytes { bytes: Vec::new(), _permits: None };
        let mut stream = body.into_data_stream();
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|error| {
                Problem::new(
                    StatusCode::BAD_REQUEST,
                    "broken-body",
                    "The body broke off",
                    error.to_string(),
                    "Send the request again.",
                )
            })?;
            let length = read.bytes.len() + piece.len();
            if length > bytes_max {
                return Err(too_large());
            }
            app.count_body(&mut read._permits, length)?;
            read.bytes.extend_from_slice(&piece);
        }
        Ok(read)
    };
    let body_ms_max = app.config.limits.body_ms_max;
    tokio::time::timeout(Duration::from_millis(body_ms_max), reading).await.unwrap_or_else(|_| {
        Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            "slow-body",
            "The body did not arrive in time",
            format!("The body was not complete after {body_ms_max} ms."),
            "Send the request again over a better connection, or raise body_ms_max in the configuration.",
        ))
    })
}

impl App {
    /// Counts the bytes of a body against those of all bodies.
    fn count_body(&self, permits: &mut Option<OwnedSemaphorePermit>, length: usize) -> Result<(), Problem> {
        let wanted = length.div_ceil(BYTES_PER_PERMIT);
        let held = permits.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        if wanted <= held {
            return Ok(());
        }
        let more = u32::try_from(wanted - held).unwrap_or(u32::MAX);
        let more = self.bodies.clone().try_acquire_many_owned(more).map_err(|_| {
            Problem::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "busy",
                "Too much at a time",
                "The bodies that this gateway works on are as large together as it takes.",
                "Send it again after the time in Retry-After, with the same id.",
            )
            .retry_after(1)
        })?;
        match permits {
            Some(permits) => permits.merge(more),
            None => *permits = Some(more),
        }
        Ok(())
    }
}

/// The fields of a JSON object that were not taken yet, and where the object stands in the body.
pub(super) struct Fields {
    path: String,
    fields: Map<String, Value>,
}

impl Fields {
    /// Reads a body that has to be a JSON object.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Problem> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| {
            Problem::new(
                StatusCode::BAD_REQUEST,
                "malformed-json",
                "The body is not JSON",
                format!("The body is not JSON: {error}."),
                "Correct the JSON and send the request again.",
            )
        })?;
        Self::of(String::new(), value)
    }

    /// The fields of a value that has to be an object.
    pub(super) fn of(path: String, value: Value) -> Result<Self, Problem> {
        match value {
            Value::Object(fields) => Ok(Self { path, fields }),
            other => Err(wrong_type(if path.is_empty() { "body" } else { &path }, "an object", &other)),
        }
    }

    /// Where a field stands in the body.
    pub(super) fn path(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    /// Takes a field; `null` is as good as none.
    pub(super) fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    /// Takes a field that has to be a string if it is there.
    pub(super) fn take_string(&mut self, field: &str) -> Result<Option<String>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong_type(&self.path(field), "a string", &other)),
        }
    }

    /// Takes a field that has to be true or false if it is there.
    pub(super) fn take_bool(&mut self, field: &str) -> Result<Option<bool>, Problem> {
        match self.take(field) {
            None => Ok(None),
            Some(Value::Bool(says)) => Ok(Some(says)),
            Some(other) => Err(wrong_type(&self.path(field), "true or false", &other)),
        }
    }

    /// Takes a field that has to be a string.
    pub(super) fn need_string(&mut self, field: &str) -> Result<String, Problem> {
        self.take_string(field)?
            .ok_or_else(|| Problem::field(self.path(field), format!("{} is missing.", self.path(field))))
    }

    /// Ends with an error if there is a field that nobody took.
    pub(super) fn finish(self, known: &str) -> Result<(), Problem> {
        match self.fields.keys().next() {
            None => Ok(()),
            Some(field) => Err(Problem::field(
                self.path(field),
                format!("{:?} is no field here; there are {known}.", self.path(field)),
            )),
        }
    }
}

pub(super) fn wrong_type(path: &str, expected: &str, found: &Value) -> Problem {
    let found = match found {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Problem::field(path, format!("{path} has to be {expected}; it is {found}."))
}
