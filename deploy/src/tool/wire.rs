//! RAP on the wire: what is sent to a tool server and what comes back.
//!
//! In: the JSON of a toolset or of a callback. Out: its parts, and from a tool's result the record. Always: fields that we
//! do not know are ignored, so that newer servers work; a callback is only taken for the thread and call that its
//! capability names.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use slackwater_core::id::{CallId, InputId, ThreadId};
use slackwater_core::record::{self, Content, Deliver, Origin};

/// What a server answers at `GET {server}/.well-known/rap-toolset`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The toolset's name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The absolute URL that invocations are posted to.
    pub endpoint: String,
    /// The tools.
    pub tools: Vec<ToolDef>,
    /// Whether the server keeps state that has to be moved with a thread.
    #[serde(default, rename = "needsMigration", skip_serializing_if = "std::ops::Not::not")]
    pub needs_migration: bool,
}

/// One tool of a toolset.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolDef {
    /// Its name, which is also the operation of an invocation.
    pub name: String,
    /// What the model reads about it.
    #[serde(default)]
    pub description: String,
    /// Its arguments' JSON Schema.
    #[serde(rename = "inputSchema")]
    pub input_schema: serde_json::Value,
    /// What its author says of it, for example `{"destructive": true}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<serde_json::Value>,
    /// How a person's client may title a call.
    #[serde(default, rename = "displayScript", skip_serializing_if = "Option::is_none")]
    pub display_script: Option<String>,
}

/// What is posted to a toolset's endpoint. Any 2xx means that the server took the call over.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invocation {
    /// The tool's name.
    pub operation: String,
    /// The arguments: a JSON object, exactly as the model wrote it.
    pub arguments: Box<RawValue>,
    /// The call's name in the world ([`CallId::effect_id`]); the same again is the same call.
    pub id: String,
    /// A provider's second name for the call. We give none: our `id` is enough.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Where the results go.
    pub callback_url: String,
    /// The thread.
    pub group_id: String,
    /// On whose behalf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_id: Option<String>,
    /// The thread's ancestors, from the root to its parent.
    #[serde(default)]
    pub thread_ancestors: Vec<String>,
}

/// What is posted to `{server}/cancel_tool_call`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CancelToolCall {
    /// The thread.
    pub thread_id: String,
    /// The call: the `id` of its invocation.
    pub tool_call_id: String,
}

/// What is answered at `{server}/tool_call_status` to the same body as [`CancelToolCall`].
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct ToolCallStatus {
    /// Whether the server still tracks the call.
    pub alive: bool,
}

/// What is posted to `{server}/close_thread`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloseThread {
    /// The thread.
    pub thread_id: String,
}

/// What a server posts to a callback URL: a JSON object whose `type` says which.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Callback {
    /// `tool_result`: the answer of a call.
    ToolResult(ToolResult),
    /// `subscription_event`: something that a subscription produced.
    SubscriptionEvent(SubscriptionEvent),
    /// `oauth`: the user has to authorize something first.
    Oauth(Oauth),
    /// `user_choice`: the user has to choose first.
    UserChoice(UserChoice),
    /// `view_update`: something for clients that show views.
    ViewUpdate(ViewUpdate),
}

/// A call's result.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ToolResult {
    /// The thread.
    pub group_id: String,
    /// The call: the `id` of its invocation.
    pub id: String,
    /// The invocation's `call_id`, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The result, if it is text alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The result in pieces; stands in place of `text` if both are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Vec<Piece>>,
    /// How a person's client may show it, as it came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_as: Option<Box<RawValue>>,
    /// Whether the call goes on producing events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subscription: Option<bool>,
}

/// A piece of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Piece {
    /// Text.
    Text {
        /// What it says.
        text: String,
    },
    /// A picture.
    Image {
        /// Its bytes in base64.
        data: String,
        /// Its MIME type, for example `image/png`.
        #[serde(rename = "mediaType")]
        media_type: String,
    },
}

