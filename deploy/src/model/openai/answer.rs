//! What the stream of chat completions says.
//!
//! In: events. Out: an answer, and on the way its pieces. Always: calls keep their order, whatever the order of their
//! pieces; a stream that ends without a finish reason is no answer.

use super::super::http::Refusal;
use super::super::sse::Events;
use super::super::{Answer, ModelError, Sink};
use serde::Deserialize;
use serde_json::Value;
use slackwater_core::record::{Block, End, FailureClass, Usage};

/// Reads the answer out of its stream.
pub(in super::super) async fn read(mut events: Events, sink: &mut Sink, model: &str) -> Result<Answer, ModelError> {
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

#[derive(Deserialize, Default)]
#[serde(default)]
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
