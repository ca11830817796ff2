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
//! | what other threads of the tree send | `Post`, `Delivered` | `post`, with `child` and `close` |
//! | what subscriptions produce | `Event` | `event` |
//! | what makes the history shorter | `Compact`, `Post` | `compact`, with `summarize`, `notes` and `long` |

mod admit;
mod answer;
mod call;
mod child;
mod close;
mod compact;
mod complete;
mod event;
pub mod invariant;
mod long;
mod notes;
mod post;
mod sleep;
mod standing;
mod summarize;

pub use compact::{COVERED_PERCENT, GROWTH_PERCENT, HALVINGS_MAX, SUMMARY_PERCENT_MAX};
pub use long::{FILE_SHOWN_BYTES_MAX, FITTED_BYTES_MAX, FITTED_PICTURE_BYTES_MAX};
pub use long::{PICTURE_SHOWN_BYTES_MAX, READ_BYTES_MAX, RESULT_SHOWN_BYTES_MAX};
pub use notes::{NOTE_BYTES_MAX, NOTES_MAX};
pub use standing::{Standing, State};

use crate::effect::{Due, Effect, Outcome, Output, Prompt, Shown};
use crate::history::{AnsweredBy, Event, History, Item};
use crate::id::{CallId, InputId, Number, OutputId, PostId, ThreadId};
use crate::port::Rest;
use crate::record::{Arrival, Cause, Committed, Content, Record};
use answer::Answer;
use child::{Child, Family};
use compact::{Compaction, Unsummarized};
use event::Subscription;
use notes::Notes;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use summarize::Summarizing;

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

/// How many levels below its root a thread is at most. Like the bounds that follow, it is part of the rules of the fold and
/// therefore not configurable.
pub const DEPTH_MAX: usize = 8;

/// How many children of a thread may be open at a time. Counted at each parent, because threads do not wait for each other:
/// a count at the root would make every birth ask there.
pub const CHILDREN_LIVING_MAX: usize = 10_000;

/// How many children `list_children` names.
pub const CHILDREN_LISTED_MAX: usize = 100;

/// How many subscriptions of a thread are active at a time; one more is cancelled as soon as it is made.
pub const SUBSCRIPTIONS_MAX: usize = 100;

/// How many children handle the events of one subscription at a time.
pub const EVENT_CHILDREN_MAX: usize = 8;

/// How many events of one subscription wait for such a child, or for a digest. More are refused.
pub const EVENTS_QUEUED_MAX: usize = 1_000;

/// What a child that is made for an event is told.
const EVENT_INSTRUCTIONS: &str = "This thread was made for one event of a subscription, which follows. Handle it, report with \
    report_to_parent if it matters to your parent, and close this thread.";

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
    /// How many items of the history are its ancestors'.
    inherited: usize,
    /// Who made it; nothing for a root.
    family: Option<Family>,
    /// Its children, closed ones included, and how many are not closed.
    children: BTreeMap<ThreadId, Child>,
    living: usize,
    /// What it has sent to other threads and has no receipt for.
    outbox: BTreeMap<PostId, Arrival>,
    /// What it has taken from other threads, as long as it lives, and the record that brought it.
    posts: BTreeMap<PostId, Number>,
    /// Calls that go on, or went on, producing events; and the names of the events, as long as it lives.
    subscriptions: BTreeMap<CallId, Subscription>,
    events: BTreeMap<(CallId, InputId), Number>,
    /// The last record that the prompt before the open calls had seen: no call was open after it.
    safe: Number,
    /// The record that closed it.
    closed: Option<Number>,
    /// What it knows of summaries of its history, and the one that it was itself made for.
    compaction: Compaction,
    summarizes: Option<Summarizing>,
    /// What it pinned.
    notes: Notes,
    /// What was too long to be shown, by its handle.
    left_out: BTreeMap<String, Arc<str>>,
}

