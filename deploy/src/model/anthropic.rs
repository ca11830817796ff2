//! Anthropic's Messages.
//!
//! In: requests. Out: `POST {base_url}/v1/messages` and what its stream says. Always: reasoning that is signed or redacted
//! goes back as it came; the roles take turns; a stream that ends without a stop reason is no answer.

use super::http::{Endpoint, Refusal};
use super::offer::Offer;
use super::sse::Events;
use super::view::{self, Outcome, Part, Said, Turn};
use super::{Answer, Limits, Model, ModelError, Request, Sink};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use slackwater_core::record::{Block, End, FailureClass, Sealed, Usage};

/// A model behind Anthropic's Messages, or an endpoint that speaks them.
pub struct Anthropic {
    endpoint: Endpoint,
    model: String,
    max_tokens: u32,
    extra: Map<String, Value>,
    offer: Offer,
}

/// The kind of provider in [`Sealed`].
const KIND: &str = "anthropic";

/// The pictures that Messages take.
const PICTURES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

impl Anthropic {
    /// The model of this name at `{base_url}/v1/messages`. Without a key no `x-api-key` is sent. `extra` is added to every
    /// request as it is, for example `temperature` or `thinking`.
    ///
    /// # Errors
    /// When the URL or the key cannot be used, in words.
    pub fn new(
        base_url: &str,
        key: Option<String>,
        model: String,
        max_tokens: u32,
        extra: Map<String, Value>,
        limits: Limits,
    ) -> Result<Self, String> {
        let url = format!("{}/v1/messages", base_url.trim_end_matches('/'));
        let mut headers = vec![("anthropic-version", "2023-06-01".to_owned())];
        headers.extend(key.clone().map(|key| ("x-api-key", key)));
        let hint = "check the key in ANTHROPIC_API_KEY, or where api_key_env or api_key says".to_owned();
        let endpoint = Endpoint::new(url, headers, key, hint, limits)?;
        Ok(Self { endpoint, model, max_tokens, extra, offer: Offer::default() })
    }

    /// The body of a request.
    pub(super) fn body(&self, request: &Request) -> Vec<u8> {
        let turns = view::turns(&request.prompt.history, Some(KIND));
        let thinks = may_think(&turns);
        let mut messages: Vec<Message<'_>> = Vec::new();
        for turn in turns {
            let (role, content): (_, Vec<Piece<'_>>) = match turn {
                Turn::User(said) => ("user", said.into_iter().map(piece).collect()),
                Turn::Assistant(parts) => ("assistant", parts.into_iter().filter_map(part).collect()),
                Turn::Results(outcomes) => ("user", outcomes.into_iter().map(result).collect()),
            };
            match messages.last_mut() {
                // Results, and after them what the user says.
                Some(last) if last.role == role => last.content.extend(content),
                _ => messages.push(Message { role, content }),
            }
        }
        // The prefix up to here is read from the provider's cache next time.
        if let Some(Piece::Made { cache_control, .. }) = messages.last_mut().and_then(|last| last.content.last_mut()) {
            *cache_control = Some(Cache::EPHEMERAL);
        }
        let system = (!request.system.trim().is_empty()).then(|| {
            [Piece::Made {
                made: Made::Text { text: request.system.as_ref().into() },
                cache_control: Some(Cache::EPHEMERAL),
            }]
        });
        let tools = self.offer.json(
            &request.tools,
            |tool, schema| json!({"name": tool.name, "description": tool.description, "input_schema": schema}),
        );
        let body = Body {
            model: &self.model,
            max_tokens: self.max_tokens,
            system,
            messages,
            tools: (!request.tools.is_empty()).then_some(&*tools),
            stream: true,
            extra: self.extra.iter().filter(|(name, _)| thinks || *name != "thinking").collect(),
        };
        serde_json::to_vec(&body).expect("invariant: a request can be written as JSON")
    }
}

impl std::fmt::Debug for Anthropic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Anthropic({})", self.model)
    }
}