/// Something that a subscription produced.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubscriptionEvent {
    /// The thread.
    pub group_id: String,
    /// The subscribing call.
    pub tool_call_id: String,
    /// What happened.
    pub text: String,
    /// Whether it belongs into the thread itself.
    #[serde(default)]
    pub associative: bool,
    /// Whether it is the subscription's last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#final: Option<bool>,
    /// Its own id, by which a repeated one is recognised; RAP has none, and without one each is an event of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event_id: Option<String>,
    /// How it is to be delivered: `"child"`, `"inline"` or `{"digest": {"count": 10, "wait_ms": 60000}}`; RAP has only
    /// `associative`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver: Option<Deliver>,
}

/// The user has to authorize something first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Oauth {
    /// The thread.
    pub group_id: String,
    /// The call.
    pub id: String,
    /// The invocation's `call_id`, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// Where the user goes.
    pub auth_url: String,
}

/// The user has to choose first.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserChoice {
    /// The thread.
    pub group_id: String,
    /// The call.
    pub id: String,
    /// The invocation's `call_id`, if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// What is asked.
    pub prompt: String,
    /// What can be answered.
    pub choices: Vec<String>,
    /// The place of the default among the choices, from 0.
    #[serde(default)]
    pub default: usize,
    /// Where the answer goes.
    pub response_url: String,
}

/// What is posted to a choice's `response_url`. Any 2xx means that the server knows.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct UserChoiceResponse {
    /// The call: the `id` of its invocation.
    pub id: String,
    /// The place of what was chosen among the choices, from 0.
    pub selected: u32,
}

/// Something for clients that show views.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ViewUpdate {
    /// The thread.
    pub group_id: String,
    /// Which kind of view, for example `diff`.
    pub view_type: String,
    /// What it shows, passed on as it is.
    pub content: Box<RawValue>,
}

/// Why a callback is not taken.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadCallback {
    /// It is not JSON, or fields are missing or of another type.
    #[error("this is not a RAP callback: {0}")]
    Malformed(#[from] serde_json::Error),
    /// Its `type` is none of RAP's.
    #[error(
        "the callback type {0:?} is not known; it is one of tool_result, subscription_event, oauth, user_choice, view_update"
    )]
    UnknownType(String),
    /// A result without anything in it.
    #[error("a tool_result needs `text` or `content`")]
    Empty,
    /// It names another thread than its capability.
    #[error(
        "this callback URL is for the group_id {expected}, not {found:?}; use the callback_url of the invocation that is answered"
    )]
    OtherThread {
        /// The capability's thread.
        expected: ThreadId,
        /// The callback's.
        found: String,
    },
    /// It names another call than its capability.
    #[error(
        "this callback URL is for the call {expected}, not {found:?}; use the callback_url of the invocation that is answered"
    )]
    OtherCall {
        /// The capability's call.
        expected: String,
        /// The callback's.
        found: String,
    },
}

