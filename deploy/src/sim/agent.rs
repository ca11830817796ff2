//! The agent under test: its model and its tools, as functions.
//!
//! In: prompts, and calls with typed arguments. Out: replies, and what becomes of each call. Always: called once for each time
//! the world asks; what they answer must follow from what they are given.

use super::view::words;
use crate::catalog::ToolSpec;
use crate::model::{Limits, Reply, Request, Scripted};
use serde::de::DeserializeOwned;
use slackwater_core::effect::{Dispatch, Prompt};
use slackwater_core::history::Item;
use slackwater_core::id::ThreadId;
use slackwater_core::record::{Block, Completion, Content, End, Failure, Record, Usage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// What a model is asked, in a form that is easy to decide on.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The request as any [`crate::model::Model`] gets it.
    pub request: &'a Request,
}

impl Asked<'_> {
    /// Whose prompt it is.
    pub fn thread(&self) -> ThreadId {
        self.request.prompt.thread
    }

    /// Everything that the model sees, oldest first, in words: `user: ship it`, `model: deploy({})`, `deploy: done`,
    /// `event of deploy: done`.
    pub fn lines(&self) -> Vec<String> {
        self.request.prompt.history.to_vec().into_iter().map(|item| words(item)).collect()
    }

    /// What is new since the model's last turn, oldest first, in the same words.
    pub fn news(&self) -> Vec<String> {
        let mut news: Vec<String> = self.new_items().map(words).collect();
        news.reverse();
        news
    }

    /// The model's n-th turn in this thread, from 1.
    pub fn turn(&self) -> usize {
        1 + self.items().filter(|item| matches!(item, Item::Assistant { .. })).count()
    }

    /// The newest of the user's messages.
    pub fn last_message(&self) -> Option<String> {
        self.items().find_map(|item| if let Item::User { content, .. } = item { Some(text(content)) } else { None })
    }

    /// The result of this tool, if it is new since the model's last turn.
    pub fn result_of(&self, tool: &str) -> Option<String> {
        self.new_items().find_map(|item| match item {
            Item::Result(answer) if answer.name == tool => Some(text(&answer.content)),
            Item::Event(event) if event.original_tool_name == tool => Some(text(&event.content)),
            _ => None,
        })
    }

    /// Newest first.
    fn items(&self) -> impl Iterator<Item = &Item> {
        self.request.prompt.history.newest_first().map(|item| &**item)
    }

    /// Newest first.
    fn new_items(&self) -> impl Iterator<Item = &Item> {
        self.items().take_while(|item| !matches!(item, Item::Assistant { .. }))
    }
}

/// What pieces of content say, those that are no text left out.
pub(super) fn text(content: &[Content]) -> String {
    let texts =
        content.iter().filter_map(|piece| if let Content::Text(text) = piece { Some(text.as_str()) } else { None });
    texts.collect::<Vec<_>>().join("\n")
}

/// What becomes of a call. Text, and a `Result` of texts, is an answer at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Later {
    pub(super) text: String,
    pub(super) is_error: bool,
    pub(super) when: When,
    pub(super) times: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// By code in our process: a crash before the answer is durable does the call again.
    Now,
    /// By a service: it takes the call over, and delivers the answer until we have it, through crashes of ours.
    After(u64),
    Never,
}

impl Later {
    /// Answers before anything else can happen to the tool, as a function in this process does.
    pub fn now(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_error: false, when: When::Now, times: 1 }
    }

    /// Takes the call over, as a service does, and answers so many milliseconds later at the earliest.
    pub fn after_ms(delay_ms: u64, text: impl Into<String>) -> Self {
        Self { when: When::After(delay_ms), ..Self::now(text) }
    }

    /// Takes the call over and never answers.
    pub fn never() -> Self {
        Self { when: When::Never, ..Self::now("") }
    }

    /// The answer says that the tool failed.
    #[must_use]
    pub fn failed(self) -> Self {
        Self { is_error: true, ..self }
    }

    /// Answers twice.
    #[must_use]
    pub fn twice(self) -> Self {
        Self { times: 2, ..self }
    }
}

impl From<&str> for Later {
    fn from(text: &str) -> Self {
        Later::now(text)
    }
}

impl From<String> for Later {
    fn from(text: String) -> Self {
        Later::now(text)
    }
}

