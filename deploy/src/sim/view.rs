//! What is true of a simulated world, for assertions.
//!
//! In: committed records, and what the agent was asked. Out: histories, runs of tools, prompts, outputs, answers. Always: only
//! what is durable is seen of a thread.

use super::agent::text;
use super::journal::Journal;
use crate::gateway::name::address;
use slackwater_core::effect::{Effect, Outcome, Output, Prompt, Shown, Wait};
use slackwater_core::history::{History, Item};
use slackwater_core::id::{CallId, InputId, Number, ThreadId};
use slackwater_core::record::{Block, Committed, Decision, Record};
use slackwater_core::thread::{Standing, Thread, invariant};
use std::collections::{BTreeMap, BTreeSet};

/// What is true of the simulated world, at its end or after any step.
#[derive(Debug, Default)]
pub struct View {
    pub(super) threads: BTreeMap<ThreadId, Seen>,
    pub(super) runs: Vec<Run>,
    pub(super) prompts: Vec<Prompt>,
    pub(super) outcomes: Vec<Option<Outcome>>,
    pub(super) crashes: usize,
    pub(super) now_ms: u64,
}

/// A thread as its durable records make it.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) thread: Thread,
    /// The inputs that were taken.
    ids: BTreeSet<InputId>,
    pub(super) outputs: Vec<Output>,
    /// The messages that were taken.
    pub(super) messages: Vec<Number>,
    /// The results that were taken.
    pub(super) results: Vec<(Number, CallId)>,
}

/// A time that a tool did something.
#[derive(Clone, Debug)]
pub struct Run {
    /// The tool.
    pub tool: String,
    /// For whom.
    pub thread: ThreadId,
    /// The call's name in the world. A call that is done again after a crash has the same.
    pub id: String,
    /// What it was called with.
    pub arguments: serde_json::Value,
    /// When, in milliseconds since the beginning.
    pub at_ms: u64,
    pub(super) history: History,
}

impl Run {
    /// What the thread knew then, in words: its history up to the call, the call included.
    pub fn known(&self) -> Vec<String> {
        self.history.to_vec().into_iter().map(|item| words(item)).collect()
    }
}

impl View {
    /// A thread's history as its model sees it, oldest first, in words: `user: ship it`, `model: deploy({})`,
    /// `deploy: done`. Empty when there is no such thread.
    pub fn history(&self, thread: &str) -> Vec<String> {
        self.items(thread).iter().map(|item| words(item)).collect()
    }

    /// A thread's history, oldest first.
    pub fn items(&self, thread: &str) -> Vec<&Item> {
        let Some(seen) = self.seen(thread) else { return Vec::new() };
        seen.thread.history().to_vec().into_iter().map(|item| &**item).collect()
    }

    /// What the model has said in a thread's turns, oldest first; turns without text are left out.
    pub fn said(&self, thread: &str) -> Vec<String> {
        let said = |output: &Output| match &output.shown {
            Shown::Turn { item, .. } => match &**item {
                Item::Assistant { blocks, .. } => Some(texts(blocks)).filter(|text| !text.is_empty()),
                _ => None,
            },
            _ => None,
        };
        self.outputs(thread).iter().filter_map(said).collect()
    }

    /// What a thread's clients see: all numbered outputs, oldest first.
    pub fn outputs(&self, thread: &str) -> &[Output] {
        self.seen(thread).map_or(&[], |seen| &seen.outputs)
    }

    /// Where a thread stands, if there is such a thread.
    pub fn standing(&self, thread: &str) -> Option<Standing> {
        self.seen(thread).map(|seen| seen.thread.standing())
    }

    /// Every prompt that a thread's model was asked, in words, oldest first. One that was asked again after a crash is there
    /// again.
    pub fn prompts(&self, thread: &str) -> Vec<Vec<String>> {
        let id = id_of(thread);
        let prompts = self.prompts.iter().filter(|prompt| prompt.thread == id);
        prompts.map(|prompt| prompt.history.to_vec().into_iter().map(|item| words(item)).collect()).collect()
    }

    /// What people have answered a thread's questions, oldest first.
    pub fn decisions(&self, thread: &str) -> Vec<&Decision> {
        let decision = |output| match output {
            &Output { shown: Shown::Verdict { ref answer, .. }, .. } => Some(answer),
            _ => None,
        };
        self.outputs(thread).iter().filter_map(decision).collect()
    }

