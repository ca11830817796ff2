//! OpenAI-compatible chat completions.
//!
//! In: requests. Out: `POST {base_url}/chat/completions` and what its stream says. Always: a stream that ends without a
//! finish reason is no answer; calls keep their order, whatever the order of their pieces; arguments go back as the model
//! wrote them.

use super::http::{Endpoint, Refusal};
use super::offer::Offer;
use super::sse::Events;
use super::view::{self, Outcome, Part, Said, Turn};
use super::{Answer, Limits, Model, ModelError, Request, Sink};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use slackwater_core::record::{Block, End, FailureClass, Usage};

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
            model: &self.model,
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
            read(events, sink, &self.model).await
        })
    }
}

/// Reads the answer out of its stream.
pub(super) async fn read(mut events: Events, sink: &mut Sink, model: &str) -> Result<Answer, ModelError> {
    let mut gathered = Gathered::default();
    loop {
        match events.next().await {
            Ok(Some(data)) if data.trim() == "[DONE]" => break,
            Ok(Some(data)) => gathered.take(&data, sink)?,
            Ok(None) => break,
            // The answer is whole; only what it cost may be missing.
            Err(error) if gathered.end.is_some() => {
                tracing::debug!("after the end of the answer: {error}");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    gathered.finish(model)
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

#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct Event {
    model: Option<String>,
    choices: Vec<Choice>,
    usage: Option<UsageTold>,
    error: Option<Value>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Choice {
    /// From a server that does not stream it is the whole message.
    #[serde(alias = "message")]
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Delta {
    content: Option<String>,
    refusal: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
    tool_calls: Option<Vec<CallPiece>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct CallPiece {
    index: Option<u64>,
    id: Option<String>,
    function: Option<FunctionPiece>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FunctionPiece {
    name: Option<String>,
    arguments: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UsageTold {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<Details>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Details {
    cached_tokens: Option<u64>,
}

/// What of an answer has come.
#[derive(Default)]
struct Gathered {
    blocks: Vec<Block>,
    calls: Vec<CallGathered>,
    end: Option<End>,
    declined: bool,
    usage: Usage,
    model: Option<String>,
}

struct CallGathered {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

impl Gathered {
    fn take(&mut self, data: &str, sink: &mut Sink) -> Result<(), ModelError> {
        let event: Event = serde_json::from_str(data).map_err(|error| {
            ModelError::new(FailureClass::Transient, format!("the provider's stream cannot be understood: {error}"))
        })?;
        if event.error.as_ref().is_some_and(|error| !error.is_null()) {
            return Err(Refusal::read(data).in_stream());
        }
        self.model = event.model.filter(|model| !model.is_empty()).or(self.model.take());
        if let Some(told) = event.usage {
            self.usage = Usage {
                input_tokens: told.prompt_tokens.unwrap_or_default(),
                output_tokens: told.completion_tokens.unwrap_or_default(),
                cached_tokens: told.prompt_tokens_details.and_then(|d| d.cached_tokens).unwrap_or_default(),
            };
            sink.usage(self.usage);
        }
        // Only one choice is ever asked for.
        let Some(Choice { delta, finish_reason }) = event.choices.into_iter().next() else { return Ok(()) };
        if let Some(delta) = delta {
            self.delta(delta, sink);
        }
        match finish_reason.as_deref() {
            None | Some("") => {}
            Some("error") => {
                return Err(ModelError::new(FailureClass::Transient, "the provider ended its answer with an error"));
            }
            Some("length") => self.end = Some(End::Length),
            Some("content_filter") => self.end = Some(End::Declined),
            Some(_) => self.end = Some(End::Finished),
        }
        Ok(())
    }

    fn delta(&mut self, delta: Delta, sink: &mut Sink) {
        // Servers that send both names send the same text under both.
        if let Some(more) = delta.reasoning_content.or(delta.reasoning).filter(|more| !more.is_empty()) {
            match self.blocks.last_mut() {
                Some(Block::Reasoning { text, .. }) => text.push_str(&more),
                _ => self.blocks.push(Block::Reasoning { text: more.clone(), sealed: None }),
            }
            sink.reasoning(more);
        }
        self.declined |= delta.refusal.as_ref().is_some_and(|refusal| !refusal.is_empty());
        for more in [delta.content, delta.refusal].into_iter().flatten().filter(|more| !more.is_empty()) {
            match self.blocks.last_mut() {
                Some(Block::Text(text)) => text.push_str(&more),
                _ => self.blocks.push(Block::Text(more.clone())),
            }
            sink.text(more);
        }
        for piece in delta.tool_calls.into_iter().flatten() {
            self.call(piece);
        }
    }

    /// A piece belongs to the last call of its index, unless it brings another id and a name: some servers count all of
    /// their calls as 0. Without an index it belongs to the last call, unless it brings a new id.
    fn call(&mut self, piece: CallPiece) {
        let id = piece.id.unwrap_or_default();
        let FunctionPiece { name, arguments } = piece.function.unwrap_or_default();
        let (name, arguments) = (name.unwrap_or_default(), arguments.unwrap_or_default());
        let same = match piece.index {
            Some(_) => self.calls.iter().rposition(|call| call.index == piece.index),
            None => self.calls.len().checked_sub(1),
        };
        let same = same.filter(|&at| {
            let call = &self.calls[at];
            id.is_empty() || call.id.is_empty() || id == call.id || (piece.index.is_some() && name.is_empty())
        });
        match same {
            Some(at) => {
                let call = &mut self.calls[at];
                if call.id.is_empty() {
                    call.id = id;
                }
                // A name comes whole; a server that repeats it with each piece means the same one.
                if call.name.is_empty() {
                    call.name = name;
                }
                call.arguments.push_str(&arguments);
            }
            None => self.calls.push(CallGathered { index: piece.index, id, name, arguments }),
        }
    }

    fn finish(mut self, model: &str) -> Result<Answer, ModelError> {
        let Some(end) = self.end else {
            return Err(ModelError::new(
                FailureClass::Transient,
                "the provider's answer was not whole: its stream ended without a finish reason",
            ));
        };
        if self.calls.iter().any(|call| call.name.is_empty()) {
            return Err(ModelError::new(
                FailureClass::Transient,
                "the provider's answer has a tool call without a name",
            ));
        }
        // Calls are sent in the order of their indexes; those without one stay where they came.
        self.calls.sort_by_key(|call| call.index);
        self.blocks.extend(self.calls.into_iter().map(|CallGathered { id, name, arguments, .. }| Block::Call {
            provider_id: id,
            name,
            arguments,
        }));
        Ok(Answer {
            blocks: self.blocks,
            end: if self.declined { End::Declined } else { end },
            usage: self.usage,
            model: self.model.unwrap_or_else(|| model.to_owned()),
        })
    }
}
