//! The fold: a thread is what its records make of it.
//!
//! In: the thread's committed records, one after another. Out: what became of each, and the effects that follow from it.
//! Always: sync, pure and total; no clock, no randomness, no order of a hash map. Applying the same records gives the same
//! thread, whatever the batches in which they came.
//!
//! What the world is asked follows from the records alone, with one exception that the owner of the thread keeps outside:
//! whether a prompt is under way. [`Thread::prompt`] says whether one is wanted; a completion names the last record that
//! its prompt had seen, and by that number one that is stale is recognised.
//!
//! | family | records | file |
//! | --- | --- | --- |
//! | what users ask | `Message`, `Stop` | `admit` |
//! | what models answer | `Completion`, `Failure` | `complete` |
//! | what tools answer | `Accepted`, `Result` | `call` |
//! | what timers say | `Armed`, `Fired` | `sleep` |

mod admit;
mod call;
mod complete;
pub mod invariant;
mod sleep;
mod standing;

pub use standing::{Standing, State};

use crate::effect::{Due, Effect, Outcome, Output, Prompt, Shown};
use crate::history::{AnsweredBy, History, Item};
use crate::id::{CallId, InputId, Number, OutputId, ThreadId};
use crate::port::Rest;
use crate::record::{Committed, Content, FailureClass, Record};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// How many inputs a thread keeps that its model has not seen. More are refused with [`crate::effect::Refusal::QueueFull`].
/// Part of the rules of the fold, and therefore not configurable: another value would replay old journals differently.
pub const PENDING_MAX: usize = 10_000;

/// How many calls of one turn are done; the rest get an error result.
pub const CALLS_PER_TURN_MAX: usize = 16;

/// How many calls of one turn are kept at all. More than any model makes; the number keeps a broken provider from
/// overflowing the names of calls and outputs.
pub const CALLS_KEPT_MAX: usize = 4_096;

/// How many turns in a row may consist of nothing but refused calls before the thread stops with a visible error.
pub const REFUSED_TURNS_MAX: u32 = 8;

/// A thread: the fold of its records and nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Thread {
    id: ThreadId,
    name: Option<String>,
    /// The number of the last record applied, and when that was received.
    last: Number,
    last_at_ms: u64,
    /// What the model was asked about and what it said; every call in it is answered, but for those that are open.
    history: History,
    /// Inputs that no settled prompt has held yet.
    pending: VecDeque<(Number, Arc<Item>)>,
    /// Calls without an answer.
    open: BTreeMap<CallId, Call>,
    /// Calls that were answered by a substitute: their real result is still welcome.
    substituted: BTreeMap<CallId, Call>,
    /// Calls that have their real answer, and the record that brought it.
    answered: BTreeMap<CallId, Number>,
    /// The inputs' own ids, as long as the thread lives.
    ids: BTreeMap<InputId, Number>,
    /// The last record that asks for a completion.
    triggered: Number,
    /// The first record since the last answer at which a prompt was wanted: no prompt under way has seen less.
    asked: Option<Number>,
    /// The `seen` of the last completion or failure, and the number of its own record.
    settled: Number,
    settled_at: Number,
    /// The last record that interrupts a completion under way, and the last stop.
    interrupted: Number,
    stopped: Number,
    /// Whether every call of the last turn that has an answer was refused.
    turn_refused: bool,
    /// How many turns in a row were nothing but refused calls.
    refused_turns: u32,
    /// When the thread had said all it wanted, in milliseconds since the Unix epoch; nothing while it does anything.
    idle_since_ms: Option<u64>,
}

/// A call that the model made.
#[derive(Clone, Debug, PartialEq)]
struct Call {
    provider_id: String,
    name: String,
    arguments: String,
    since_ms: u64,
    phase: Phase,
}

/// How far an open call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    /// A tool was asked and has not said that it took it over.
    Dispatched,
    /// The tool took it over.
    Accepted,
    /// It is a sleep until a time.
    Sleeping(Due),
    /// It is a sleep until anything arrives.
    Dozing,
}

/// What a record did.
#[derive(Clone, Debug, PartialEq)]
pub struct Applied {
    /// What its sender is told.
    pub outcome: Outcome,
    /// What the world is asked and the clients are told, in order.
    pub effects: Vec<Effect>,
}

impl Thread {
    /// A thread to which nothing has happened.
    pub fn new(id: ThreadId) -> Self {
        Self {
            id,
            name: None,
            last: 0,
            last_at_ms: 0,
            history: History::default(),
            pending: VecDeque::new(),
            open: BTreeMap::new(),
            substituted: BTreeMap::new(),
            answered: BTreeMap::new(),
            ids: BTreeMap::new(),
            triggered: 0,
            asked: None,
            settled: 0,
            settled_at: 0,
            interrupted: 0,
            stopped: 0,
            turn_refused: false,
            refused_turns: 0,
            idle_since_ms: None,
        }
    }