impl Callback {
    /// Reads a callback's body.
    ///
    /// # Errors
    /// [`BadCallback::Malformed`] or [`BadCallback::UnknownType`].
    pub fn parse(body: &[u8]) -> Result<Self, BadCallback> {
        // In two steps, because JSON that is passed on as it came cannot be read through a tagged enum.
        #[derive(Deserialize)]
        struct Tag {
            r#type: String,
        }
        let Tag { r#type } = serde_json::from_slice(body)?;
        Ok(match r#type.as_str() {
            "tool_result" => Self::ToolResult(serde_json::from_slice(body)?),
            "subscription_event" => Self::SubscriptionEvent(serde_json::from_slice(body)?),
            "oauth" => Self::Oauth(serde_json::from_slice(body)?),
            "user_choice" => Self::UserChoice(serde_json::from_slice(body)?),
            "view_update" => Self::ViewUpdate(serde_json::from_slice(body)?),
            _ => return Err(BadCallback::UnknownType(r#type)),
        })
    }

    /// Whether the callback is for the thread and the call that its capability names.
    ///
    /// # Errors
    /// [`BadCallback::OtherThread`] or [`BadCallback::OtherCall`].
    pub fn check(&self, thread: ThreadId, call: CallId) -> Result<(), BadCallback> {
        let (group_id, id) = match self {
            Self::ToolResult(result) => (&result.group_id, Some(&result.id)),
            Self::SubscriptionEvent(event) => (&event.group_id, Some(&event.tool_call_id)),
            Self::Oauth(oauth) => (&oauth.group_id, Some(&oauth.id)),
            Self::UserChoice(choice) => (&choice.group_id, Some(&choice.id)),
            Self::ViewUpdate(update) => (&update.group_id, None),
        };
        check(group_id, id, thread, call)
    }
}

impl SubscriptionEvent {
    /// The record of this event, for the subscribing call that its capability names; with `fresh` as its id if it has none.
    pub fn into_record(self, call: CallId, origin: Origin, fresh: InputId) -> record::SubscriptionEvent {
        record::SubscriptionEvent {
            subscription: call,
            id: self.event_id.map_or(fresh, InputId),
            origin,
            content: vec![Content::Text(self.text)],
            associative: self.associative,
            last: self.r#final.unwrap_or(false),
            deliver: self.deliver,
        }
    }
}

impl ToolResult {
    /// The record of this result, for the thread and the call that its capability names.
    ///
    /// # Errors
    /// [`BadCallback::OtherThread`], [`BadCallback::OtherCall`] or [`BadCallback::Empty`].
    pub fn into_record(
        self,
        thread: ThreadId,
        call: CallId,
        origin: Origin,
    ) -> Result<record::ToolResult, BadCallback> {
        check(&self.group_id, Some(&self.id), thread, call)?;
        let content = match (self.content, self.text) {
            (Some(pieces), _) if !pieces.is_empty() => pieces.into_iter().map(Content::from).collect(),
            (_, Some(text)) => vec![Content::Text(text)],
            // A tool that had nothing to say has said so.
            (Some(_), None) => vec![Content::Text(String::new())],
            (None, None) => return Err(BadCallback::Empty),
        };
        Ok(record::ToolResult {
            call,
            origin,
            content,
            // RAP has no field for it; a tool's text says what went wrong.
            is_error: false,
            subscription: self.subscription.unwrap_or(false),
            display: self.display_as.map(|raw| raw.get().to_owned()),
        })
    }
}

impl From<Piece> for Content {
    fn from(piece: Piece) -> Self {
        match piece {
            Piece::Text { text } => Content::Text(text),
            Piece::Image { data, media_type } => Content::Image { media_type, data },
        }
    }
}

fn check(group_id: &str, id: Option<&String>, thread: ThreadId, call: CallId) -> Result<(), BadCallback> {
    if group_id.parse() != Ok(thread) {
        return Err(BadCallback::OtherThread { expected: thread, found: group_id.to_owned() });
    }
    let expected = call.effect_id(thread);
    match id {
        Some(id) if *id != expected => Err(BadCallback::OtherCall { expected, found: id.clone() }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use serde_json::json;
    use slackwater_core::record::Proof;

    const CALL: CallId = CallId { number: 2, index: 0 };

    fn thread() -> ThreadId {
        ThreadId::from_bytes([1; 16])
    }

    fn record(mut body: serde_json::Value) -> Result<record::ToolResult, BadCallback> {
        body["type"] = json!("tool_result");
        let origin = Origin { who: "t".into(), proof: Proof::Capability };
        match Callback::parse(body.to_string().as_bytes())? {
            Callback::ToolResult(result) => result.into_record(thread(), CALL, origin),
            other => panic!("{other:?}"),
        }
    }

    fn ids() -> serde_json::Value {
        json!({"group_id": thread().to_string(), "id": CALL.effect_id(thread())})
    }

    #[test]
    fn content_stands_in_place_of_text() {
        let mut body = ids();
        body["text"] = json!("short");
        assert_eq!(record(body.clone()).unwrap().content, [Content::Text("short".into())]);
        body["content"] = json!([]);
        assert_eq!(record(body.clone()).unwrap().content, [Content::Text("short".into())]);
        body["content"] =
            json!([{"type": "text", "text": "long"}, {"type": "image", "data": "QUJD", "mediaType": "image/png"}]);
        assert_eq!(
            record(body).unwrap().content,
            [Content::Text("long".into()), Content::Image { media_type: "image/png".into(), data: "QUJD".into() }]
        );
        assert!(matches!(record(ids()), Err(BadCallback::Empty)));
    }

    #[test]
    fn what_is_shown_to_people_is_kept_as_it_came() {
        let display = r#"[{"type":"diff","content":{"path":"b",  "patch":"+x"}}]"#;
        let body = format!(
            r#"{{"type":"tool_result","group_id":"{}","id":"{}","text":"x","display_as":{display},"subscription":true,"new":1}}"#,
            thread(),
            CALL.effect_id(thread())
        );
        let Callback::ToolResult(result) = Callback::parse(body.as_bytes()).unwrap() else { panic!("{body}") };
        let record = result.into_record(thread(), CALL, Origin { who: "t".into(), proof: Proof::Capability }).unwrap();
        assert_eq!(record.display.as_deref(), Some(display));
        assert!(record.subscription);
    }

    #[test]
    fn a_callback_for_another_thread_or_call_is_refused() {
        let mut body = ids();
        body["text"] = json!("x");
        body["id"] = json!(CallId { number: 2, index: 1 }.effect_id(thread()));
        assert!(matches!(record(body.clone()), Err(BadCallback::OtherCall { .. })));
        body["group_id"] = json!("somebody");
        assert!(matches!(record(body), Err(BadCallback::OtherThread { .. })));
        let view = json!({"type": "view_update", "group_id": thread().to_string(), "view_type": "diff", "content": {}});
        let view = Callback::parse(view.to_string().as_bytes()).unwrap();
        assert!(view.check(thread(), CALL).is_ok());
        assert!(view.check(ThreadId::from_bytes([2; 16]), CALL).is_err());
    }

    #[test]
    fn what_is_no_callback_is_named() {
        for (body, said) in [
            ("", "EOF"),
            ("[]", "not a RAP callback"),
            ("{}", "missing field `type`"),
            (r#"{"type":"tool_result"}"#, "missing field `group_id`"),
            (r#"{"type":"tool_resul"}"#, "one of tool_result"),
            (r#"{"type":"tool_result","group_id":"g","id":"i","text":5}"#, "invalid type"),
        ] {
            let error = Callback::parse(body.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(said), "{body}: {error}");
        }
    }

    #[test]
    fn the_reference_types_read_what_we_write_and_the_other_way_round() {
        let invocation = Invocation {
            operation: "build".into(),
            arguments: RawValue::from_string(r#"{"b":1}"#.into()).unwrap(),
            id: CALL.effect_id(thread()),
            call_id: None,
            callback_url: "http://127.0.0.1:1/v1/callbacks/x".into(),
            group_id: thread().to_string(),
            user_id: None,
            thread_ancestors: Vec::new(),
        };
        let theirs: rap_protocol::RapInvocation =
            serde_json::from_str(&serde_json::to_string(&invocation).unwrap()).unwrap();
        assert_eq!(theirs.arguments, json!({"b": 1}));
        let result = json!({
            "type": "tool_result", "group_id": theirs.group_id, "id": theirs.id, "call_id": theirs.call_id, "text": "ok"
        });
        let theirs: rap_protocol::RapCallback = serde_json::from_value(result).unwrap();
        let ours = Callback::parse(&serde_json::to_vec(&theirs).unwrap()).unwrap();
        assert!(ours.check(thread(), CALL).is_ok());
        let again: rap_protocol::RapCallback = serde_json::from_str(&serde_json::to_string(&ours).unwrap()).unwrap();
        assert!(matches!(again, rap_protocol::RapCallback::ToolResult(result) if result.text.as_deref() == Some("ok")));
    }
}
