//! The scripted model: a stand-in that says what it was told to say.
//!
//! In: a script in TOML (`deploy/docs/scripted-model.md` shows all of it), or a function of the request. Out: replies,
//! streamed word by word. Always: deterministic; nothing leaves the process; the script that is used when no model is
//! configured says that it is no model.
//!
//! ```toml
//! [[rule]]                                   # the first rule that fits answers
//! when = { message_contains = "build" }
//! say = "I start the build."
//! call = [{ tool = "start_build", arguments = { target = "{message}" } }]
//!
//! [[rule]]
//! when = { result_of = "start_build" }
//! say = "The build says: {result}"
//!
//! [[rule]]                                   # no `when`: fits always
//! say = "You said: {message}"
//! ```

use super::script::Script;
use super::{Answer, Model, ModelError, Request, Sink};
use futures::future::BoxFuture;
use slackwater_core::record::{Block, End, FailureClass, Usage};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The model that plays a script.
pub struct Scripted(Box<dyn Fn(&Request) -> Reply + Send + Sync>);

/// What is said to one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    pub(crate) delay_ms: u64,
    pub(crate) chunk_delay_ms: u64,
    pub(crate) reasoning: String,
    pub(crate) chunks: Vec<String>,
    pub(crate) calls: Vec<(String, String)>,
    pub(crate) usage: Option<Usage>,
    pub(crate) failure: Option<Broken>,
}

/// Where and how a reply breaks off.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Broken {
    pub(crate) error: ModelError,
    /// The failure ends with this attempt.
    pub(crate) attempts: u32,
    /// How many chunks are streamed before.
    pub(super) after_chunks: usize,
}

/// A script that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScriptError {
    /// The file cannot be read.
    #[error("the script {} cannot be read: {error}", path.display())]
    Unreadable {
        /// Which file.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// It does not say what a script must say.
    #[error("{name}, line {line}: {problem}")]
    Wrong {
        /// The script's file.
        name: String,
        /// The line, from 1.
        line: usize,
        /// What is wrong and what was expected.
        problem: String,
    },
}

impl Scripted {
    /// Plays the script in this file.
    ///
    /// # Errors
    /// When it cannot be read or is no script.
    pub fn from_file(path: &Path) -> Result<Self, ScriptError> {
        let text =
            std::fs::read_to_string(path).map_err(|error| ScriptError::Unreadable { path: path.to_owned(), error })?;
        Ok(Self::play(Script::parse(&path.display().to_string(), &text)?))
    }

    /// Plays the script in this text.
    ///
    /// # Errors
    /// When it is no script.
    pub fn from_toml(text: &str) -> Result<Self, ScriptError> {
        Ok(Self::play(Script::parse("script", text)?))
    }

    /// Answers each prompt with what the function says.
    ///
    /// ```
    /// use slackwater::model::{Reply, Scripted};
    ///
    /// let model = Scripted::from_fn(|request| Reply::text(format!("item {}", request.prompt.history.len())));
    /// ```
    pub fn from_fn(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self(Box::new(reply))
    }

    /// Plays the script of a runtime that has no model configured: it says so, and repeats what it is told.
    pub fn default_script() -> Self {
        Self::from_toml(include_str!("default_script.toml")).expect("invariant: the built-in script is a script")
    }

    /// What it says to a request, as a whole.
    pub(crate) fn reply(&self, request: &Request) -> Reply {
        (self.0)(request)
    }

    fn play(script: Script) -> Self {
        Self::from_fn(move |request| script.reply(request))
    }
}

impl std::fmt::Debug for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl Reply {
    /// Says nothing; add to it.
    pub fn silence() -> Self {
        Self {
            delay_ms: 0,
            chunk_delay_ms: 0,
            reasoning: String::new(),
            chunks: Vec::new(),
            calls: Vec::new(),
            usage: None,
            failure: None,
        }
    }

    /// Says this text, a word a chunk.
    pub fn text(text: impl AsRef<str>) -> Self {
        Self::chunks(text.as_ref().split_inclusive(char::is_whitespace))
    }

    /// Says this text, in these chunks.
    pub fn chunks(chunks: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { chunks: chunks.into_iter().map(Into::into).collect(), ..Self::silence() }
    }

    /// Fails.
    pub fn failure(class: FailureClass, message: impl Into<String>) -> Self {
        Self::silence().fails(class, message, u32::MAX, 0)
    }

    /// Breaks off with a failure after so many chunks, in the first so many attempts; from then on it is said in full.
    #[must_use]
    pub fn fails(
        mut self,
        class: FailureClass,
        message: impl Into<String>,
        attempts: u32,
        after_chunks: usize,
    ) -> Self {
        self.failure = Some(Broken { error: ModelError::new(class, message), attempts, after_chunks });
        self
    }

    /// Thinks this first.
    #[must_use]
    pub fn reasoning(mut self, text: impl Into<String>) -> Self {
        self.reasoning = text.into();
        self
    }

    /// Calls this tool at the end, after the calls added before.
    #[must_use]
    pub fn call(mut self, tool: impl Into<String>, arguments: &serde_json::Value) -> Self {
        self.calls.push((tool.into(), arguments.to_string()));
        self
    }

    /// Waits so long before it says anything, in milliseconds.
    #[must_use]
    pub fn delay_ms(mut self, delay_ms: u64) -> Self {
        self.delay_ms = delay_ms;
        self
    }

    /// Waits so long before each chunk, in milliseconds.
    #[must_use]
    pub fn chunk_delay_ms(mut self, chunk_delay_ms: u64) -> Self {
        self.chunk_delay_ms = chunk_delay_ms;
        self
    }

    /// Claims to have cost this. Without it a chunk counts as a token of output, and the prompt as nothing.
    #[must_use]
    pub fn usage(mut self, usage: Usage) -> Self {
        self.usage = Some(usage);
        self
    }

    async fn stream(self, request: &Request, sink: &mut Sink) -> Result<Answer, ModelError> {
        let pause = async |delay_ms| {
            if delay_ms > 0 {
                tokio::time::sleep(Duration::from_millis(delay_ms)).await;
            }
        };
        pause(self.delay_ms).await;
        let broken = self.failure.filter(|broken| request.attempt <= broken.attempts);
        let mut blocks = Vec::with_capacity(2 + self.calls.len());
        let usage = self.usage.unwrap_or(Usage { output_tokens: self.chunks.len() as u64, ..Usage::default() });
        if !self.reasoning.is_empty() {
            sink.reasoning(self.reasoning.clone());
            blocks.push(Block::Reasoning { text: self.reasoning, sealed: None });
        }
        let mut text = String::with_capacity(self.chunks.iter().map(String::len).sum());
        for (position, chunk) in self.chunks.into_iter().enumerate() {
            if broken.as_ref().is_some_and(|broken| position == broken.after_chunks) {
                break;
            }
            pause(self.chunk_delay_ms).await;
            text.push_str(&chunk);
            sink.text(chunk);
        }
        if let Some(broken) = broken {
            return Err(broken.error);
        }
        if !text.is_empty() {
            blocks.push(Block::Text(text));
        }
        blocks.extend(self.calls.into_iter().enumerate().map(|(index, (name, arguments))| Block::Call {
            provider_id: format!("scripted_{}_{index}", request.prompt.seen),
            name,
            arguments,
        }));
        Ok(Answer { blocks, end: End::Finished, usage, model: "scripted".to_owned() })
    }
}

impl Model for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move { self.reply(request).stream(request, sink).await })
    }
}
