//! The drive: one shard of the embedded host, with agents that talk, call a tool and talk again.
//!
//! In: how many agents and turns, a corpus, a disk. Out: how long it took, and what was written. Always: everything goes
//! through the ports that the real adapters use, chunks included; a reply that is not expected ends the benchmark.
//!
//! One thread plays gateway, model and tool, and answers as soon as it is asked. The timers are the real ones.

use crate::corpus::{Choices, Corpus};
use slackwater::clock::Clock;
use slackwater::host::embedded::{self, Adapters, Shard};
use slackwater::host::memory::WARM_MAX_BYTES;
use slackwater::journal::{Counters, Disk, Journal, JournalHandle, Options};
use slackwater::port::{self, Inside};
use slackwater::timer;
use slackwater_core::effect::{Dispatch, Outcome, Output, Prompt, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, ThreadId, Ticket};
use slackwater_core::port::{Chunk, FromGateway, FromModel, Part, ToGateway, ToModel, ToTool};
use slackwater_core::record::*;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The lengths of a turn's texts, in bytes, and in how many pieces a completion comes.
pub const MESSAGE_LENGTH: usize = 180;
pub const COMPLETION_LENGTH: usize = 1_100;
pub const CHUNKS: usize = 12;
pub const RESULT_LENGTH: usize = 340;

/// The tool that every turn calls, and how long an agent sleeps that does.
const BUILD: &str = "build";
const TEN_YEARS: &str = r#"{"seconds":315360000}"#;

/// How many items are taken from a port at a time.
const TAKE_MAX: usize = 256;

/// What is to be done.
#[derive(Clone, Copy, Debug)]
pub struct Workload {
    pub agents: u32,
    pub turns: u32,
    /// How many agents have a turn under way at a time.
    pub under_way_max: usize,
    /// Whether each agent sleeps for ten years in the end, so that it has a timer.
    pub sleep: bool,
}

/// What was done.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// From the first message sent to the last turn shown.
    pub elapsed: Duration,
    /// The text of all messages, completions, arguments and results.
    pub raw_bytes: u64,
}

/// A running shard, and the ends of those whom it talks to.
pub struct Drive {
    shard: Shard,
    journal: JournalHandle,
    pub gateway: Inside<FromGateway, ToGateway>,
    pub model: Inside<FromModel, ToModel>,
    tool: Inside<Arrival, ToTool>,
}

impl Drive {
    /// Opens a journal and starts a shard on it.
    pub fn start(disk: impl Disk + 'static) -> anyhow::Result<Self> {
        let (from_journal, to_journal, journal) = Journal::open(disk, Options::default())?.start()?;
        let (from_gateway, to_gateway, gateway) = port::ends();
        let (from_model, to_model, model) = port::ends();
        let (from_tool, to_tool, tool) = port::ends();
        let shard = embedded::start(Adapters {
            gateway: (from_gateway, to_gateway),
            journal: (from_journal, to_journal),
            model: (from_model, to_model),
            tool: (from_tool, to_tool),
            timer: timer::start(&Clock::system()),
            warm_max_bytes: WARM_MAX_BYTES,
        })?;
        Ok(Self { shard, journal, gateway, model, tool })
    }

    /// What the journal holds and has done.
    pub fn counters(&self) -> Counters {
        self.journal.counters()
    }

    /// Has the journal do now what it does in time with threads that rest: pack them, and write the index down.
    pub async fn tidy(&self) {
        self.journal.pack().await;
        self.journal.checkpoint().await;
    }