    /// Applies the next record.
    ///
    /// # Panics
    /// When the record is not the thread's next one: the order of a thread is the journal's promise, and a thread that went
    /// on from a gap would be another thread.
    pub fn apply(&mut self, committed: Committed) -> Applied {
        let Committed { number, arrival } = committed;
        assert_eq!(arrival.thread, self.id, "invariant: one_order_per_thread: a record of another thread");
        assert_eq!(number, self.last + 1, "invariant: one_order_per_thread: thread {} has a gap", self.id);
        self.last = number;
        self.last_at_ms = arrival.at_ms;
        let mut step =
            Step { thread: self.id, number, at_ms: arrival.at_ms, told: 0, moved: false, effects: Vec::new() };
        // (a) The record does what its family says.
        let outcome = match arrival.record {
            Record::Message(message) => self.message(&mut step, message),
            Record::Stop(stop) => self.stop(&mut step, stop),
            Record::Completion(completion) => self.completion(&mut step, completion),
            Record::Failure(failure) => self.failure(&mut step, failure),
            Record::Accepted(call) => self.accepted(&step, call),
            Record::Result(result) => self.result(&mut step, result),
            Record::Armed { call, due_ms } => self.armed(&mut step, call, due_ms),
            Record::Fired(call) => self.fired(&mut step, call),
        };
        // (b) Nobody sleeps beside an input that the model has not seen, whichever of the two came first.
        if !self.pending.is_empty() && self.only_sleeps() {
            self.release_open_calls(&mut step, AnsweredBy::Interrupted, "");
        }
        // (c) The calls that this record made, and only they, are asked of the world.
        let made = CallId { number, index: 0 };
        step.effects.extend(self.open.range(made..).filter_map(|(&id, call)| call.asked(self.id, id)));
        // (d) The clients are told what the thread is suspended on, if it is.
        self.note(&step);
        if (step.told > 0 || step.moved) && !self.wants_completion() {
            let waits = self.standing().waits;
            step.tell(Shown::Waiting(waits));
        }
        Applied { outcome, effects: step.effects }
    }

    /// The prompt that the thread wants answered now, if any. It wants the same one until a record changes that.
    pub fn prompt(&self) -> Option<Prompt> {
        self.wants_completion().then(|| {
            let mut history = self.history.clone();
            self.pending.iter().for_each(|(_, item)| history.push(item.clone()));
            Prompt { thread: self.id, seen: self.last, history }
        })
    }

    /// What the thread has asked of tools and timers and may have been forgotten: to be asked again, under the same names,
    /// when the thread comes back from the journal.
    pub fn owed(&self) -> Vec<Effect> {
        self.open.iter().filter_map(|(&id, call)| call.asked(self.id, id)).collect()
    }

    /// Whether a completion of a prompt that had seen `seen` should be cut: somebody wrote or stopped the thread since.
    pub fn interrupts(&self, seen: Number) -> bool {
        self.interrupted > seen
    }

    /// If nothing of the thread is in flight: what it waits for. It may then leave memory. (A prompt that was under way when
    /// the thread was stopped is for the owner to know.)
    pub fn rest(&self) -> Option<Rest> {
        if self.wants_completion() {
            return None;
        }
        let mut timers = Vec::new();
        for (&id, call) in &self.open {
            match call.phase {
                Phase::Dispatched | Phase::Sleeping(Due::Wall { .. }) => return None,
                Phase::Sleeping(Due::At(due_ms)) => timers.push((id, due_ms)),
                Phase::Accepted | Phase::Dozing => {}
            }
        }
        Some(Rest { thread: self.id, through: self.last, timers })
    }

    /// The number of the last record applied; 0 for none.
    pub fn last(&self) -> Number {
        self.last
    }

    /// What the model was asked about and what it said. The inputs that wait for its next turn are in [`Thread::prompt`].
    pub fn history(&self) -> &History {
        &self.history
    }

    fn wants_completion(&self) -> bool {
        self.triggered > self.settled.max(self.stopped) && self.open.is_empty()
    }

    /// Whether calls are open and all of them are sleeps.
    fn only_sleeps(&self) -> bool {
        !self.open.is_empty() && self.open.values().all(Call::is_sleep)
    }

    /// Notes since when the thread wants an answer, or nothing at all.
    fn note(&mut self, step: &Step) {
        if self.wants_completion() {
            self.asked.get_or_insert(step.number);
            self.idle_since_ms = None;
        } else if self.open.is_empty() {
            self.idle_since_ms.get_or_insert(step.at_ms);
        } else {
            self.idle_since_ms = None;
        }
    }

