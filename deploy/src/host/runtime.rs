//! A whole runtime in one process: gateway, shard, models, tools and timers.
//!
//! In: what the user wants (a directory, a model, tools). Out: a running [`Runtime`]. Always: it is ready only when the
//! journal is recovered and the tools were looked for; when the journal fails, the shard closes, recovers from disk and goes
//! on, and whoever waited is told; a broken invariant ends it.

use super::TOOLS_READY_MS;
use super::embedded::{self, Adapters, Shard, Stopped};
use super::memory::WARM_MAX_BYTES;
use crate::capability::CapabilityKey;
use crate::catalog::Catalog;
use crate::clock::Clock;
use crate::conversation::Conversation;
use crate::gateway::{self, Gateway, GatewayError, Shards, name};
use crate::journal::{FileDisk, Journal, JournalError, JournalHandle, MemoryDisk, Options};
use crate::model::{self, Model, Scripted};
use crate::port::{FromAdapter, ToAdapter};
use crate::tool::{self, LocalTool, Tools};
use crate::{timer, tool::Trouble};
use slackwater_core::port::{FromGateway, FromModel, ToGateway};
use slackwater_core::record::Bounds;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The pause before a journal that failed is opened again: the first, doubling up to the last.
const REOPEN_FIRST_MS: u64 = 100;
const REOPEN_LAST_MS: u64 = 10_000;