/// What a child has from its ancestors: what their records make through the last that it inherits.
#[derive(Default)]
struct Inherited {
    history: History,
    notes: Notes,
    left_out: BTreeMap<String, Arc<str>>,
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
        Self::inheriting(id, Vec::new())
    }

    /// A thread to which nothing has happened and which inherits what its ancestors' records make: the oldest ancestor
    /// first, each one's records through the last that the next one inherits.
    pub fn inheriting(id: ThreadId, ancestry: Vec<(ThreadId, Vec<Committed>)>) -> Self {
        let mut above = Inherited::default();
        for (ancestor, records) in ancestry {
            let mut thread = Self::on_top_of(ancestor, above);
            for record in records {
                thread.apply(record);
            }
            above = Inherited { history: thread.view(), notes: thread.notes, left_out: thread.left_out };
        }
        Self::on_top_of(id, above)
    }

    fn on_top_of(id: ThreadId, above: Inherited) -> Self {
        let Inherited { history, notes, left_out } = above;
        Self {
            id,
            name: None,
            last: 0,
            last_at_ms: 0,
            inherited: history.len(),
            history,
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
            family: None,
            children: BTreeMap::new(),
            living: 0,
            outbox: BTreeMap::new(),
            posts: BTreeMap::new(),
            subscriptions: BTreeMap::new(),
            events: BTreeMap::new(),
            safe: 0,
            closed: None,
            compaction: Compaction::default(),
            summarizes: None,
            notes,
            left_out,
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
        let mut step = Step {
            thread: self.id,
            number,
            at_ms: arrival.at_ms,
            told: 0,
            posted: 0,
            moved: false,
            effects: Vec::new(),
        };
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
            Record::Post(post) => self.posted(&mut step, post),
            Record::Delivered(receipt) => self.delivered(&mut step, receipt),
            Record::Event(event) => self.event(&mut step, event),
            Record::Compact(compact) => self.compact(&mut step, compact),
        };
        // (b) Nobody sleeps beside an input that the model has not seen, whichever of the two came first.
        if !self.pending.is_empty() && self.only_sleeps() {
            self.release_open_calls(&mut step, AnsweredBy::Interrupted, "");
        }
        self.end_summary(&mut step);
        // (c) The calls that this record made, and only they, are asked of the world.
        let made = CallId { number, index: 0 };
        step.effects.extend(self.open.range(made..).filter_map(|(&id, call)| call.asked(self.id, id)));
        // (d) The clients are told what the thread is suspended on, if it is.
        self.note(&step);
        if (step.told > 0 || step.moved) && !self.wants_completion() && self.closed.is_none() {
            let waits = self.standing().waits;
            step.tell(Shown::Waiting(waits));
        }
        Applied { outcome, effects: step.effects }
    }

    /// The prompt that the thread wants answered now, if any. It wants the same one until a record changes that.
    pub fn prompt(&self) -> Option<Prompt> {
        self.wants_completion().then(|| Prompt { thread: self.id, seen: self.last, history: self.view() })
    }

    /// The history and the inputs that wait to enter it: what a prompt of now would hold, and what a child inherits.
    pub fn view(&self) -> History {
        let mut view = self.history.clone();
        self.pending.iter().for_each(|(_, item)| view.push(item.clone()));
        view
    }

    /// What the thread has asked of tools, timers and other threads and may have been forgotten: to be asked again, under the
    /// same names, when the thread comes back from the journal.
    pub fn owed(&self) -> Vec<Effect> {
        let calls = self.open.iter().filter_map(|(&id, call)| call.asked(self.id, id));
        let digest = |(call, due_ms)| Effect::Arm { thread: self.id, call, due: Due::At(due_ms) };
        let posts = self.outbox.values().cloned().map(Effect::Post);
        calls.chain(self.digests().map(digest)).chain(posts).collect()
    }

    /// Whether a completion of a prompt that had seen `seen` should be cut: somebody wrote or stopped the thread since.
    pub fn interrupts(&self, seen: Number) -> bool {
        self.interrupted > seen
    }

    /// If nothing of the thread is in flight: what it waits for. It may then leave memory. (A prompt that was under way when
    /// the thread was stopped is for the owner to know.)
    pub fn rest(&self) -> Option<Rest> {
        if self.wants_completion() || !self.outbox.is_empty() {
            return None;
        }
        let mut timers: Vec<_> = self.digests().collect();
        for (&id, call) in &self.open {
            match call.phase {
                Phase::Dispatched | Phase::Sleeping(Due::Wall { .. }) => return None,
                Phase::Sleeping(Due::At(due_ms)) => timers.push((id, due_ms)),
                Phase::Accepted | Phase::Dozing => {}
            }
        }
        timers.sort_unstable();
        Some(Rest { thread: self.id, through: self.last, timers })
    }

    /// The number of the last record applied; 0 for none.
    pub fn last(&self) -> Number {
        self.last
    }

    /// What the model was asked about and what it said, or the summary of it. The inputs that wait for its next turn are in [`Thread::prompt`].
    pub fn history(&self) -> &History {
        &self.history
    }

    fn wants_completion(&self) -> bool {
        self.triggered > self.settled.max(self.stopped)
            && self.open.is_empty()
            && self.closed.is_none()
            && !self.compaction.holds()
    }

    /// The digests that wait for their time.
    fn digests(&self) -> impl Iterator<Item = (CallId, u64)> {
        self.subscriptions.iter().filter_map(|(&id, subscription)| Some((id, subscription.due_ms?)))
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
        let shown = self.shown(&item);
        self.history.push(shown);
        step.tell(Shown::Result(item));
        if self.open.is_empty() {
            self.triggered = step.number;
            self.count_refused_turn(step);
        }
        Some(call)
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

    /// Adds something that the model has not seen, for its next turn. Clients are told the whole of what is too long for it.
    fn enqueue(&mut self, number: Number, item: Arc<Item>) {
        let shown = self.shown(&item);
        self.pending.push_back((number, shown));
    }

    /// Puts into the history what a prompt that had seen `seen` held.
    fn take_up(&mut self, seen: Number) {
        while let Some((_, item)) = self.pending.pop_front_if(|(number, _)| *number <= seen) {
            self.history.push(item);
        }
    }
}

impl Call {
    fn cause(&self) -> Cause {
        Cause {
            name: self.name.clone(),
            provider_id: self.provider_id.clone(),
            arguments: if self.arguments.trim().is_empty() { "{}".to_owned() } else { self.arguments.clone() },
        }
    }

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

/// One application of one record: where it stands, and the effects gathered so far.
struct Step {
    thread: ThreadId,
    number: Number,
    at_ms: u64,
    told: u16,
    /// How many posts it has made.
    posted: u16,
    /// Whether it changed what the thread is suspended on without telling anything else.
    moved: bool,
    effects: Vec<Effect>,
}

impl Step {
    /// What a call gave rise to: this record's one event.
    fn event(&self, cause: &Cause, content: Vec<Content>) -> Arc<Item> {
        Arc::new(Item::Event(Event::of(CallId { number: self.number, index: 0 }, cause, content)))
    }

    fn tell(&mut self, shown: Shown) {
        let id = OutputId { number: self.number, index: self.told };
        self.told += 1;
        self.effects.push(Effect::Tell(Output { thread: self.thread, id, at_ms: self.at_ms, shown }));
    }
}