impl Model for Anthropic {
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

/// A model that thinks must see its last turn begin with its own thinking as long as its calls are being answered. An
/// event's turn is the runtime's, and another provider's has no thinking; then this one completion goes without.
fn may_think(turns: &[Turn<'_>]) -> bool {
    let Some(Turn::Results(_)) = turns.last() else { return true };
    let last = turns.iter().rev().find_map(|turn| match turn {
        Turn::Assistant(parts) => parts.first(),
        _ => None,
    });
    matches!(last, Some(Part::Sealed(_)))
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    max_tokens: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<[Piece<'a>; 1]>,
    messages: Vec<Message<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a RawValue>,
    stream: bool,
    #[serde(flatten)]
    extra: std::collections::BTreeMap<&'a String, &'a Value>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Vec<Piece<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    /// The provider's own block.
    Sealed(&'a RawValue),
    Made {
        #[serde(flatten)]
        made: Made<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_control: Option<Cache>,
    },
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Made<'a> {
    Text {
        text: std::borrow::Cow<'a, str>,
    },
    Image {
        source: Value,
    },
    Document {
        source: Value,
        title: &'a str,
    },
    ToolUse {
        id: String,
        name: std::borrow::Cow<'a, str>,
        input: Box<RawValue>,
    },
    ToolResult {
        tool_use_id: String,
        content: Vec<Piece<'a>>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        is_error: bool,
    },
}

#[derive(Serialize)]
struct Cache {
    r#type: &'static str,
}

impl Cache {
    const EPHEMERAL: Self = Self { r#type: "ephemeral" };
}

impl<'a> From<Made<'a>> for Piece<'a> {
    fn from(made: Made<'a>) -> Self {
        Piece::Made { made, cache_control: None }
    }
}

fn piece(said: Said<'_>) -> Piece<'_> {
    let base64 = |media_type: &str, data: &str| json!({"type": "base64", "media_type": media_type, "data": data});
    match said {
        Said::Text(text) => Made::Text { text },
        Said::Image { media_type, data } if PICTURES.contains(&media_type) => {
            Made::Image { source: base64(media_type, data) }
        }
        Said::Image { media_type, .. } => {
            Made::Text { text: format!("[A picture of type {media_type} cannot be shown.]").into() }
        }
        Said::Pdf { name, data } => Made::Document { source: base64("application/pdf", data), title: name },
    }
    .into()
}

fn part(part: Part<'_>) -> Option<Piece<'_>> {
    Some(match part {
        Part::Text(text) => Made::Text { text }.into(),
        Part::Sealed(sealed) => Piece::Sealed(serde_json::from_str(&sealed.json).ok()?),
        Part::Call { id, name, arguments } => Made::ToolUse { id, name, input: object(&arguments) }.into(),
    })
}

fn result(Outcome { id, content, is_error }: Outcome<'_>) -> Piece<'_> {
    Made::ToolResult { tool_use_id: id, content: content.into_iter().map(piece).collect(), is_error }.into()
}

/// The arguments as the object that they must be; what the model wrote that is none goes back inside one.
fn object(arguments: &str) -> Box<RawValue> {
    match RawValue::from_string(arguments.to_owned()) {
        Ok(json) if json.get().trim_start().starts_with('{') => json,
        _ => serde_json::value::to_raw_value(&json!({"arguments": arguments}))
            .expect("invariant: a JSON value can be written"),
    }
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
#[serde(tag = "type", rename_all = "snake_case")]
enum Delta {
    TextDelta {
        text: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
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
            (Some(BlockGathered::Text(text)), Delta::TextDelta { text: more }) => {
                text.push_str(&more);
                sink.text(more);
            }
            (Some(BlockGathered::Thinking { text, .. }), Delta::ThinkingDelta { thinking }) => {
                text.push_str(&thinking);
                sink.reasoning(thinking);
            }
            (Some(BlockGathered::Thinking { signature, .. }), Delta::SignatureDelta { signature: more }) => {
                signature.push_str(&more);
            }
            (Some(BlockGathered::Call { arguments, .. }), Delta::InputJsonDelta { partial_json }) => {
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