    /// Runs a workload until every agent has had its turns and left memory.
    pub async fn run(&mut self, workload: Workload, corpus: &Corpus) -> Done {
        let Self { gateway, model, tool, .. } = self;
        let mut play = Play::new(workload, corpus);
        let (mut told, mut prompts, mut calls) = (Vec::new(), Vec::new(), Vec::new());
        let begun = Instant::now();
        play.fill(gateway);
        let mut ended = begun;
        while play.agents_left > 0 || play.awake > 0 {
            tokio::select! {
                _ = model.receive.recv_many(&mut prompts, TAKE_MAX) => for asked in prompts.drain(..) {
                    match asked {
                        ToModel::Prompt(prompt) => play.complete(&prompt, model),
                        ToModel::Cut { .. } | ToModel::Refuse(..) => unreachable!("nobody interrupts"),
                    }
                },
                _ = tool.receive.recv_many(&mut calls, TAKE_MAX) => for asked in calls.drain(..) {
                    match asked {
                        ToTool::Dispatch(dispatch) => play.work(&dispatch, tool, gateway),
                        ToTool::Cancel(_)
                        | ToTool::Respond(_)
                        | ToTool::Close(_)
                        | ToTool::Check(_)
                        | ToTool::Refuse(..) => {
                            unreachable!("nobody interrupts, asks or closes")
                        }
                    }
                },
                _ = gateway.receive.recv_many(&mut told, TAKE_MAX) => {
                    told.drain(..).for_each(|told| play.told(told));
                    play.fill(gateway);
                    if play.agents_left == 0 && ended == begun {
                        ended = Instant::now();
                    }
                },
            }
        }
        play.check();
        Done { elapsed: ended - begun, raw_bytes: play.raw_bytes }
    }

    /// Sends one message to an agent, and returns how long it took until the prompt that it causes was there. The prompt
    /// is answered, and the answer waited for.
    pub async fn turn(&mut self, agent: u32, turn: u32, corpus: &Corpus) -> Duration {
        let thread = thread_of(agent);
        let begun = Instant::now();
        submit(thread, message(agent, turn, text(corpus, agent, turn, 0, MESSAGE_LENGTH)), 0, &self.gateway);
        let prompt = match self.model.receive.recv().await {
            Some(ToModel::Prompt(prompt)) if prompt.thread == thread => prompt,
            other => unreachable!("only threads with something in flight are awakened, and none has: {other:?}"),
        };
        let took = begun.elapsed();
        answer(&prompt, text(corpus, agent, turn, 2, COMPLETION_LENGTH), None, &self.model);
        while !matches!(self.gateway.receive.recv().await.map(turn_of), Some(Some(_))) {}
        took
    }

    /// Stops the shard, and closes the journal with all that it still has to write.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.shard.stop().await.map_err(anyhow::Error::msg)?;
        Ok(self.journal.close().await?)
    }
}

/// The state of all agents.
struct Play<'a> {
    workload: Workload,
    corpus: &'a Corpus,
    /// Agents whose next turn can begin, and that turn.
    ready: VecDeque<(u32, u32)>,
    /// The turn of each agent.
    turns: Vec<u32>,
    under_way: usize,
    agents_left: u32,
    awake: isize,
    requests: u64,
    answers: u64,
    chunks: u64,
    raw_bytes: u64,
}

impl<'a> Play<'a> {
    fn new(workload: Workload, corpus: &'a Corpus) -> Self {
        Self {
            workload,
            corpus,
            ready: (0..workload.agents).map(|agent| (agent, 0)).collect(),
            turns: vec![0; workload.agents as usize],
            under_way: 0,
            agents_left: workload.agents,
            awake: 0,
            requests: 0,
            answers: 0,
            chunks: 0,
            raw_bytes: 0,
        }
    }

    /// Begins as many turns as may be under way.
    fn fill(&mut self, gateway: &Inside<FromGateway, ToGateway>) {
        while self.under_way < self.workload.under_way_max
            && let Some((agent, turn)) = self.ready.pop_front()
        {
            self.under_way += 1;
            self.message(agent, turn, gateway);
        }
    }

    /// What a user does: writes, under an id of its own.
    fn message(&mut self, agent: u32, turn: u32, gateway: &Inside<FromGateway, ToGateway>) {
        let text = self.text(agent, turn, 0, MESSAGE_LENGTH);
        self.submit(thread_of(agent), message(agent, turn, text), gateway);
    }

    /// What a gateway does with an input that has passed its checks.
    fn submit(&mut self, thread: ThreadId, record: Record, gateway: &Inside<FromGateway, ToGateway>) {
        self.requests += 1;
        submit(thread, record, self.requests, gateway);
    }

