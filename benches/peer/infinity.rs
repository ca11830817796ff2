//! The workload through `infinity-agent-core`, by its public API: a local system with its in-memory stores.
//!
//! In: how many agents, how many turns, the corpus. Out: how long it took. Always: the same texts in the same pieces as
//! Slackwater is given; the built-in tools are there as they are by default, or left out; no compaction; each tool sends its
//! result through the system's own queue.

use crate::corpus::Corpus;
use crate::drive::{self, Done, Workload};
use async_trait::async_trait;
use infinity_agent_core::message::{InputMessage, InputMessageContent};
use infinity_agent_core::stores::{InMemoryConversationStore, InMemoryStateStore};
use infinity_agent_core::system::local::ChannelSender;
use infinity_agent_core::system::{AgentEvent, AgentSystemBuilder, ModelSource, ResolvedModel, ThreadObserver};
use infinity_agent_core::tools::{Tool, ToolContext};
use infinity_agent_core::traits::InputSender as _;
use infinity_provider_protocol::{
    CompletionError, CompletionRequest, FinalResponse, Message, ModelEntry, ModelProvider, ModelStream, StreamChunk,
    ToolCall, ToolResult, ToolResultContent, Usage, UserContent,
};
use rap_protocol::{ProviderCallId, ThreadId, ToolCallId};
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// What model, tool and user know of the agents.
struct Script {
    corpus: Corpus,
    /// The turn of each agent.
    turns: Vec<AtomicU32>,
    raw_bytes: AtomicU64,
}

impl Script {
    fn turn(&self, agent: u32) -> u32 {
        self.turns[agent as usize].load(Ordering::Relaxed)
    }

    fn text(&self, agent: u32, turn: u32, which: u64, length: usize) -> &str {
        self.raw_bytes.fetch_add(length as u64, Ordering::Relaxed);
        drive::text(&self.corpus, agent, turn, which, length)
    }
}

/// The model. An agent's prompts come under the agent's own name as the model's.
struct Model(Arc<Script>);

#[async_trait]
impl ModelProvider for Model {
    async fn list_models(&self) -> Result<Vec<ModelEntry>, BoxError> {
        Ok(Vec::new())
    }

    async fn invoke_model(&self, model_id: &str, request: CompletionRequest) -> Result<ModelStream, CompletionError> {
        let script = &self.0;
        let agent = agent_of(model_id);
        let turn = script.turn(agent);
        // A user's message gets text and a call, a result gets text.
        let calls = match request.chat_history.last() {
            Some(Message::User { content }) => matches!(content.last(), Some(UserContent::Text(_))),
            other => unreachable!("a prompt has something to answer: {other:?}"),
        };
        let text = script.text(agent, turn, 1 + u64::from(calls), drive::COMPLETION_LENGTH);
        let mut chunks = Vec::with_capacity(drive::CHUNKS + 2);
        chunks.extend(drive::pieces(text).map(|piece| Ok(StreamChunk::Text(piece.to_owned()))));
        if calls {
            let arguments = drive::arguments(agent, turn);
            script.raw_bytes.fetch_add(arguments.len() as u64, Ordering::Relaxed);
            let arguments = serde_json::from_str(&arguments)?;
            chunks.push(Ok(StreamChunk::ToolCall(ToolCall::new(drive::provider_id(agent, turn), "build", arguments))));
        }
        let usage = Usage { input_tokens: 250, output_tokens: 250, total_tokens: 500, cached_input_tokens: 200 };
        chunks.push(Ok(StreamChunk::Final(FinalResponse { usage: Some(usage) })));
        Ok(Box::pin(futures::stream::iter(chunks)))
    }
}

/// Every agent has the one model.
struct Models(Arc<Model>);

#[async_trait(?Send)]
impl ModelSource for Models {
    async fn resolve(&self, thread: &ThreadId<str>) -> Result<ResolvedModel, BoxError> {
        let provider: Arc<dyn ModelProvider> = self.0.clone();
        let model_id = thread.as_str().to_owned();
        Ok(ResolvedModel { provider, model_id, context_window: 0, supports_image_input: false })
    }
}

/// The tool: takes the call, and sends its result into the queue.
struct Build(Arc<Script>);

#[async_trait]
impl Tool<ChannelSender> for Build {
    fn name(&self) -> &str {
        "build"
    }

    fn description(&self) -> &str {
        "Builds a target."
    }

    fn parameters(&self) -> Value {
        json!({"type": "object", "properties": {"target": {"type": "string"}, "turn": {"type": "integer"}}})
    }

