//! A keeper: it keeps what is known of a server true.
//!
//! In: where a server comes from, and doubts about it. Out: its state, and its tools for the catalog. Always: a server that
//! cannot be reached is looked for until it is found; one that a call did not get through to is asked again what it offers; a
//! command that ends is started again; the same trouble is told once.

use super::command::Process;
use super::config::{Command, Reach, Source};
use super::discovery::{Toolset, discover};
use super::rap::Shared;
use super::{Error, pause};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// The pauses between attempts to find a server or to start it, in milliseconds.
const FIND_FIRST_MS: u64 = 250;
const FIND_MAX_MS: u64 = 30_000;
/// A command that ran this long had started well: the pause before its next start is the first one again.
const RAN_WELL_MS: u64 = 60_000;

/// What is known of a server.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    /// The last toolset found. Its tools stay in the catalog while the server is away.
    pub(super) toolset: Option<Arc<Toolset>>,
    /// Why the server cannot be used at present.
    trouble: Option<Arc<Error>>,
}

impl State {
    /// Whether it is known what the server offers, if anything.
    pub(super) fn is_settled(&self) -> bool {
        self.toolset.is_some() || matches!(self.trouble.as_deref(), Some(Error::Refused { .. }))
    }

    /// Where a call can be tried. One that did not answer a moment ago may now; but where a command was before it was started
    /// again, somebody else may be.
    pub(super) fn endpoint(&self) -> Result<Arc<Toolset>, String> {
        match (&self.toolset, self.trouble.as_deref()) {
            (Some(toolset), None) => Ok(toolset.clone()),
            (Some(toolset), Some(Error::Unreachable { url, .. })) if url.starts_with(&toolset.base) => {
                Ok(toolset.clone())
            }
            _ => Err(format!("cannot be used at present: {}", self.trouble().unwrap_or_default())),
        }
    }

    /// Why the server cannot be used at present, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        match (&self.trouble, &self.toolset) {
            (Some(trouble), _) => Some(trouble.to_string()),
            (None, None) => Some("it has not answered yet".to_owned()),
            (None, Some(_)) => None,
        }
    }
}

/// Keeps what is known of a server true, for as long as it is polled. `doubt` is told when a call did not get through.
pub(super) async fn keep(source: Source, shared: Arc<Shared>, publish: watch::Sender<State>, doubt: Arc<Notify>) {
    let timeout_ms = source.timeout_ms.or(shared.config.timeout_ms);
    let board = Board { kind: "rap", label: source.label, shared, publish };
    let keeper = Keeper { board, timeout_ms, doubt };
    match source.reach {
        Reach::Url(base) => keeper.watch(&base).await,
        Reach::Command(command) => keeper.supervise(command).await,
    }
}

struct Keeper {
    board: Board,
    /// How long calls may take, in milliseconds, if their tools do not say.
    timeout_ms: Option<u64>,
    doubt: Arc<Notify>,
}

/// Where it is said what is known of a server.
pub(super) struct Board {
    /// The kind of server: no other kind of source has a name with it in the catalog.
    pub(super) kind: &'static str,
    pub(super) label: String,
    pub(super) shared: Arc<Shared>,
    pub(super) publish: watch::Sender<State>,
}

impl Keeper {
    /// Finds the toolset, and finds it again whenever there is doubt.
    async fn watch(&self, base: &str) -> ! {
        loop {
            self.find(base).await;
            // Many calls that fail together are one doubt.
            tokio::time::sleep(Duration::from_millis(FIND_FIRST_MS)).await;
            self.doubt.notified().await;
        }
    }

    /// Looks for the toolset until there is one that can be used.
    async fn find(&self, base: &str) {
        let mut failures = 0;
        loop {
            match discover(&self.board.shared.client, base, &self.board.shared.schemas, self.timeout_ms).await {
                Ok(toolset) => return self.board.found(toolset),
                Err(error) => self.board.in_trouble(error),
            }
            failures += 1;
            tokio::time::sleep(pause::after(failures, FIND_FIRST_MS, FIND_MAX_MS)).await;
        }
    }

    /// Runs a command, finds its toolset, and starts it again whenever it ends.
    async fn supervise(&self, command: Command) {
        let limit = Duration::from_millis(self.board.shared.config.command_start_limit_ms);
        let mut failures = 0;
        loop {
            let started = tokio::time::Instant::now();
            let error = match Process::start(&self.board.label, &command, limit).await {
                Err(error) => error,
                Ok(mut process) => {
                    let base = process.base();
                    tokio::select! {
                        never = self.watch(&base) => never,
                        error = process.ended() => error,
                    }
                }
            };
            self.board.in_trouble(error);
            failures = if started.elapsed().as_millis() as u64 >= RAN_WELL_MS { 1 } else { failures + 1 };
            tokio::time::sleep(pause::after(failures, FIND_FIRST_MS, FIND_MAX_MS)).await;
        }
    }
}

impl Board {
    /// It offers this.
    pub(super) fn found(&self, toolset: Toolset) {
        let before = self.publish.borrow().clone();
        if before.trouble.is_none() && before.toolset.as_deref() == Some(&toolset) {
            return;
        }
        tracing::info!(server = self.label, toolset = toolset.name, tools = toolset.tools.len(), "tool server found");
        if let (Ok(base), Ok(endpoint)) = (url::Url::parse(&toolset.base), url::Url::parse(&toolset.endpoint))
            && base.origin() != endpoint.origin()
        {
            tracing::warn!(server = self.label, endpoint = toolset.endpoint, "the toolset sends its calls elsewhere");
        }
        for name in self.shared.catalog.offer(&self.source_name(), toolset.tools.clone()) {
            tracing::warn!(
                server = self.label,
                tool = name,
                "another source offers a tool of this name; neither is used"
            );
        }
        self.publish.send_replace(State { toolset: Some(Arc::new(toolset)), trouble: None });
        self.shared.changed.notify_one();
    }

    /// It cannot be used at present.
    pub(super) fn in_trouble(&self, error: Error) {
        let before = self.publish.borrow().clone();
        // The same trouble is told once, not at every attempt.
        if before.trouble().as_deref() != Some(&error.to_string()) {
            tracing::warn!(server = self.label, "{error}");
        }
        let refused = matches!(error, Error::Refused { .. });
        if refused && before.toolset.is_some() {
            self.shared.catalog.offer(&self.source_name(), Vec::new());
        }
        let toolset = before.toolset.filter(|_| !refused);
        self.publish.send_replace(State { toolset, trouble: Some(Arc::new(error)) });
        self.shared.changed.notify_one();
    }

    /// The name of the server's source in the catalog.
    fn source_name(&self) -> String {
        format!("{}:{}", self.kind, self.label)
    }
}
