//! Anthropic's Messages.
//!
//! In: requests. Out: `POST {base_url}/v1/messages` and what its stream says. Always: reasoning that is signed or redacted
//! goes back as it came; the roles take turns; a stream that ends without a stop reason is no answer.

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

/// A model behind Anthropic's Messages, or an endpoint that speaks them.
pub struct Anthropic {
    endpoint: Endpoint,
    model: String,
    max_tokens: u32,
    extra: Map<String, Value>,
    offer: Offer,
}

/// The kind of provider in [`slackwater_core::record::Sealed`].
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
            model: request.model(&self.model),
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
            read(events, sink, request.model(&self.model)).await
        })
    }
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