    async fn execute(
        &self,
        _: Value,
        id: ToolCallId,
        call_id: Option<ProviderCallId>,
        context: &ToolContext<ChannelSender>,
    ) -> Result<(), BoxError> {
        let agent = agent_of(context.group_id.as_str());
        let text = self.0.text(agent, self.0.turn(agent), 3, drive::RESULT_LENGTH);
        let result = ToolResult {
            id: id.as_str().to_owned(),
            call_id: call_id.map(|id| id.as_str().to_owned()),
            content: vec![ToolResultContent::text(text)],
        };
        let message = InputMessage {
            content: InputMessageContent::User(UserContent::ToolResult(result)),
            group_id: context.group_id.clone(),
            metadata: None,
            synthetic: None,
            display_as: None,
            subscription: false,
        };
        Ok(context.message_sender.send_to_input_queue(message, id.as_str()).await?)
    }
}

/// Who watches an agent: counts its chunks, and sees the end of its turn.
struct Watcher {
    agent: u32,
    called: Cell<bool>,
    counts: Rc<Counts>,
    ended: UnboundedSender<u32>,
}

#[derive(Default)]
struct Counts {
    completions: Cell<u64>,
    chunks: Cell<u64>,
    /// What went wrong, in the system's own words.
    troubles: RefCell<Vec<String>>,
}

#[async_trait(?Send)]
impl ThreadObserver for Watcher {
    type SubscribeRequest = ();

    fn on_event(&self, _: &ThreadId<str>, event: &AgentEvent) {
        match event {
            AgentEvent::CompletionStarted => self.called.set(false),
            AgentEvent::TextChunk { .. } => self.counts.chunks.set(self.counts.chunks.get() + 1),
            AgentEvent::ToolCall { .. } => self.called.set(true),
            AgentEvent::CompletionFinished { .. } => {
                self.counts.completions.set(self.counts.completions.get() + 1);
                if !self.called.get() {
                    // The bench is over when nobody listens any more.
                    let _ = self.ended.send(self.agent);
                }
            }
            AgentEvent::Info { text } => self.counts.troubles.borrow_mut().push(text.clone()),
            _ => {}
        }
    }
}

/// Runs a workload until every agent has had its turns. To be called within a `LocalSet`.
pub async fn run(workload: Workload, corpus: Corpus, built_in_tools: bool) -> Done {
    let Workload { agents, turns, under_way_max, .. } = workload;
    let script = Arc::new(Script {
        corpus,
        turns: (0..agents).map(|_| AtomicU32::new(0)).collect(),
        raw_bytes: AtomicU64::new(0),
    });
    let counts = Rc::new(Counts::default());
    let (ended, mut ends) = unbounded_channel();
    let watchers = counts.clone();
    let stores = (InMemoryConversationStore::new(), InMemoryStateStore::new());
    let builder = AgentSystemBuilder::new_local(stores.0, stores.1, Models(Arc::new(Model(script.clone()))));
    let builder = if built_in_tools { builder } else { builder.without_builtin_tools() };
    let system = builder.tool(Box::new(Build(script.clone()))).start_with_observer(move |thread| Watcher {
        agent: agent_of(thread.as_str()),
        called: Cell::new(false),
        counts: watchers.clone(),
        ended: ended.clone(),
    });

    let mut ready: VecDeque<u32> = (0..agents).collect();
    let (mut under_way, mut agents_left) = (0, agents);
    let begun = Instant::now();
    while agents_left > 0 {
        while under_way < under_way_max
            && let Some(agent) = ready.pop_front()
        {
            under_way += 1;
            let turn = script.turn(agent);
            let text = script.text(agent, turn, 0, drive::MESSAGE_LENGTH);
            let message = InputMessage::user_text(ThreadId::from(agent.to_string()), text);
            system.send(message, &drive::input_id(agent, turn)).await;
        }
        let agent = ends.recv().await.expect("the system runs");
        under_way -= 1;
        if script.turns[agent as usize].fetch_add(1, Ordering::Relaxed) + 1 < turns {
            ready.push_back(agent);
        } else {
            agents_left -= 1;
        }
    }
    let elapsed = begun.elapsed();
    system.shutdown().await;
    let completions = 2 * u64::from(agents) * u64::from(turns);
    assert_eq!(counts.troubles.take(), Vec::<String>::new(), "nothing went wrong");
    assert_eq!(counts.completions.get(), completions, "completions that were finished");
    assert_eq!(counts.chunks.get(), completions * drive::CHUNKS as u64, "chunks that were seen");
    Done { elapsed, raw_bytes: script.raw_bytes.load(Ordering::Relaxed) }
}

/// A thread's name is the agent's number.
fn agent_of(name: &str) -> u32 {
    name.parse().expect("the names are ours")
}