    /// The questions of a thread that wait for an answer, oldest first.
    pub(super) fn questions(&self, thread: ThreadId) -> Vec<Number> {
        let waits = self.threads.get(&thread).map(|seen| seen.thread.standing().waits);
        let question = |wait| match wait {
            Wait::Question { question, .. } => Some(question),
            _ => None,
        };
        let mut questions: Vec<_> = waits.into_iter().flatten().filter_map(question).collect();
        questions.sort_unstable();
        questions
    }

    /// Every time that a tool did something, oldest first.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// How often this tool did something.
    pub fn count(&self, tool: &str) -> usize {
        self.runs.iter().filter(|run| run.tool == tool).count()
    }

    /// What the sender of the n-th input of the scenario was told, from 0; nothing before it was told.
    pub fn outcome(&self, input: usize) -> Option<&Outcome> {
        self.outcomes.get(input)?.as_ref()
    }

    /// How often the runtime has crashed so far.
    pub fn crashes(&self) -> usize {
        self.crashes
    }

    /// How much time has passed, in milliseconds.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn seen(&self, thread: &str) -> Option<&Seen> {
        self.threads.get(&id_of(thread))
    }

    /// Applies what has become durable, as the journal has it; says which invariant it breaks.
    pub(super) fn apply(&mut self, committed: &Committed, journal: &Journal) -> Result<(), String> {
        let id = committed.arrival.thread;
        let seen = self.threads.entry(id).or_insert_with(|| Seen {
            thread: Thread::inheriting(id, journal.ancestry(id)),
            ids: BTreeSet::new(),
            outputs: Vec::new(),
            messages: Vec::new(),
            results: Vec::new(),
        });
        let applied = seen.thread.apply(committed.clone());
        if let Outcome::Taken(number) = applied.outcome {
            let id = match &committed.arrival.record {
                Record::Message(message) => Some(&message.id),
                Record::Stop(stop) | Record::StopAll(stop) => Some(&stop.id),
                Record::Answered(verdict) => Some(&verdict.id),
                _ => None,
            };
            if let Some(id) = id
                && !seen.ids.insert(id.clone())
            {
                return Err(format!("same_id_once: {} is taken again as record {number}", id.0));
            }
            match &committed.arrival.record {
                Record::Message(_) => seen.messages.push(number),
                Record::Result(result) if seen.results.iter().any(|(_, call)| *call == result.call) => {
                    return Err(format!("every_call_has_one_result: call {} gets a second one", result.call));
                }
                Record::Result(result) => seen.results.push((number, result.call)),
                _ => {}
            }
        }
        seen.outputs.extend(
            applied
                .effects
                .into_iter()
                .filter_map(|effect| if let Effect::Tell(output) = effect { Some(output) } else { None }),
        );
        invariant::check(&seen.thread)
    }
}

/// The id of the thread that a text addresses.
pub(super) fn id_of(thread: &str) -> ThreadId {
    address(thread).unwrap_or_else(|bad| panic!("{thread:?}: {bad}")).thread
}

/// An item in words.
pub(super) fn words(item: &Item) -> String {
    match item {
        Item::User { content, .. } => format!("user: {}", text(content)),
        Item::Assistant { blocks, cut, .. } => {
            let said = blocks.iter().filter_map(|block| match block {
                Block::Text(text) => Some(text.trim_end().to_owned()),
                Block::Call { name, arguments, .. } => Some(format!("{name}({arguments})")),
                Block::Reasoning { .. } => None,
            });
            format!("{}: {}", if *cut { "model, cut" } else { "model" }, said.collect::<Vec<_>>().join(" "))
        }
        Item::Result(answer) => format!("{}: {}", answer.name, answer.text()),
        Item::Event(event) => format!("event of {}: {}", event.original_tool_name, text(&event.content)),
        Item::Summary(summary) => format!("summary: {}", summary.text),
    }
}

fn texts(blocks: &[Block]) -> String {
    let texts =
        blocks.iter().filter_map(|block| if let Block::Text(text) = block { Some(text.as_str()) } else { None });
    texts.collect()
}