impl<T: Into<String>, E: Into<String>> From<Result<T, E>> for Later {
    fn from(result: Result<T, E>) -> Self {
        match result {
            Ok(text) => Later::now(text),
            Err(text) => Later::now(text).failed(),
        }
    }
}

/// A tool: what it does when it is called.
pub(super) struct Tool {
    /// Whether it remembers the ids of its calls and does none again.
    pub(super) once: bool,
    /// Whether its calls wait for a person's approval.
    pub(super) is_gated: bool,
    /// How long a call may take, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
    function: Box<dyn Fn(&str) -> Later>,
}

impl Tool {
    pub(super) fn new<A: DeserializeOwned, L: Into<Later>>(once: bool, function: impl Fn(A) -> L + 'static) -> Self {
        let function = Box::new(move |arguments: &str| {
            let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
            match serde_json::from_str(arguments) {
                Ok(arguments) => function(arguments).into(),
                Err(error) => Later::now(format!("The arguments do not fit: {error}.")).failed(),
            }
        });
        Self { once, is_gated: false, timeout_ms: None, function }
    }

    pub(super) fn call(&self, dispatch: &Dispatch) -> Later {
        (self.function)(&dispatch.arguments)
    }
}

/// The agent: a model and tools by name.
pub(super) struct Agent {
    pub(super) model: Box<dyn Fn(&Asked<'_>) -> Reply>,
    pub(super) tools: BTreeMap<String, Tool>,
}

impl Default for Agent {
    fn default() -> Self {
        Self { model: play(Scripted::default_script()), tools: BTreeMap::new() }
    }
}

/// The model that plays a script.
pub(super) fn play(script: Scripted) -> Box<dyn Fn(&Asked<'_>) -> Reply> {
    Box::new(move |asked| script.reply(asked.request))
}

impl Agent {
    /// What the model is going to say to a prompt.
    pub(super) fn reply(&self, prompt: &Prompt) -> Reply {
        let spec = |name: &String| ToolSpec {
            name: name.clone(),
            description: String::new(),
            schema: serde_json::json!({}),
            annotations: None,
        };
        let tools: Arc<[ToolSpec]> = self.tools.keys().map(spec).collect();
        let request = Request { system: "".into(), tools, prompt: prompt.clone(), attempt: 1 };
        (self.model)(&Asked { request: &request })
    }
}

/// The record of a reply that was not cut.
pub(super) fn answer(reply: &Reply, prompt: &Prompt) -> Record {
    let attempts_max = Limits::default().attempts_max;
    if let Some(broken) = &reply.failure
        && (broken.attempts >= attempts_max || !broken.error.may_pass())
    {
        let attempts = if broken.error.may_pass() { attempts_max } else { 1 };
        let (class, message) = (broken.error.class, broken.error.message.clone());
        return Record::Failure(Failure { seen: prompt.seen, class, message, attempts });
    }
    let mut blocks = Vec::new();
    if !reply.reasoning.is_empty() {
        blocks.push(Block::Reasoning { text: reply.reasoning.clone(), sealed: None });
    }
    if !reply.chunks.is_empty() {
        blocks.push(Block::Text(reply.chunks.concat()));
    }
    blocks.extend(reply.calls.iter().enumerate().map(|(index, (name, arguments))| Block::Call {
        provider_id: format!("call_{}_{index}", prompt.seen),
        name: name.clone(),
        arguments: arguments.clone(),
    }));
    completion(reply, prompt, blocks, End::Finished)
}

/// The record of a reply that was cut after so many chunks.
pub(super) fn cut(reply: &Reply, prompt: &Prompt, chunks: usize) -> Record {
    let said = reply.chunks[..chunks].concat();
    let blocks = if said.is_empty() { Vec::new() } else { vec![Block::Text(said)] };
    completion(reply, prompt, blocks, End::Cut)
}

fn completion(reply: &Reply, prompt: &Prompt, blocks: Vec<Block>, end: End) -> Record {
    let usage = reply.usage.unwrap_or(Usage { output_tokens: reply.chunks.len() as u64, ..Usage::default() });
    Record::Completion(Completion { seen: prompt.seen, blocks, end, usage, model: "simulated".to_owned() })
}