/// Why a runtime does not start, or has ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// The directory cannot be used.
    #[error("cannot use the data directory {}: {source}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The key of the callbacks cannot be used.
    #[error("cannot use the key of the callbacks: {0}")]
    Key(io::Error),
    /// The journal cannot be opened.
    #[error(transparent)]
    Journal(#[from] Arc<JournalError>),
    /// The gateway cannot be started.
    #[error(transparent)]
    Gateway(#[from] GatewayError),
    /// The tools cannot be started.
    #[error(transparent)]
    Tools(#[from] tool::Error),
    /// The system gives no thread.
    #[error("cannot start the shard's thread: {0}")]
    Thread(io::Error),
    /// A broken invariant has ended the shard.
    #[error("the shard has stopped because an invariant does not hold: {0}. Its records are safe; please report this")]
    Invariant(String),
}

/// What a runtime is made of; see [`crate::Slackwater`].
#[derive(Clone)]
pub struct Builder {
    directory: Option<PathBuf>,
    system: Arc<str>,
    bounds: Bounds,
    model: Arc<dyn Model>,
    limits: model::Limits,
    local_tools: Vec<LocalTool>,
    tools: tool::Config,
    approvals: Option<tool::Approvals>,
    gateway: gateway::Config,
    journal: Options,
    clock: Clock,
    warm_max_bytes: usize,
    shard: Option<RunShard>,
}

/// Runs a flow of the user's own.
type RunShard = Arc<dyn Fn(Adapters, Stopped) + Send + Sync>;

impl Default for Builder {
    /// In memory, with the scripted stand-in for a model and no tools, on a free port of the loopback interface.
    fn default() -> Self {
        let listen = ([127, 0, 0, 1], 0).into();
        Self {
            directory: None,
            system: "".into(),
            bounds: Bounds::DEFAULT,
            model: Arc::new(Scripted::default_script()),
            limits: model::Limits::default(),
            local_tools: Vec::new(),
            tools: tool::Config::default(),
            approvals: None,
            gateway: gateway::Config { listen, ..gateway::Config::default() },
            journal: Options::default(),
            clock: Clock::system(),
            warm_max_bytes: WARM_MAX_BYTES,
            shard: None,
        }
    }
}

impl Builder {
    /// Keeps everything in this directory; it is made if it is not there. Without one, all is gone when the process ends.
    pub fn directory(mut self, path: impl Into<PathBuf>) -> Self {
        self.directory = Some(path.into());
        self
    }

    /// What every agent is told first.
    pub fn system(mut self, text: impl Into<Arc<str>>) -> Self {
        self.system = text.into();
        self
    }

    /// The bounds of each thread.
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// The model that answers.
    pub fn model(mut self, model: impl Model) -> Self {
        self.model = Arc::new(model);
        self
    }

    /// The model that a configuration describes, and its limits.
    ///
    /// # Errors
    /// When it describes none.
    pub fn model_config(mut self, config: &model::Config) -> Result<Self, model::ConfigError> {
        self.model = config.build()?;
        self.limits = config.limits();
        Ok(self)
    }

    /// Above how many tokens of a prompt and its answer a thread's history is summarized; never without it. A model's
    /// configuration says it as a share of the window.
    pub fn compact_at_tokens(mut self, tokens: u64) -> Self {
        self.limits.compact_at_tokens = Some(tokens);
        self
    }

    /// One more tool, as a function of this process.
    pub fn tool(mut self, tool: LocalTool) -> Self {
        self.local_tools.push(tool);
        self
    }

    /// The tool servers.
    pub fn tool_config(mut self, config: tool::Config) -> Self {
        self.tools = config;
        self
    }

    /// Which calls wait for a person's approval, in place of what the tools' configuration says. Without a word: those of
    /// tools that say that they are destructive.
    pub fn approvals(mut self, approvals: tool::Approvals) -> Self {
        self.approvals = Some(approvals);
        self
    }

    /// Where and how the gateway listens.
    pub fn gateway_config(mut self, config: gateway::Config) -> Self {
        self.gateway = config;
        self
    }

    /// How the journal is kept.
    pub fn journal_options(mut self, options: Options) -> Self {
        self.journal = options;
        self
    }

    /// How many bytes of threads that rest may stay in memory for a while; 0 for none.
    pub fn warm_max_bytes(mut self, bytes: usize) -> Self {
        self.warm_max_bytes = bytes;
        self
    }

    /// The clock that timers and arrivals go by; the system's, unless told otherwise.
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The flow of a crate with operators of its own: the `run` that [`crate::operated_shard`] makes, with what becomes of
    /// its notes.
    pub fn shard(mut self, run: impl Fn(Adapters, Stopped) + Send + Sync + 'static) -> Self {
        self.shard = Some(Arc::new(run));
        self
    }

    /// Starts it, and returns when it is ready.
    ///
    /// # Errors
    /// When the directory, the address or a tool cannot be used.
    pub async fn start(self) -> Result<Runtime, RuntimeError> {
        if let Some(path) = &self.directory {
            let failed = |source| RuntimeError::Directory { path: path.clone(), source };
            std::fs::create_dir_all(path).map_err(failed)?;
        }
        // The lock comes first: of two processes that start at once, one goes on.
        let journal = self.open_journal().await?;
        let key = self.directory.as_deref().map_or_else(CapabilityKey::random, CapabilityKey::open);
        self.start_with(journal, key.map_err(RuntimeError::Key)?).await
    }

    async fn start_with(self, journal: Journal, key: CapabilityKey) -> Result<Runtime, RuntimeError> {
        let (from, to, gateway) = gateway::start(self.gateway.clone(), key.clone())?;
        let gateway = Arc::new(gateway);
        let mut running = self.run(journal, key.clone(), &gateway, (from, to)).await?;
        let troubles = std::mem::take(&mut running.troubles);
        gateway.set_ready(true);
        let stop = CancellationToken::new();
        let (end, ended) = watch::channel(None);
        let supervisor = Supervisor { builder: self, key, gateway: gateway.clone(), stop: stop.clone() };
        let supervisor = tokio::spawn(async move {
            let outcome = supervisor.supervise(running).await;
            // Nobody is left to be told.
            let _ = end.send(Some(outcome));
        });
        Ok(Runtime { gateway, troubles, stop, ended, supervisor })
    }

    /// Starts one life of the shard.
    async fn run(
        &self,
        journal: Journal,
        key: CapabilityKey,
        gateway: &Gateway,
        ends: (FromAdapter<FromGateway>, ToAdapter<ToGateway>),
    ) -> Result<Running, RuntimeError> {
        let catalog = Catalog::default();
        let callback_base = gateway.base_url().to_owned();
        let mut tools = self.tools.clone();
        tools.approvals = self.approvals.clone().unwrap_or(tools.approvals);
        let (from_tool, to_tool, mut tools) =
            tool::start(tools, self.local_tools.clone(), catalog.clone(), key, callback_base)?;
        let troubles = tools.ready(Duration::from_millis(TOOLS_READY_MS)).await;
        let (from_journal, to_journal, journal) = journal.start().map_err(Arc::new)?;
        let (from_model, to_model) =
            model::start(self.model.clone(), self.system.clone(), catalog, self.limits.clone(), self.bounds);
        let adapters = Adapters {
            gateway: (self.clock.stamp(ends.0, FromGateway::arrival), ends.1),
            journal: (from_journal, to_journal),
            model: (self.clock.stamp(from_model, FromModel::arrival), to_model),
            tool: (self.clock.stamp(from_tool, |arrival| Some(arrival)), to_tool),
            timer: timer::start(&self.clock),
            warm_max_bytes: self.warm_max_bytes,
        };
        let shard = match self.shard.clone() {
            None => embedded::start(adapters),
            Some(run) => embedded::start_with(adapters, move |adapters, stopped| run(adapters, stopped)),
        };
        let shard = shard.map_err(RuntimeError::Thread)?;
        Ok(Running { shard, journal, tools, troubles })
    }

    async fn open_journal(&self) -> Result<Journal, RuntimeError> {
        let (directory, options) = (self.directory.clone(), self.journal.clone());
        let opened = tokio::task::spawn_blocking(move || match directory {
            Some(path) => Journal::open(FileDisk::open(path)?, options),
            None => Journal::open(MemoryDisk::default(), options),
        });
        Ok(opened.await.expect("invariant: opening a journal does not panic").map_err(Arc::new)?)
    }
}

/// One life of the shard, from an opened journal to its failure or the end.
struct Running {
    shard: Shard,
    journal: JournalHandle,
    tools: Tools,
    troubles: Vec<Trouble>,
}

struct Supervisor {
    builder: Builder,
    key: CapabilityKey,
    gateway: Arc<Gateway>,
    stop: CancellationToken,
}

impl Supervisor {
    /// Runs lives of the shard one after another until the end.
    async fn supervise(self, mut running: Running) -> Result<(), Arc<RuntimeError>> {
        loop {
            let Running { mut shard, journal, tools, .. } = running;
            let failure = tokio::select! {
                () = self.stop.cancelled() => {
                    self.gateway.shutdown().await;
                    let outcome = shard.stop().await.map_err(RuntimeError::Invariant);
                    tools.stop().await;
                    // The last words of the journal are hints; an error of the disk was told when it happened.
                    let _ = journal.close().await;
                    return outcome.map_err(Arc::new);
                }
                ended = shard.ended() => {
                    let words = ended.err().unwrap_or_else(|| "the shard ended by itself".to_owned());
                    tracing::error!(%words, "a broken invariant has stopped the shard");
                    self.gateway.fail("an invariant of the shard does not hold");
                    self.gateway.shutdown().await;
                    tools.stop().await;
                    let _ = journal.close().await;
                    return Err(Arc::new(RuntimeError::Invariant(words)));
                }
                failure = journal.failed() => failure,
            };
            tracing::error!(%failure, "the journal has failed; the shard closes and recovers from disk");
            self.gateway.fail(&failure.to_string());
            // A flow that panicked while its journal failed is ended all the same, and the next life begins from disk.
            let _ = shard.stop().await;
            tools.stop().await;
            let _ = journal.close().await;
            running = match self.begin_again(&failure.to_string()).await {
                Some(next) => next,
                None => {
                    self.gateway.shutdown().await;
                    return Ok(());
                }
            };
            self.gateway.set_ready(true);
        }
    }

    /// Opens the journal again, however often that takes; nothing when the end came first.
    async fn begin_again(&self, reason: &str) -> Option<Running> {
        let mut pause_ms = REOPEN_FIRST_MS;
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                () = tokio::time::sleep(Duration::from_millis(pause_ms)) => {}
            }
            pause_ms = (pause_ms * 2).min(REOPEN_LAST_MS);
            let ends = self.gateway.shards().reconnect(reason);
            let life = async {
                let journal = self.builder.open_journal().await?;
                self.builder.run(journal, self.key.clone(), &self.gateway, ends).await
            };
            match life.await {
                Ok(running) => return Some(running),
                Err(error) => {
                    tracing::error!(%error, "the shard cannot be started again yet");
                    self.gateway.fail(&error.to_string());
                }
            }
        }
    }
}