    /// What a model does: streams, and then says the whole. A user's message gets text and a call, a result gets text.
    fn complete(&mut self, prompt: &Prompt, model: &Inside<FromModel, ToModel>) {
        let agent = agent_of(prompt.thread);
        let newest = prompt.history.newest_first().next().expect("a prompt has something to answer");
        let calls = matches!(**newest, Item::User { .. });
        let turn = self.turns[agent as usize];
        let text = self.text(agent, turn, 1 + u64::from(calls), COMPLETION_LENGTH);
        let call = match calls {
            true => Some((BUILD, arguments(agent, turn))),
            false if self.workload.sleep && turn + 1 == self.workload.turns => Some(("sleep", TEN_YEARS.to_owned())),
            false => None,
        };
        let call = call.map(|(name, arguments)| {
            self.raw_bytes += arguments.len() as u64;
            Block::Call { provider_id: provider_id(agent, turn), name: name.to_owned(), arguments }
        });
        answer(prompt, text, call, model);
    }

    /// What a tool does: takes the call over, and sends the result through the front door.
    fn work(&mut self, dispatch: &Dispatch, tool: &Inside<Arrival, ToTool>, gateway: &Inside<FromGateway, ToGateway>) {
        let &Dispatch { thread, call, .. } = dispatch;
        let accepted = Arrival { ticket: None, thread, at_ms: now_ms(), record: Record::Accepted(call) };
        tool.send.send(accepted).expect("the shard runs");
        let agent = agent_of(thread);
        let text = self.text(agent, self.turns[agent as usize], 3, RESULT_LENGTH).to_owned();
        self.submit(thread, result(call, text), gateway);
    }

    /// What a gateway does with what it is told: nobody listens.
    fn told(&mut self, told: ToGateway) {
        match &told {
            ToGateway::Answer(_, Outcome::Taken(_)) => self.answers += 1,
            ToGateway::Chunks(chunks) => {
                self.chunks += chunks.iter().filter(|chunk| chunk.part != Part::Started).count() as u64;
            }
            ToGateway::Awake(change) => self.awake += change,
            _ => {}
        }
        if let Some(agent) = turn_of(told) {
            self.end_turn(agent);
        }
    }

    fn end_turn(&mut self, agent: u32) {
        let turn = &mut self.turns[agent as usize];
        *turn += 1;
        self.under_way -= 1;
        if *turn < self.workload.turns {
            self.ready.push_back((agent, *turn));
        } else {
            self.agents_left -= 1;
        }
    }

    fn text(&mut self, agent: u32, turn: u32, which: u64, length: usize) -> &'a str {
        self.raw_bytes += length as u64;
        text(self.corpus, agent, turn, which, length)
    }

    /// Every input was acknowledged, and every chunk came through.
    fn check(&self) {
        let turns = u64::from(self.workload.agents) * u64::from(self.workload.turns);
        assert_eq!(self.answers, 2 * turns, "messages and results that were acknowledged");
        assert_eq!(self.chunks, 2 * turns * CHUNKS as u64, "chunks that clients would have been shown");
    }
}

/// One of the texts of a turn: 0 is the message, 1 and 2 are what the model says, 3 is the result.
pub fn text(corpus: &Corpus, agent: u32, turn: u32, which: u64, length: usize) -> &str {
    let mut choices = Choices::new((u64::from(agent) << 32 | u64::from(turn) << 2 | which).wrapping_mul(0x9e37_79b9));
    corpus.cut(choices.any(), length)
}

/// The pieces in which a completion comes.
pub fn pieces(text: &str) -> impl Iterator<Item = &str> {
    (0..CHUNKS).map(|piece| &text[piece * text.len() / CHUNKS..(piece + 1) * text.len() / CHUNKS])
}

/// A turn that there was not before, so that its message is new.
pub fn some_turn() -> u32 {
    now_ms() as u32
}

/// The user's name for a message.
pub fn input_id(agent: u32, turn: u32) -> String {
    format!("{agent:08x}-0000-7000-8000-{turn:012x}")
}

