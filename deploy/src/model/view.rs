//! The view: a history as a conversation that a provider accepts.
//!
//! In: a history, as the fold keeps it. Out: turns. Always: the first and the last are not the model's own; two of the same
//! side do not follow each other; each call has an id of its own that providers accept, and its one result in the next turn;
//! a summary is a user's turn; an event is a call that the runtime made (`receive_event__injected`) and its result; the same history gives the same
//! turns, and appending to it changes at most the last of them, so that a provider's cache finds the rest again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use slackwater_core::history::{EVENT_TOOL, History, Item};
use slackwater_core::id::CallId;
use slackwater_core::record::{Block, Content, Sealed};
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

/// What one side says before the other does.
#[derive(Debug, PartialEq)]
pub(super) enum Turn<'a> {
    /// The user.
    User(Vec<Said<'a>>),
    /// The model.
    Assistant(Vec<Part<'a>>),
    /// The results of all calls of the turn before.
    Results(Vec<Outcome<'a>>),
}

/// A piece of what a user or a tool says.
#[derive(Debug, PartialEq)]
pub(super) enum Said<'a> {
    /// Text; never empty.
    Text(Cow<'a, str>),
    /// A picture, its bytes in base64.
    Image { media_type: &'a str, data: &'a str },
    /// A PDF, its bytes in base64.
    Pdf { name: &'a str, data: &'a str },
}

/// A piece of what the model said.
#[derive(Debug, PartialEq)]
pub(super) enum Part<'a> {
    /// Text; never blank.
    Text(Cow<'a, str>),
    /// Reasoning that this provider made, to be sent back as it came.
    Sealed(&'a Sealed),
    /// A call.
    Call { id: String, name: Cow<'a, str>, arguments: Cow<'a, str> },
}

/// A call's result.
#[derive(Debug, PartialEq)]
pub(super) struct Outcome<'a> {
    pub(super) id: String,
    pub(super) content: Vec<Said<'a>>,
    pub(super) is_error: bool,
}

/// The most characters of a call's id that all providers take.
const ID_LENGTH_MAX: usize = 40;

/// The most characters of a tool's name that all providers take.
const NAME_LENGTH_MAX: usize = 64;

/// The history's turns, with the reasoning that this kind of provider sealed; with none for a provider that seals nothing.
pub(super) fn turns<'a>(history: &'a History, seals: Option<&str>) -> Vec<Turn<'a>> {
    let mut view = View::default();
    for item in history.to_vec() {
        match &**item {
            Item::Summary(summary) => view.user(vec![Said::Text(summary.text().into())]),
            Item::User { content, .. } => view.user(said(content, "(an empty message)")),
            Item::Assistant { number, blocks, cut } => view.assistant(*number, blocks, *cut, seals),
            Item::Result(answer) => match view.ids.get(&answer.call) {
                Some(id) => {
                    let content = said(&answer.content, "(no output)");
                    view.outcome(Outcome { id: id.clone(), content, is_error: answer.by.is_error() });
                }
                // The fold does not let this happen; a provider would refuse the whole history for it.
                None => tracing::error!(call = %answer.call, "a result without its call is not shown to the model"),
            },
            Item::Event(event) => {
                let id = view.fresh(format!("evt_{}_{}", event.id.number, event.id.index));
                let original_args = serde_json::from_str(&event.original_args)
                    .unwrap_or_else(|_| serde_json::Value::String(event.original_args.clone()));
                let arguments = serde_json::json!({
                    "original_tool_name": event.original_tool_name,
                    "original_tool_call_id": event.original_tool_call_id,
                    "original_args": original_args,
                });
                view.part(Part::Call {
                    id: id.clone(),
                    name: EVENT_TOOL.into(),
                    arguments: arguments.to_string().into(),
                });
                view.outcome(Outcome { id, content: said(&event.content, "(no text)"), is_error: false });
            }
        }
    }
    // What the model said may have been nothing that can be shown to this provider.
    if let None | Some(Turn::Assistant(_)) = view.turns.last() {
        view.user(vec![Said::Text("(Go on.)".into())]);
    }
    view.turns
}

