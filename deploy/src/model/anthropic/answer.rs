//! What the stream of Messages says.
//!
//! In: events. Out: an answer, and on the way its pieces. Always: a block is kept as it came; a stream that ends without a
//! stop reason is no answer.

use super::super::http::Refusal;
use super::super::sse::Events;
use super::super::{Answer, ModelError, Sink};
use super::KIND;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use slackwater_core::record::{Block, End, FailureClass, Sealed, Usage};

/// Reads the answer out of its stream.
pub(in super::super) async fn read(mut events: Events, sink: &mut Sink, model: &str) -> Result<Answer, ModelError> {
    let mut gathered = Gathered::default();
    while !gathered.stopped {
        match events.next().await {
            Ok(Some(data)) => gathered.take(&data, sink)?,
            Ok(None) => break,
            // The answer is whole; only its last event is missing.
            Err(error) if gathered.end.is_some() => {
                tracing::debug!("after the end of the answer: {error}");
                break;
            }
            Err(error) => return Err(error),
        }
    }
    gathered.finish(model)
}

/// One event, whatever its type: an enum with a tag would not keep a block as it came.
#[derive(Deserialize)]
struct Event {
    r#type: String,
    message: Option<MessageStart>,
    #[serde(default)]
    index: u64,
    content_block: Option<Box<RawValue>>,
    delta: Option<Box<RawValue>>,
    usage: Option<UsageTold>,
    /// The rest is of the whole message, which comes from a server that does not stream.
    #[serde(default)]
    model: String,
    #[serde(default)]
    content: Vec<Box<RawValue>>,
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct MessageStart {
    #[serde(default)]
    model: String,
    #[serde(default)]
    usage: UsageTold,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Start {
    Text {
        #[serde(default)]
        text: String,
    },
    Thinking {
        #[serde(default)]
        thinking: String,
        #[serde(default)]
        signature: String,
    },
    RedactedThinking {},
    ToolUse {
        id: String,
        name: String,
    },
    #[serde(other)]
    Other,
}

/// A call's input, as it came.
#[derive(Deserialize)]
struct Input {
    input: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Delta {
    #[serde(rename = "text_delta")]
    Text { text: String },
    #[serde(rename = "input_json_delta")]
    InputJson { partial_json: String },
    #[serde(rename = "thinking_delta")]
    Thinking { thinking: String },
    #[serde(rename = "signature_delta")]
    Signature { signature: String },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct UsageTold {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
}

/// What of an answer has come.
#[derive(Default)]
struct Gathered {
    blocks: Vec<(u64, BlockGathered)>,
    told: UsageTold,
    model: String,
    end: Option<End>,
    stopped: bool,
}

enum BlockGathered {
    Text(String),
    Thinking {
        text: String,
        signature: String,
    },
    Sealed(String),
    Call {
        id: String,
        name: String,
        input: String,
        arguments: String,
    },
    /// A kind of block that did not exist when this was written.
    Unknown,
}

impl Gathered {
    fn take(&mut self, data: &str, sink: &mut Sink) -> Result<(), ModelError> {
        let event: Event = serde_json::from_str(data).map_err(misunderstood)?;
        match (event.r#type.as_str(), event.content_block, event.delta) {
            ("message_start", ..) => {
                if let Some(MessageStart { model, usage }) = event.message {
                    self.model = model;
                    self.usage(usage, sink);
                }
            }
            ("content_block_start", Some(block), _) => self.start(event.index, block.get(), sink)?,
            ("content_block_delta", _, Some(delta)) => {
                let delta = serde_json::from_str(delta.get()).map_err(misunderstood)?;
                self.delta(event.index, delta, sink)?;
            }
            ("message_delta", _, delta) => {
                self.usage(event.usage.unwrap_or_default(), sink);
                let delta = delta.map(|delta| serde_json::from_str(delta.get())).transpose().map_err(misunderstood)?;
                self.ends(delta.and_then(|MessageDelta { stop_reason }| stop_reason));
            }
            ("message", ..) => {
                self.model = event.model;
                self.usage(event.usage.unwrap_or_default(), sink);
                for (index, block) in (0..).zip(&event.content) {
                    self.start(index, block.get(), sink)?;
                }
                self.ends(event.stop_reason);
            }
            ("message_stop", ..) => self.stopped = true,
            ("error", ..) => return Err(Refusal::read(data).in_stream()),
            _ => {}
        }
        Ok(())
    }

    fn start(&mut self, index: u64, block: &str, sink: &mut Sink) -> Result<(), ModelError> {
        let gathered = match serde_json::from_str(block).map_err(misunderstood)? {
            Start::Text { text } => {
                sink.text(text.clone());
                BlockGathered::Text(text)
            }
            Start::Thinking { thinking, signature } => {
                sink.reasoning(thinking.clone());
                BlockGathered::Thinking { text: thinking, signature }
            }
            Start::RedactedThinking {} => BlockGathered::Sealed(block.to_owned()),
            Start::ToolUse { id, name } => {
                let Input { input } = serde_json::from_str(block).map_err(misunderstood)?;
                let input = input.map_or_else(String::new, |input| input.get().to_owned());
                BlockGathered::Call { id, name, input, arguments: String::new() }
            }
            Start::Other => BlockGathered::Unknown,
        };
        self.blocks.push((index, gathered));
        Ok(())
    }

    fn ends(&mut self, stop_reason: Option<String>) {
        match stop_reason.as_deref() {
            None => {}
            Some("max_tokens" | "model_context_window_exceeded") => self.end = Some(End::Length),
            Some("refusal") => self.end = Some(End::Declined),
            Some(_) => self.end = Some(End::Finished),
        }
    }

    fn delta(&mut self, index: u64, delta: Delta, sink: &mut Sink) -> Result<(), ModelError> {
        let block = self.blocks.iter_mut().rev().find(|(at, _)| *at == index).map(|(_, block)| block);
        match (block, delta) {
            (Some(BlockGathered::Text(text)), Delta::Text { text: more }) => {
                text.push_str(&more);
                sink.text(more);
            }
            (Some(BlockGathered::Thinking { text, .. }), Delta::Thinking { thinking }) => {
                text.push_str(&thinking);
                sink.reasoning(thinking);
            }
            (Some(BlockGathered::Thinking { signature, .. }), Delta::Signature { signature: more }) => {
                signature.push_str(&more);
            }
            (Some(BlockGathered::Call { arguments, .. }), Delta::InputJson { partial_json }) => {
                arguments.push_str(&partial_json);
            }
            (Some(BlockGathered::Unknown), _) | (_, Delta::Other) => {}
            _ => {
                return Err(ModelError::new(
                    FailureClass::Transient,
                    "the provider's stream cannot be understood: it goes on with a block that it did not begin",
                ));
            }
        }
        Ok(())
    }

    /// What is told later replaces what was told before; what is not told again stays.
    fn usage(&mut self, told: UsageTold, sink: &mut Sink) {
        let kept = &mut self.told;
        kept.input_tokens = told.input_tokens.or(kept.input_tokens);
        kept.output_tokens = told.output_tokens.or(kept.output_tokens);
        kept.cache_read_input_tokens = told.cache_read_input_tokens.or(kept.cache_read_input_tokens);
        kept.cache_creation_input_tokens = told.cache_creation_input_tokens.or(kept.cache_creation_input_tokens);
        sink.usage(self.total());
    }

    fn total(&self) -> Usage {
        let cached_tokens = self.told.cache_read_input_tokens.unwrap_or_default();
        let made = self.told.cache_creation_input_tokens.unwrap_or_default();
        Usage {
            input_tokens: self.told.input_tokens.unwrap_or_default() + cached_tokens + made,
            output_tokens: self.told.output_tokens.unwrap_or_default(),
            cached_tokens,
        }
    }

    fn finish(self, model: &str) -> Result<Answer, ModelError> {
        let Some(end) = self.end else {
            return Err(ModelError::new(
                FailureClass::Transient,
                "the provider's answer was not whole: its stream ended without a stop reason",
            ));
        };
        let usage = self.total();
        let sealed = |json| Some(Sealed { provider: KIND.to_owned(), json });
        let blocks = self
            .blocks
            .into_iter()
            .filter_map(|(_, block)| match block {
                BlockGathered::Text(text) => (!text.is_empty()).then_some(Block::Text(text)),
                BlockGathered::Thinking { text, signature } => {
                    // Without a signature it would be refused.
                    let sealed = if signature.is_empty() {
                        None
                    } else {
                        sealed(json!({"type": "thinking", "thinking": text, "signature": signature}).to_string())
                    };
                    Some(Block::Reasoning { text, sealed })
                }
                BlockGathered::Sealed(json) => Some(Block::Reasoning { text: String::new(), sealed: sealed(json) }),
                BlockGathered::Call { id, name, input, arguments } => {
                    // The input comes in pieces, or from some endpoints with the beginning; then no piece follows.
                    let arguments = match input.as_str() {
                        "" | "{}" => arguments,
                        _ if arguments.is_empty() => input,
                        _ => arguments,
                    };
                    Some(Block::Call { provider_id: id, name, arguments })
                }
                BlockGathered::Unknown => None,
            })
            .collect();
        let model = if self.model.is_empty() { model.to_owned() } else { self.model };
        Ok(Answer { blocks, end, usage, model })
    }
}

fn misunderstood(error: serde_json::Error) -> ModelError {
    ModelError::new(FailureClass::Transient, format!("the provider's stream cannot be understood: {error}"))
}
