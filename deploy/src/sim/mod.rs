//! The simulator: an agent in every order that the world may bring things in, with crashes wherever one may come.
//!
//! In: an agent (a model and tools, as functions), what users do, and assertions on what is true. Out: how much was explored;
//! or the shortest interleaving found that breaks an assertion or a promise, step by step. Always: it runs the real fold and
//! the real join ([`slackwater_core::flow::awake`]) over a journal in memory that keeps what was synced apart from what was not;
//! no clock (a sleep is a jump), no task, no chance but from the seed.
//!
//! ```
//! use serde_json::json;
//! use slackwater::model::Reply;
//! use slackwater::sim::{Later, Sim};
//!
//! #[derive(serde::Deserialize)]
//! struct Deploy { version: String }
//!
//! let report = Sim::new()
//!     .model(|asked| match asked.result_of("deploy") {
//!         Some(said) => Reply::text(format!("Deployed: {said}")),
//!         None if asked.turn() == 1 => Reply::silence().call("deploy", &json!({ "version": "1.2" })),
//!         None => Reply::text("Nothing to do."),
//!     })
//!     .tool_once("deploy", |deploy: Deploy| Later::after_ms(500, format!("{} is out", deploy.version)))
//!     .send("alice", "ship it")
//!     .check(|end| {
//!         assert_eq!(end.count("deploy"), 1);
//!         assert_eq!(end.said("alice"), ["Deployed: 1.2 is out"]);
//!     })
//!     .exhaustive();
//! assert_eq!(report.executions, 3_474);
//! ```
//!
//! # What is explored
//! | left open | how far |
//! | --- | --- |
//! | the order of arrival | all of it, within what senders promise ([`Sim::send`], [`Sim::then`], [`Sim::at_ms`]); tools and models may be late at will, timers are on time |
//! | what one tick catches | up to [`Bounds::together`] arrivals in one batch, which is one sync and one prompt |
//! | duplicates | up to [`Bounds::duplicates`] inputs, results and model's answers come once more, any time later |
//! | where a cut finds a completion | before any chunk, after each, or just finished |
//! | whether a tool obeys a cancellation | both |
//! | people | a question that a tool's call asks ([`Sim::needs_approval`]) is answered any time later, or not at all: [`Sim::approve`], [`Sim::deny`] |
//! | model failures | up to [`Bounds::model_failures`] prompts fail after all retries |
//! | crashes | up to [`Bounds::crashes`], at every commit: before the sync, within it (each length of the batch kept), after it with each beginning of what follows done |
//!
//! (The real journal keeps a torn batch whole or not at all; here any beginning may be left, as if the tick had been shorter.)
//!
//! After a crash the state is what the durable records make it; prompts and work in our process are gone; clients and services
//! deliver again what was not acknowledged; what is still owed is asked again.
//!
//! Beside your assertions every life is held to the promises of the design: `durable_before_act`, `acknowledged_is_durable`,
//! `same_id_once`, `every_call_has_one_result`, `effects_have_names`, `nothing_is_dropped_silently`, `it_always_continues`,
//! `an_idle_thread_is_data`, and the invariants of the fold after each record.
//!
//! | file | noun |
//! | --- | --- |
//! | `scenario` | what users do |
//! | `agent` | what the model and the tools do |
//! | `world`, `ask` | one life: what arrives, and what threads ask |
//! | `journal` | what is durable |
//! | `promise` | what must hold |
//! | `view` | what assertions see |
//! | `choice` | what a life leaves open, as numbers |
//! | `explore`, `shrink` | many lives; a short one |
//! | `log`, `failure` | what is told of them |

mod agent;
mod ask;
mod choice;
mod explore;
mod failure;
mod journal;
mod log;
mod promise;
mod scenario;
mod shrink;
#[cfg(test)]
mod tests;
mod view;
mod world;

pub use agent::{Asked, Later};
pub use explore::Report;
pub use failure::Failure;
pub use log::Counts;
pub use view::{Run, View};

use crate::gateway::name::address;
use crate::model::{Reply, Scripted};
use agent::{Agent, Tool};
use scenario::{Input, Start, What};
use serde::de::DeserializeOwned;
use slackwater_core::id::ThreadId;
use slackwater_core::record::Decision;

/// How much may happen in one life, and in a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// How many crashes one life has at most.
    pub crashes: usize,
    /// How many inputs, results and answers come once more at most.
    pub duplicates: usize,
    /// How many prompts fail at most.
    pub model_failures: usize,
    /// How many arrivals one tick catches at most.
    pub together: usize,
    /// After how many arrivals and faults an agent that still does something is taken for one that never rests.
    pub steps_max: u64,
    /// How many executions an exhaustive search may take.
    pub executions_max: u64,
}