/// A running runtime. Dropping it leaves it running until the process ends; [`Runtime::stop`] ends it cleanly.
pub struct Runtime {
    gateway: Arc<Gateway>,
    troubles: Vec<Trouble>,
    stop: CancellationToken,
    ended: watch::Receiver<Option<Result<(), Arc<RuntimeError>>>>,
    supervisor: JoinHandle<()>,
}

impl Runtime {
    /// A conversation with the thread of this name or id; made by its first message.
    ///
    /// # Errors
    /// When the text is neither a name nor an id.
    pub fn conversation(&self, thread: &str) -> Result<Conversation, name::BadAddress> {
        Ok(Conversation::new(self.shards(), name::address(thread)?))
    }

    /// The handle to the threads.
    pub fn shards(&self) -> Shards {
        self.gateway.shards()
    }

    /// Where the gateway listens.
    pub fn address(&self) -> std::net::SocketAddr {
        self.gateway.address()
    }

    /// Tool servers that could not be used when it started.
    pub fn troubles(&self) -> &[Trouble] {
        &self.troubles
    }

    /// Waits until it has ended: because it was stopped, or because an invariant does not hold.
    ///
    /// # Errors
    /// The invariant.
    pub async fn ended(&self) -> Result<(), Arc<RuntimeError>> {
        let mut ended = self.ended.clone();
        let outcome = ended.wait_for(Option::is_some).await.map(|outcome| outcome.clone());
        outcome.ok().flatten().unwrap_or(Ok(()))
    }

    /// Ends it cleanly, within about a second.
    ///
    /// # Errors
    /// The invariant that ended it before.
    pub async fn stop(self) -> Result<(), Arc<RuntimeError>> {
        self.stop.cancel();
        let outcome = self.ended().await;
        // It has told its outcome as its last act.
        let _ = self.supervisor.await;
        outcome
    }
}
