//! OpenAI-compatible chat completions.
//!
//! In: requests. Out: `POST {base_url}/chat/completions` and what its stream says. Always: a stream that ends without a
//! finish reason is no answer; calls keep their order, whatever the order of their pieces; arguments go back as the model
//! wrote them.

use super::http::Endpoint;
use super::offer::Offer;
use super::view::{self, Outcome, Part, Said, Turn};
use super::{Answer, Limits, Model, ModelError, Request, Sink};
use futures::future::BoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

mod answer;

pub(super) use answer::read;

/// A model behind an OpenAI-compatible endpoint.
pub struct OpenAi {
    endpoint: Endpoint,
    model: String,
    extra: Map<String, Value>,
    offer: Offer,
}

impl OpenAi {
    /// The model of this name at `{base_url}/chat/completions`. Without a key no `Authorization` is sent. `extra` is added
    /// to every request as it is, for example `temperature` or `max_completion_tokens`.
    ///
    /// # Errors
    /// When the URL or the key cannot be used, in words.
    pub fn new(
        base_url: &str,
        key: Option<String>,
        model: String,
        extra: Map<String, Value>,
        limits: Limits,
    ) -> Result<Self, String> {
        let url = format!("{}/chat/completions", base_url.trim_end_matches('/'));
        let authorization = key.as_ref().map(|key| ("authorization", format!("Bearer {key}")));
        let hint = "check the key in OPENAI_API_KEY, or where api_key_env or api_key says".to_owned();
        let endpoint = Endpoint::new(url, authorization, key, hint, limits)?;
        Ok(Self { endpoint, model, extra, offer: Offer::default() })
    }

    /// The body of a request.
    pub(super) fn body(&self, request: &Request) -> Vec<u8> {
        let mut messages = Vec::new();
        if !request.system.trim().is_empty() {
            messages.push(Message::says("system", Words::Text(request.system.to_string())));
        }
        for turn in view::turns(&request.prompt.history, None) {
            match turn {
                Turn::User(said) => messages.push(Message::says("user", words(said))),
                Turn::Assistant(parts) => messages.push(assistant(parts)),
                Turn::Results(outcomes) => results(outcomes, &mut messages),
            }
        }
        let tools = self.offer.json(&request.tools, |tool, schema| {
            json!({"type": "function", "function": {"name": tool.name, "description": tool.description, "parameters": schema}})
        });
        let body = Body {
            model: request.model(&self.model),
            messages,
            tools: (!request.tools.is_empty()).then_some(&*tools),
            stream: true,
            stream_options: json!({"include_usage": true}),
            extra: &self.extra,
        };
        serde_json::to_vec(&body).expect("invariant: a request can be written as JSON")
    }
}

impl std::fmt::Debug for OpenAi {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "OpenAi({})", self.model)
    }
}

impl Model for OpenAi {
    fn name(&self) -> &str {
        &self.model
    }

    fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move {
            let events = self.endpoint.open(self.body(request)).await?;
            read(events, sink, request.model(&self.model)).await
        })
    }
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    stream: bool,
    stream_options: Value,
    #[serde(flatten)]
    extra: &'a Map<String, Value>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Option<Words>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<CallSent<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Words {
    Text(String),
    Pieces(Vec<Value>),
}

#[derive(Serialize)]
struct CallSent<'a> {
    id: String,
    r#type: &'static str,
    function: FunctionSent<'a>,
}

#[derive(Serialize)]
struct FunctionSent<'a> {
    name: std::borrow::Cow<'a, str>,
    arguments: std::borrow::Cow<'a, str>,
}

impl Message<'_> {
    fn says(role: &'static str, content: Words) -> Self {
        Self { role, content: Some(content), tool_calls: Vec::new(), tool_call_id: None }
    }
}

/// What is said as one text if it is only text, which every server understands, and else in pieces.
fn words(said: Vec<Said<'_>>) -> Words {
    if said.iter().all(|piece| matches!(piece, Said::Text(_))) {
        return Words::Text(joined(said.iter().filter_map(|piece| match piece {
            Said::Text(text) => Some(&**text),
            _ => None,
        })));
    }
    Words::Pieces(said.iter().map(piece).collect())
}

fn piece(said: &Said<'_>) -> Value {
    match said {
        Said::Text(text) => json!({"type": "text", "text": text}),
        Said::Image { media_type, data } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}})
        }
        Said::Pdf { name, data } => json!({"type": "file", "file": {
            "filename": name,
            "file_data": format!("data:application/pdf;base64,{data}"),
        }}),
    }
}

fn joined<'a>(texts: impl Iterator<Item = &'a str>) -> String {
    let mut whole = String::new();
    for text in texts {
        if !whole.is_empty() {
            whole.push_str("\n\n");
        }
        whole.push_str(text);
    }
    whole
}

fn assistant(parts: Vec<Part<'_>>) -> Message<'_> {
    let text = joined(parts.iter().filter_map(|part| match part {
        Part::Text(text) => Some(&**text),
        _ => None,
    }));
    let tool_calls = parts
        .into_iter()
        .filter_map(|part| match part {
            Part::Call { id, name, arguments } => {
                Some(CallSent { id, r#type: "function", function: FunctionSent { name, arguments } })
            }
            _ => None,
        })
        .collect();
    Message {
        role: "assistant",
        content: (!text.is_empty()).then_some(Words::Text(text)),
        tool_calls,
        tool_call_id: None,
    }
}

/// One message for each result; what is no text comes after all of them, as the user's, because a result can only be text.
fn results<'a>(outcomes: Vec<Outcome<'a>>, messages: &mut Vec<Message<'a>>) {
    let mut shown = Vec::new();
    for Outcome { id, content, .. } in outcomes {
        let (texts, others): (Vec<_>, Vec<_>) = content.into_iter().partition(|piece| matches!(piece, Said::Text(_)));
        let Words::Text(mut text) = words(texts) else { unreachable!("only texts are left") };
        if !others.is_empty() {
            shown.push(json!({"type": "text", "text": format!("(Of the result of {id}:)")}));
            shown.extend(others.iter().map(piece));
            if text.is_empty() {
                text.push_str("(The result is in the next message.)");
            }
        }
        messages.push(Message { tool_call_id: Some(id), ..Message::says("tool", Words::Text(text)) });
    }
    if !shown.is_empty() {
        messages.push(Message::says("user", Words::Pieces(shown)));
    }
}