    /// Answers an open call in the history and tells the clients. When it was the last open one, the model goes on.
    fn answer(&mut self, step: &mut Step, id: CallId, answer: Answer) -> Option<Call> {
        let call = self.open.remove(&id)?;
        self.turn_refused &= answer.by == AnsweredBy::Refusal;
        let item = Arc::new(Item::Result(answer.into_item(id, &call)));
        self.history.push(item.clone());
        step.tell(Shown::Result(item));
        if self.open.is_empty() {
            self.triggered = step.number;
            self.count_refused_turn(step);
        }
        Some(call)
    }

    /// A model that makes nothing but calls that are refused is stopped, visibly, before it has gone on for ever.
    fn count_refused_turn(&mut self, step: &mut Step) {
        self.refused_turns = if self.turn_refused { self.refused_turns + 1 } else { 0 };
        if self.refused_turns >= REFUSED_TURNS_MAX {
            self.refused_turns = 0;
            self.settled = step.number;
            step.tell(Shown::Failure {
                class: FailureClass::Fatal,
                message: format!(
                    "The model made {REFUSED_TURNS_MAX} turns in a row whose calls were all refused; the thread waits for you."
                ),
            });
        }
    }

    /// Gives every open call an answer, because something has arrived that does not wait for them. A sleep is simply over;
    /// a tool's call gets a substitute, and the tool is told.
    fn release_open_calls(&mut self, step: &mut Step, substitute: AnsweredBy, why: &str) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            let woken = substitute == AnsweredBy::Interrupted && self.open[&id].is_sleep();
            let (by, text) = if woken { (AnsweredBy::BuiltIn, "Woken by a new input.") } else { (substitute, why) };
            let call = self.answer(step, id, Answer::text(by, text)).expect("invariant: the id was just listed");
            match call.phase {
                // A sleep of this very record was not armed yet.
                Phase::Sleeping(_) if id.number < step.number => {
                    step.effects.push(Effect::Disarm { thread: self.id, call: id });
                }
                Phase::Sleeping(_) | Phase::Dozing => {}
                Phase::Dispatched | Phase::Accepted => {
                    step.effects.push(Effect::Cancel(call.dispatch(self.id, id)));
                    self.substituted.insert(id, call);
                }
            }
        }
    }

    /// Adds something that the model has not seen, for its next turn.
    fn enqueue(&mut self, number: Number, item: Arc<Item>) {
        self.pending.push_back((number, item));
    }

    /// Puts into the history what a prompt that had seen `seen` held.
    fn take_up(&mut self, seen: Number) {
        while let Some((_, item)) = self.pending.pop_front_if(|(number, _)| *number <= seen) {
            self.history.push(item);
        }
    }
}

impl Call {
    fn is_sleep(&self) -> bool {
        matches!(self.phase, Phase::Sleeping(_) | Phase::Dozing)
    }

    fn dispatch(&self, thread: ThreadId, call: CallId) -> crate::effect::Dispatch {
        crate::effect::Dispatch { thread, call, name: self.name.clone(), arguments: self.arguments.clone() }
    }

    /// What the world is asked on behalf of the call, in the phase it is in.
    fn asked(&self, thread: ThreadId, call: CallId) -> Option<Effect> {
        match &self.phase {
            Phase::Dispatched => Some(Effect::Dispatch(self.dispatch(thread, call))),
            Phase::Sleeping(due) => Some(Effect::Arm { thread, call, due: due.clone() }),
            Phase::Accepted | Phase::Dozing => None,
        }
    }
}

/// An answer on its way to a call.
struct Answer {
    by: AnsweredBy,
    content: Vec<Content>,
    display: Option<String>,
}

impl Answer {
    fn text(by: AnsweredBy, text: impl Into<String>) -> Self {
        Self { by, content: vec![Content::Text(text.into())], display: None }
    }

    fn into_item(self, call: CallId, of: &Call) -> crate::history::Answered {
        crate::history::Answered {
            call,
            provider_id: of.provider_id.clone(),
            name: of.name.clone(),
            content: self.content,
            by: self.by,
            display: self.display,
        }
    }
}

/// One application of one record: where it stands, and the effects gathered so far.
struct Step {
    thread: ThreadId,
    number: Number,
    at_ms: u64,
    told: u16,
    /// Whether it changed what the thread is suspended on without telling anything else.
    moved: bool,
    effects: Vec<Effect>,
}

impl Step {
    fn tell(&mut self, shown: Shown) {
        let id = OutputId { number: self.number, index: self.told };
        self.told += 1;
        self.effects.push(Effect::Tell(Output { thread: self.thread, id, at_ms: self.at_ms, shown }));
    }
}
