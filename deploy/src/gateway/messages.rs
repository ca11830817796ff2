//! Messages: `POST /v1/threads/{thread}/messages`.
//!
//! In: what a user wrote, as JSON. Out: the record's number, once it is on stable storage. Always: what is not understood
//! is refused by name and not journaled; the same id twice is the same message.

use super::body::{self, Fields, wrong_type};
use super::name::Address;
use super::problem::Problem;
use super::server::{App, AppState, ThreadPath};
use super::shards::Shards;
use axum::body::Body;
use axum::extract::{Extension, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Json, Response};
use base64::Engine as _;
use serde_json::{Value, json};
use slackwater_core::effect::Outcome;
use slackwater_core::id::InputId;
use slackwater_core::record::{Content, Message, Origin, Record};

/// How long a sender's id may be, in characters.
const ID_LENGTH_MAX: usize = 128;

pub(super) async fn post(
    State(app): State<AppState>,
    Extension(origin): Extension<Origin>,
    ThreadPath(address): ThreadPath,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let read = body::read(&app, &headers, body, app.config.limits.message_bytes_max).await?;
    let message = message(&read.bytes, &headers, origin, address.name.clone())?;
    let id = message.id.0.clone();
    take(&app, &address, &id, Record::Message(message)).await
}

/// Reads a message.
fn message(bytes: &[u8], headers: &HeaderMap, origin: Origin, thread_name: Option<String>) -> Result<Message, Problem> {
    let mut fields = Fields::parse(bytes)?;
    let text = fields.take_string("text")?;
    let content = match (text, fields.take("content")) {
        (Some(_), Some(_)) => {
            return Err(Problem::field("content", "A message has text or content, not both."));
        }
        (None, None) => return Err(Problem::field("text", "A message needs text or content.")),
        (Some(text), None) => vec![said("text", text)?],
        (None, Some(Value::Array(pieces))) if !pieces.is_empty() => pieces
            .into_iter()
            .enumerate()
            .map(|(index, value)| piece(format!("content[{index}]"), value))
            .collect::<Result<_, _>>()?,
        (None, Some(Value::Array(_))) => return Err(Problem::field("content", "content is empty.")),
        (None, Some(other)) => return Err(wrong_type("content", "a list", &other)),
    };
    let id = input_id(&mut fields, headers)?;
    let metadata = match fields.take("metadata") {
        None => None,
        Some(object @ Value::Object(_)) => Some(object.to_string()),
        Some(other) => return Err(wrong_type("metadata", "an object", &other)),
    };
    fields.finish("text, content, id, metadata")?;
    Ok(Message { id, origin, content, thread_name, metadata })
}

/// The sender's id for its input, from the field `id` or the header `Idempotency-Key`; or a new one.
pub(super) fn input_id(fields: &mut Fields, headers: &HeaderMap) -> Result<InputId, Problem> {
    let check = |field: &str, id: String| {
        if id.is_empty() || id.chars().count() > ID_LENGTH_MAX || id.chars().any(char::is_control) {
            return Err(Problem::field(
                field,
                format!("An id has 1 to {ID_LENGTH_MAX} characters, none of them a control character."),
            ));
        }
        Ok(id)
    };
    let of_field = fields.take_string("id")?.map(|id| check("id", id)).transpose()?;
    let of_header = match headers.get("idempotency-key") {
        None => None,
        Some(value) => {
            let field = "Idempotency-Key";
            let text = value
                .to_str()
                .map_err(|_| Problem::field(field, "The header Idempotency-Key has to be printable ASCII."))?;
            // The header is drafted as a quoted string; many clients send it bare.
            let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
            Some(check(field, bare.to_owned())?)
        }
    };
    match (of_field, of_header) {
        (Some(field), Some(header)) if field != header => {
            Err(Problem::field("id", "The field id and the header Idempotency-Key differ; send one of them."))
        }
        (Some(id), _) | (None, Some(id)) => Ok(InputId(id)),
        (None, None) => Ok(Shards::fresh_id()),
    }
}

fn said(path: &str, text: String) -> Result<Content, Problem> {
    if text.trim().is_empty() {
        return Err(Problem::field(path, format!("{path} is empty.")));
    }
    Ok(Content::Text(text))
}

/// Reads a piece of content: an object with the one field `text`, `image` or `file`.
fn piece(path: String, value: Value) -> Result<Content, Problem> {
    let mut fields = Fields::of(path.clone(), value)?;
    let text = fields.take_string("text")?;
    let image = fields.take("image");
    let file = fields.take("file");
    fields.finish("text, image, file")?;
    match (text, image, file) {
        (Some(text), None, None) => said(&format!("{path}.text"), text),
        (None, Some(image), None) => {
            let mut fields = Fields::of(format!("{path}.image"), image)?;
            let media_type = media_type(&mut fields)?;
            if !media_type.starts_with("image/") {
                return Err(Problem::field(fields.path("media_type"), "An image's media_type begins with image/."));
            }
            let data = data(&mut fields)?;
            fields.finish("media_type, data")?;
            Ok(Content::Image { media_type, data })
        }
        (None, None, Some(file)) => {
            let mut fields = Fields::of(format!("{path}.file"), file)?;
            let name = fields.need_string("name")?;
            let media_type = media_type(&mut fields)?;
            let data = data(&mut fields)?;
            fields.finish("name, media_type, data")?;
            Ok(Content::File { name, media_type, data })
        }
        _ => Err(Problem::field(path, "A piece of content has exactly one of text, image and file.")),
    }
}

fn media_type(fields: &mut Fields) -> Result<String, Problem> {
    let media_type = fields.need_string("media_type")?;
    let proper = media_type.split_once('/').is_some_and(|(kind, rest)| {
        let token = |text: &str| !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '/');
        token(kind) && token(rest)
    });
    if proper {
        Ok(media_type)
    } else {
        Err(Problem::field(fields.path("media_type"), "A media_type is like image/png."))
    }
}

fn data(fields: &mut Fields) -> Result<String, Problem> {
    let data = fields.need_string("data")?;
    match base64::engine::general_purpose::STANDARD.decode(&data) {
        Ok(bytes) if !bytes.is_empty() => Ok(data),
        Ok(_) => Err(Problem::field(fields.path("data"), "data is empty.")),
        Err(error) => Err(Problem::field(fields.path("data"), format!("data is not base64: {error}."))),
    }
}

/// Takes an input of a thread. Its sender is told 201, or 200 if it had been taken before.
pub(super) async fn take(app: &App, address: &Address, id: &str, record: Record) -> Result<Response, Problem> {
    let outcome = app.shards.submit(address.thread, record).await;
    let (number, duplicate) = match outcome.map_err(|error| Problem::from(error).of_input(id))? {
        Outcome::Taken(number) => (number, false),
        Outcome::Duplicate(number) => (number, true),
        Outcome::Refused(refusal) => return Err(Problem::refused(refusal).of_input(id)),
        Outcome::Declined(declined) => return Err(Problem::declined(declined).of_input(id)),
    };
    let status = if duplicate { StatusCode::OK } else { StatusCode::CREATED };
    let body = json!({"thread": address.thread.to_string(), "number": number, "id": id, "duplicate": duplicate});
    Ok((status, Json(body)).into_response())
}