#[derive(Default)]
struct View<'a> {
    turns: Vec<Turn<'a>>,
    /// The ids under which calls are shown.
    ids: HashMap<CallId, String>,
    used: HashSet<String>,
}

impl<'a> View<'a> {
    fn user(&mut self, content: Vec<Said<'a>>) {
        match self.turns.last_mut() {
            Some(Turn::User(before)) => before.extend(content),
            _ => self.turns.push(Turn::User(content)),
        }
    }

    fn assistant(&mut self, number: u64, blocks: &'a [Block], cut: bool, seals: Option<&str>) {
        let mut index = 0;
        for (position, block) in blocks.iter().enumerate() {
            match block {
                Block::Text(text) if text.trim().is_empty() => {}
                Block::Text(text) if cut && position + 1 == blocks.len() => {
                    self.part(Part::Text(format!("{text} [interrupted]").into()));
                }
                Block::Text(text) => self.part(Part::Text(text.into())),
                Block::Reasoning { sealed: Some(sealed), .. } if Some(&*sealed.provider) == seals => {
                    self.part(Part::Sealed(sealed));
                }
                Block::Reasoning { .. } => {}
                Block::Call { provider_id, name, arguments } => {
                    let call = CallId { number, index };
                    index = index.saturating_add(1);
                    let own = format!("call_{}_{}", call.number, call.index);
                    let id = self.fresh(if is_id(provider_id) && !self.used.contains(provider_id) {
                        provider_id.clone()
                    } else {
                        own
                    });
                    self.ids.insert(call, id.clone());
                    let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
                    self.part(Part::Call { id, name: tool_name(name), arguments: arguments.into() });
                }
            }
        }
    }

    fn part(&mut self, part: Part<'a>) {
        match self.turns.last_mut() {
            Some(Turn::Assistant(parts)) => parts.push(part),
            None => {
                self.user(vec![Said::Text("(The conversation begins.)".into())]);
                self.turns.push(Turn::Assistant(vec![part]));
            }
            Some(_) => self.turns.push(Turn::Assistant(vec![part])),
        }
    }

    fn outcome(&mut self, outcome: Outcome<'a>) {
        match self.turns.last_mut() {
            Some(Turn::Results(outcomes)) => outcomes.push(outcome),
            _ => self.turns.push(Turn::Results(vec![outcome])),
        }
    }

    /// An id that no call before has.
    fn fresh(&mut self, wanted: String) -> String {
        let mut id = wanted;
        while !self.used.insert(id.clone()) {
            id.push('_');
        }
        id
    }
}

fn is_id(text: &str) -> bool {
    (1..=ID_LENGTH_MAX).contains(&text.len()) && text.bytes().all(is_name_byte)
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// A name as providers take it. The model may have made one up; sent back as it is, it would make every later prompt
/// of the thread fail.
fn tool_name(name: &str) -> Cow<'_, str> {
    if (1..=NAME_LENGTH_MAX).contains(&name.len()) && name.bytes().all(is_name_byte) {
        return name.into();
    }
    let mut name: String =
        name.bytes().take(NAME_LENGTH_MAX).map(|b| if is_name_byte(b) { b as char } else { '_' }).collect();
    if name.is_empty() {
        name.push_str("unnamed");
    }
    name.into()
}

/// What is said, or `nothing` in its place if that is nothing.
fn said<'a>(content: &'a [Content], nothing: &'static str) -> Vec<Said<'a>> {
    let mut said: Vec<Said<'a>> = content
        .iter()
        .filter_map(|piece| match piece {
            Content::Text(text) if text.trim().is_empty() => None,
            Content::Text(text) => Some(Said::Text(text.into())),
            Content::Image { media_type, data } => Some(Said::Image { media_type, data }),
            Content::File { name, media_type, data } if media_type == "application/pdf" => {
                Some(Said::Pdf { name, data })
            }
            Content::File { name, media_type, data } => {
                let text = STANDARD.decode(data).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                Some(Said::Text(match text {
                    Some(text) => format!("File {name} ({media_type}):\n{text}").into(),
                    None => format!("[The file {name} ({media_type}) is no text and cannot be shown.]").into(),
                }))
            }
        })
        .collect();
    if said.is_empty() {
        said.push(Said::Text(nothing.into()));
    }
    said
}
