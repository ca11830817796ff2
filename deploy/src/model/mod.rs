//! Models: what answers a prompt.
//!
//! In: prompts, and requests to cut their answers. Out: chunks while an answer streams, and for each prompt exactly one
//! record, a completion or a failure. Always: at most so many prompts at a time, the rest waiting in order; retries bounded
//! over the whole completion; what the model said stands in the record as it came.
//!
//! | file | noun |
//! | --- | --- |
//! | [`config`] | which model, and where: what a configuration file says |
//! | [`queue`] | [`start`]: the prompts' order, retries and cuts |
//! | [`scripted`], `script` | the stand-in that plays a script |
//! | [`openai`] | any OpenAI-compatible chat completions endpoint |
//! | [`anthropic`] | Anthropic's Messages |
//! | `view` | a history as a conversation that a provider accepts |
//! | `offer` | the tools as a provider's JSON |
//! | `http`, `sse` | what the two have in common on the wire |
//!
//! A provider is a [`Model`]; write your own like this:
//!
//! ```
//! use futures::future::BoxFuture;
//! use slackwater_core::record::{Block, End, Usage};
//! use slackwater::model::{Answer, Model, ModelError, Request, Sink};
//!
//! struct Parrot;
//!
//! impl Model for Parrot {
//!     fn name(&self) -> &str {
//!         "parrot"
//!     }
//!
//!     fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
//!         Box::pin(async move {
//!             let text = format!("You are at item {}.", request.prompt.history.len());
//!             sink.text(text.clone());
//!             Ok(Answer {
//!                 blocks: vec![Block::Text(text)],
//!                 end: End::Finished,
//!                 usage: Usage::default(),
//!                 model: self.name().to_owned(),
//!             })
//!         })
//!     }
//! }
//! ```

use crate::catalog::ToolSpec;
use futures::future::BoxFuture;
use serde::Deserialize;
use slackwater_core::effect::Prompt;
use slackwater_core::record::{Block, End, FailureClass, Usage};
use std::sync::Arc;
use std::time::Duration;

pub mod anthropic;
pub mod config;
mod http;
mod offer;
pub mod openai;
pub mod queue;
mod script;
pub mod scripted;
mod sse;
mod view;

#[cfg(test)]
mod bodies;
#[cfg(test)]
pub(crate) mod conformance;
#[cfg(test)]
mod misbehaviour;
#[cfg(test)]
mod own;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod tests;

pub use anthropic::Anthropic;
pub use config::{Config, ConfigError, Provider, Secret};
pub use openai::OpenAi;
pub use queue::start;
pub use scripted::{Reply, ScriptError, Scripted};

/// Something that answers prompts.
pub trait Model: Send + Sync + 'static {
    /// What the model is called, for records that it did not get to sign itself.
    fn name(&self) -> &str;

    /// Makes one completion: what is streamed goes into `sink` as it comes, and the whole is returned at the end. Retries
    /// are not its business. Dropping the future cancels the request.
    ///
    /// It shares a thread with the other completions under way, so it must not block.
    ///
    /// # Errors
    /// When there is no whole completion; the class says whether another attempt may help.
    fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>>;
}

/// What a model is asked.
#[derive(Clone, Debug)]
pub struct Request {
    /// The system text; may be empty.
    pub system: Arc<str>,
    /// The tools it may call, built-in ones included. As long as the tools do not change it is the same allocation, so
    /// what is made from them can be kept and found again by pointer.
    pub tools: Arc<[ToolSpec]>,
    /// The thread's prompt.
    pub prompt: Prompt,
    /// Which attempt at this prompt it is, from 1.
    pub attempt: u32,
}

impl Request {
    /// The model that is asked: the thread's own, or else this one, which is every thread's.
    pub fn model<'a>(&'a self, of_all: &'a str) -> &'a str {
        self.prompt.terms.model.as_deref().unwrap_or(of_all)
    }
}

/// A whole completion.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// What the model said, in the order in which it said it.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

/// Why there is no whole completion.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ModelError {
    /// Whether and how it may pass.
    pub class: FailureClass,
    /// What a person is told: what was wrong and what to do.
    pub message: String,
    /// How long the provider asks to wait before the next attempt.
    pub retry_after: Option<Duration>,
}

impl ModelError {
    /// A failure of this class.
    pub fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), retry_after: None }
    }

    /// Whether the same prompt may get an answer a little later.
    pub fn may_pass(&self) -> bool {
        matches!(self.class, FailureClass::Transient | FailureClass::Throttled)
    }
}

/// What a sink is given: a piece of an answer that is still streaming.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// More text.
    Text(String),
    /// More reasoning.
    Reasoning(String),
    /// What it has cost so far; used when the answer is cut.
    Usage(Usage),
}

/// Where a model puts what it streams.
pub struct Sink(Box<dyn FnMut(Piece) + Send>);

impl Sink {
    /// A sink that hands every piece to `take`.
    pub fn new(take: impl FnMut(Piece) + Send + 'static) -> Self {
        Self(Box::new(take))
    }

    /// Streams text. Empty text is left out.
    pub fn text(&mut self, text: String) {
        if !text.is_empty() {
            (self.0)(Piece::Text(text));
        }
    }

    /// Streams reasoning. Empty reasoning is left out.
    pub fn reasoning(&mut self, text: String) {
        if !text.is_empty() {
            (self.0)(Piece::Reasoning(text));
        }
    }

    /// Says what the answer has cost so far.
    pub fn usage(&mut self, usage: Usage) {
        (self.0)(Piece::Usage(usage));
    }
}

impl std::fmt::Debug for Sink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Sink")
    }
}

/// The bounds within which a model is asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// How many prompts are with the provider at a time; the rest wait in order.
    pub prompts_at_once: usize,
    /// How often a prompt is tried in all.
    pub attempts_max: u32,
    /// The pause before the second attempt, in milliseconds; it doubles with each further one.
    pub backoff_first_ms: u64,
    /// The longest such pause, in milliseconds.
    pub backoff_max_ms: u64,
    /// The longest pause that a provider may ask for, in milliseconds. A longer one is cut to this.
    pub retry_after_max_ms: u64,
    /// How long a connection may take to be made, in milliseconds.
    pub connect_timeout_ms: u64,
    /// How long a provider may say nothing, before the first chunk and between chunks, in milliseconds.
    pub chunk_timeout_ms: u64,
    /// How long one attempt may take altogether, in milliseconds. A stream that is only kept alive ends here.
    pub attempt_timeout_ms: u64,
    /// How long one answer may be on the wire, in bytes.
    pub answer_bytes_max: usize,
    /// Above how many tokens of a prompt and its answer the thread is told that its history should be summarized; never
    /// without it. A configuration says it as a share of the model's window.
    #[serde(skip)]
    pub compact_at_tokens: Option<u64>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            prompts_at_once: 16,
            attempts_max: 4,
            backoff_first_ms: 500,
            backoff_max_ms: 30_000,
            retry_after_max_ms: 120_000,
            connect_timeout_ms: 10_000,
            chunk_timeout_ms: 120_000,
            attempt_timeout_ms: 1_800_000,
            answer_bytes_max: 16 << 20,
            compact_at_tokens: None,
        }
    }
}