/// The arguments of a turn's call.
pub fn arguments(agent: u32, turn: u32) -> String {
    format!(r#"{{"target":"target-{agent}","turn":{turn}}}"#)
}

/// The provider's id of a turn's call.
pub fn provider_id(agent: u32, turn: u32) -> String {
    format!("call_{agent:08x}{turn:08x}")
}

/// A user's message.
pub fn message(agent: u32, turn: u32, text: &str) -> Record {
    Record::Message(Message {
        id: InputId(input_id(agent, turn)),
        origin: Origin { who: "loopback".to_owned(), proof: Proof::Loopback },
        content: vec![Content::Text(text.to_owned())],
        thread_name: None,
        metadata: None,
    })
}

/// What a gateway does with an input that has passed its checks.
pub fn submit(thread: ThreadId, record: Record, request: u64, gateway: &Inside<FromGateway, ToGateway>) {
    let ticket = Some(Ticket { gateway: 0, request });
    let submit = FromGateway::Submit(Arrival { ticket, thread, at_ms: now_ms(), record });
    gateway.send.send(submit).expect("the shard runs");
}

/// What a model does with a prompt: streams, and then says the whole.
pub fn answer(prompt: &Prompt, text: &str, call: Option<Block>, model: &Inside<FromModel, ToModel>) {
    let &Prompt { thread, seen, .. } = prompt;
    let send = |item| model.send.send(item).expect("the shard runs");
    let chunk = |part| Chunk { thread, seen, part };
    send(FromModel::Chunks(vec![chunk(Part::Started)]));
    // An adapter sends as one item what one read of its connection holds, and here all is there at once.
    send(FromModel::Chunks(pieces(text).map(|piece| chunk(Part::Text(piece.to_owned()))).collect()));
    let blocks = std::iter::once(Block::Text(text.to_owned())).chain(call).collect();
    let usage = Usage { input_tokens: 250 * seen, output_tokens: 250, cached_tokens: 200 * seen };
    let model = "bench".to_owned();
    let record = Record::Completion(Completion { seen, blocks, end: End::Finished, usage, model });
    send(FromModel::Answer(Box::new(Arrival { ticket: None, thread, at_ms: now_ms(), record })));
}

/// The agent whose turn has ended, if that is what a gateway is told. Everything must be taken, and nothing may fail.
pub fn turn_of(told: ToGateway) -> Option<u32> {
    match told {
        ToGateway::Output(Output { thread, shown: Shown::Turn { item, .. }, .. }) => {
            let builds = |block: &Block| matches!(block, Block::Call { name, .. } if name == BUILD);
            let ends = matches!(&*item, Item::Assistant { blocks, .. } if !blocks.iter().any(builds));
            ends.then(|| agent_of(thread))
        }
        ToGateway::Output(Output { shown: Shown::Failure { message, .. }, .. }) => unreachable!("{message}"),
        ToGateway::Answer(_, Outcome::Taken(_)) | ToGateway::Output(_) | ToGateway::Chunks(_) | ToGateway::Awake(_) => {
            None
        }
        other => unreachable!("an input was not taken, or nobody asked: {other:?}"),
    }
}

fn result(call: CallId, text: String) -> Record {
    Record::Result(ToolResult {
        call,
        origin: Origin { who: "tool".to_owned(), proof: Proof::Capability },
        content: vec![Content::Text(text)],
        is_error: false,
        subscription: false,
        display: None,
    })
}

/// An agent's thread: spread as UUIDs are, and the agent can be told from it.
pub fn thread_of(agent: u32) -> ThreadId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&Choices::new(u64::from(agent)).any().to_be_bytes());
    bytes[8..12].copy_from_slice(&agent.to_be_bytes());
    ThreadId::from_bytes(bytes)
}

pub fn agent_of(thread: ThreadId) -> u32 {
    let bytes: [u8; 4] = thread.as_bytes()[8..12].try_into().expect("invariant: four bytes");
    u32::from_be_bytes(bytes)
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}