impl Default for Bounds {
    /// One crash, one duplicate, no model failure, two arrivals a tick.
    fn default() -> Self {
        Self { crashes: 1, duplicates: 1, model_failures: 0, together: 2, steps_max: 5_000, executions_max: 1_000_000 }
    }
}

type Check = Box<dyn Fn(&View)>;

/// A simulation to be made and run. Its functions are called in every execution and must keep nothing from one to the next.
#[derive(Default)]
pub struct Sim {
    agent: Agent,
    inputs: Vec<Input>,
    check: Vec<Check>,
    always: Vec<Check>,
    bounds: Bounds,
}

impl std::fmt::Debug for Sim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sim").field("inputs", &self.inputs).field("bounds", &self.bounds).finish_non_exhaustive()
    }
}

impl Sim {
    /// A simulation without tools and inputs, whose model repeats what it is told.
    pub fn new() -> Self {
        Self::default()
    }

    /// The model: what it answers to a prompt.
    #[must_use]
    pub fn model(mut self, reply: impl Fn(&Asked<'_>) -> Reply + 'static) -> Self {
        self.agent.model = Box::new(reply);
        self
    }

    /// The model plays a script, as in [`Scripted::from_toml`].
    ///
    /// # Panics
    /// When it is no script.
    #[must_use]
    pub fn script(mut self, toml: &str) -> Self {
        self.agent.model = agent::play(Scripted::from_toml(toml).unwrap_or_else(|error| panic!("{error}")));
        self
    }

    /// A tool that does its work each time it is asked: after a crash it may be asked again for the same call.
    #[must_use]
    pub fn tool<A, L>(mut self, name: impl Into<String>, function: impl Fn(A) -> L + 'static) -> Self
    where
        A: DeserializeOwned,
        L: Into<Later>,
    {
        self.agent.tools.insert(name.into(), Tool::new(false, function));
        self
    }

    /// A tool that keeps the ids of its calls, and when it is asked again for one of them does not do the work again.
    #[must_use]
    pub fn tool_once<A, L>(mut self, name: impl Into<String>, function: impl Fn(A) -> L + 'static) -> Self
    where
        A: DeserializeOwned,
        L: Into<Later>,
    {
        self.agent.tools.insert(name.into(), Tool::new(true, function));
        self
    }

    /// A user sends this to this thread, at any time: before or after anything else.
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn send(self, thread: &str, text: impl Into<String>) -> Self {
        self.input(thread, What::Message(text.into()), Start::AnyTime)
    }

    /// A user sends this to this thread at any time after the input before it was acknowledged.
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn then(self, thread: &str, text: impl Into<String>) -> Self {
        self.input(thread, What::Message(text.into()), Start::Acknowledged)
    }

    /// A user stops this thread at any time after the input before it was acknowledged.
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn stop(self, thread: &str) -> Self {
        self.input(thread, What::Stop, Start::Acknowledged)
    }

    /// A user stops this thread and all below it, at any time after the input before it was acknowledged.
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn stop_all(self, thread: &str) -> Self {
        self.input(thread, What::StopAll, Start::Acknowledged)
    }

    /// A person approves the next call of this thread that waits for it, any time after it was asked. Nobody answers when
    /// nothing is asked; with [`Sim::when_quiet`] the answer comes when nothing else moves any more.
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn approve(self, thread: &str) -> Self {
        self.input(thread, What::Decision(Decision::Approve), Start::Asked)
    }

    /// A person denies the next call of this thread that waits for an approval; otherwise as [`Sim::approve`].
    ///
    /// # Panics
    /// When the text addresses no thread.
    #[must_use]
    pub fn deny(self, thread: &str, reason: impl Into<String>) -> Self {
        self.input(thread, What::Decision(Decision::Deny { reason: Some(reason.into()) }), Start::Asked)
    }

    /// Calls of this tool wait for a person's approval.
    ///
    /// # Panics
    /// When there is no tool of this name yet.
    #[must_use]
    pub fn needs_approval(self, tool: &str) -> Self {
        self.of_tool(tool, |tool| tool.is_gated = true)
    }

    /// A call of this tool may take so many milliseconds.
    ///
    /// # Panics
    /// When there is no tool of this name yet.
    #[must_use]
    pub fn timeout_ms(self, tool: &str, timeout_ms: u64) -> Self {
        self.of_tool(tool, |tool| tool.timeout_ms = Some(timeout_ms))
    }

    fn of_tool(mut self, name: &str, change: impl FnOnce(&mut Tool)) -> Self {
        change(self.agent.tools.get_mut(name).unwrap_or_else(|| panic!("there is no tool {name}; add it first")));
        self
    }

    /// The last input is sent at any time, whatever stands before it. As all that say more of the last input, it panics when
    /// there is none.
    #[must_use]
    pub fn any_time(self) -> Self {
        self.last(|input| input.start = Start::AnyTime)
    }

    /// The last input comes exactly so many milliseconds after the beginning.
    #[must_use]
    pub fn at_ms(self, at_ms: u64) -> Self {
        self.last(|input| input.start = Start::At(at_ms))
    }

    /// The last input is sent when everything that came before is over and nothing moves any more.
    #[must_use]
    pub fn when_quiet(self) -> Self {
        self.last(|input| input.start = Start::Quiet)
    }

    /// The last input may not come at all.
    #[must_use]
    pub fn maybe(self) -> Self {
        self.last(|input| input.maybe = true)
    }

    /// Holds at the end, when nothing moves any more. It panics if it does not.
    #[must_use]
    pub fn check(mut self, holds: impl Fn(&View) + 'static) -> Self {
        self.check.push(Box::new(holds));
        self
    }

    /// Holds after every tick. It panics if it does not.
    #[must_use]
    pub fn always(mut self, holds: impl Fn(&View) + 'static) -> Self {
        self.always.push(Box::new(holds));
        self
    }

    /// How much may happen.
    #[must_use]
    pub fn bounds(mut self, bounds: Bounds) -> Self {
        self.bounds = bounds;
        self
    }

    /// At most so many crashes in one execution.
    #[must_use]
    pub fn crashes(mut self, crashes: usize) -> Self {
        self.bounds.crashes = crashes;
        self
    }

    /// At most so many duplicates in one execution.
    #[must_use]
    pub fn duplicates(mut self, duplicates: usize) -> Self {
        self.bounds.duplicates = duplicates;
        self
    }

    /// At most so many failed prompts in one execution.
    #[must_use]
    pub fn model_failures(mut self, model_failures: usize) -> Self {
        self.bounds.model_failures = model_failures;
        self
    }

    /// At most so many arrivals in one tick.
    #[must_use]
    pub fn together(mut self, together: usize) -> Self {
        self.bounds.together = together;
        self
    }

    /// Explores everything that may happen within the bounds.
    ///
    /// # Panics
    /// With the [`Failure`] if there is one; or when there are more executions than [`Bounds::executions_max`].
    pub fn exhaustive(&self) -> Report {
        self.try_exhaustive().unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Explores so many executions by chance.
    ///
    /// # Panics
    /// With the [`Failure`] if there is one.
    pub fn random(&self, seed: u64, executions: u64) -> Report {
        self.try_random(seed, executions).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Runs the execution that a [`Failure`] names, and returns it in words if nothing fails.
    ///
    /// # Panics
    /// With the [`Failure`]; or when the text is none that a failure names.
    pub fn replay(&self, choices: &str) -> Vec<String> {
        self.try_replay(choices).unwrap_or_else(|failure| panic!("{failure}"))
    }

    /// Like [`Sim::exhaustive`], for who wants the failure.
    ///
    /// # Errors
    /// The failure.
    ///
    /// # Panics
    /// When there are more executions than [`Bounds::executions_max`].
    pub fn try_exhaustive(&self) -> Result<Report, Box<Failure>> {
        explore::exhaustive(self)
    }

    /// Like [`Sim::random`], for who wants the failure.
    ///
    /// # Errors
    /// The failure.
    pub fn try_random(&self, seed: u64, executions: u64) -> Result<Report, Box<Failure>> {
        explore::random(self, seed, executions)
    }

    /// Like [`Sim::replay`], for who wants the failure.
    ///
    /// # Errors
    /// The failure.
    ///
    /// # Panics
    /// When the text is none that a failure names.
    pub fn try_replay(&self, choices: &str) -> Result<Vec<String>, Box<Failure>> {
        let read = choice::decode(choices);
        explore::replay(self, read.unwrap_or_else(|| panic!("{choices:?} is no execution; copy it from a failure")))
    }

    fn input(mut self, thread: &str, what: What, start: Start) -> Self {
        let address = address(thread).unwrap_or_else(|bad| panic!("{thread:?}: {bad}"));
        // There is nothing before the first.
        let start = if self.inputs.is_empty() && start == Start::Acknowledged { Start::AnyTime } else { start };
        self.inputs.push(Input { address, what, start, maybe: false });
        self
    }

    fn last(mut self, change: impl FnOnce(&mut Input)) -> Self {
        change(
            self.inputs
                .last_mut()
                .unwrap_or_else(|| panic!("there is no input of which that could be said; send one first")),
        );
        self
    }

    /// What people call a thread.
    fn name(&self, thread: ThreadId) -> String {
        let named = self.inputs.iter().find(|input| input.address.thread == thread);
        named.and_then(|input| input.address.name.clone()).unwrap_or_else(|| thread.to_string())
    }
}
