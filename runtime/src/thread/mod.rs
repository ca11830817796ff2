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
//! | what users ask | `Message`, `Stop`, `StopAll` | `admit` |
//! | what models answer | `Completion`, `Failure` | `complete` |
//! | what tools answer | `Accepted`, `Result`, `Deadline`, `View`, `Lost` | `call`, with `open` |
//! | what people are asked, and answer | `Asked`, `Answered`, `Responded` | `ask` |
//! | what timers say | `Armed`, `Fired` | `sleep` |
//! | what other threads of the tree send | `Post`, `Delivered` | `post`, with `child` and `close` |
//! | what subscriptions produce | `Event` | `event` |
//! | how much of everything it may have | `Bounds` | here |
//! | what makes the history shorter | `Compact`, `Post` | `compact`, with `summarize`, `notes` and `long` |

mod admit;
mod ask;
mod call;
mod child;
mod close;
mod compact;
mod complete;
mod event;
pub mod invariant;
mod long;
mod notes;
mod open;
mod post;
mod sleep;
mod standing;
mod summarize;
mod terms;
mod why;

pub use compact::{COVERED_PERCENT, GROWTH_PERCENT, HALVINGS_MAX, SUMMARY_PERCENT_MAX};
pub use long::{FILE_SHOWN_BYTES_MAX, FITTED_BYTES_MAX, FITTED_PICTURE_BYTES_MAX};
pub use long::{PICTURE_SHOWN_BYTES_MAX, READ_BYTES_MAX, RESULT_SHOWN_BYTES_MAX};
pub use notes::{NOTE_BYTES_MAX, NOTES_MAX};
pub use standing::{Standing, State};
pub use why::Why;

use crate::effect::{Due, Effect, Outcome, Output, Prompt, Shown};
use crate::history::{AnsweredBy, Event, History, Item};
use crate::id::{CallId, InputId, Number, OutputId, PostId, ThreadId};
use crate::port::{NEVER, Rest};
use crate::record::{Arrival, Bounds, Cause, Committed, Content, Record, Terms};
use ask::{Fate, Question};
use child::{Child, Family};
use compact::{Compaction, Unsummarized};
use event::Subscription;
use notes::Notes;
use open::{Answer, Call, Chosen, Phase};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use summarize::Summarizing;

/// How many calls of one turn are kept at all. More than any model makes; the number keeps a broken provider from
/// overflowing the names of calls and outputs.
pub const CALLS_KEPT_MAX: usize = 4_096;

/// How many children `list_children` names.
pub const CHILDREN_LISTED_MAX: usize = 100;

/// How many questions a thread keeps. The oldest that is answered or withdrawn is forgotten for a new one; when all wait for
/// an answer, a new one is refused.
pub const QUESTIONS_MAX: usize = 10_000;

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
    /// Calls that were answered by a substitute: their real result is still welcome. One that was approved after that is done
    /// all the same, and is asked of the world as an open one is.
    substituted: BTreeMap<CallId, Call>,
    /// Calls that have their real answer, and the record that brought it.
    answered: BTreeMap<CallId, Number>,
    /// The inputs' own ids, as long as the thread lives.
    ids: BTreeMap<InputId, Number>,
    /// The last record that asks for a completion.
    triggered: Number,
    /// The first record since the last answer at which a prompt was wanted, and its time: no prompt under way has seen less.
    asked: Option<(Number, u64)>,
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
    /// What people were asked, by the number of the record.
    questions: BTreeMap<Number, Question>,
    /// Records from which an event follows that is no call's result: that one is denied, or timed out, or is not done.
    noticed: BTreeSet<Number>,
    /// The record that closed it.
    closed: Option<Number>,
    /// Its bounds, and the widest of each that it ever had: what was begun under a wider one is not undone.
    bounds: Bounds,
    widest: Bounds,
    /// The terms on which it works, and the tokens that its completions and its children's shares have taken.
    terms: Terms,
    spent_tokens: u64,
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
            questions: BTreeMap::new(),
            noticed: BTreeSet::new(),
            closed: None,
            bounds: Bounds::default(),
            widest: Bounds::default(),
            terms: Terms::default(),
            spent_tokens: 0,
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
            views: 0,
            moved: false,
            effects: Vec::new(),
        };
        // (a) The record does what its family says.
        let outcome = match arrival.record {
            Record::Message(message) => self.message(&mut step, message),
            Record::Stop(stop) => self.stop(&mut step, stop, false),
            Record::StopAll(stop) => self.stop(&mut step, stop, true),
            Record::Completion(completion) => self.completion(&mut step, completion),
            Record::Failure(failure) => self.failure(&mut step, failure),
            Record::Accepted(call) => self.accepted(&step, call),
            Record::Result(result) => self.result(&mut step, result),
            Record::Armed { call, due_ms } => self.armed(&mut step, call, due_ms),
            Record::Fired(call) => self.fired(&mut step, call),
            Record::Post(post) => self.posted(&mut step, post),
            Record::Delivered(receipt) => self.delivered(&mut step, receipt),
            Record::Event(event) => self.event(&mut step, event),
            Record::Bounds(bounds) => self.bound(&step, bounds),
            Record::Asked(question) => self.asked_of_a_person(&mut step, question),
            Record::Answered(verdict) => self.verdict(&mut step, verdict),
            Record::Responded(question) => self.responded(&step, question),
            Record::Deadline { call, due_ms } => self.deadline(&mut step, call, due_ms),
            Record::View(update) => self.view_update(&mut step, update),
            Record::Compact(compact) => self.compact(&mut step, compact),
            Record::Lost(call) => self.lost(&mut step, call),
        };
        // (b) Nobody sleeps beside an input that the model has not seen, whichever of the two came first.
        if !self.pending.is_empty() && self.only_sleeps() {
            self.release_open_calls(&mut step, AnsweredBy::Interrupted, "");
        }
        self.end_summary(&mut step);
        // (c) The calls that this record made, and only they, are asked of the world.
        let made = CallId { number, index: 0 };
        step.effects.extend(self.open.range(made..).filter_map(|(&id, call)| call.asked(self, id)));
        // (d) The clients are told what the thread is suspended on, if it is.
        self.note(&step);
        if (step.told > step.views || step.moved) && !self.wants_completion() && self.closed.is_none() {
            let waits = self.standing().waits;
            step.tell(Shown::Waiting(waits));
        }
        Applied { outcome, effects: step.effects }
    }

    /// The prompt that the thread wants answered now, if any. It wants the same one until a record changes that.
    pub fn prompt(&self) -> Option<Prompt> {
        self.wants_completion().then(|| Prompt {
            thread: self.id,
            seen: self.last,
            history: self.view(),
            terms: self.terms.clone(),
            bounds: self.bounds,
        })
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
        let calls = self.calls().filter_map(|(id, call)| call.asked(self, id));
        let arm = |(call, due_ms)| Effect::Arm { thread: self.id, call, due: Due::At(due_ms) };
        let posts = self.outbox.values().cloned().map(Effect::Post);
        calls.chain(self.due().map(arm)).chain(posts).collect()
    }

    /// What to ask after a start: whether the tools that have taken calls over still know them.
    pub fn checks(&self) -> Vec<Effect> {
        self.with_tools().map(|(id, call)| Effect::Check(call.dispatch(self, id))).collect()
    }

    /// The calls that tools have taken over and that are waited for.
    fn with_tools(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.calls().filter(|(_, call)| match call.phase {
            Phase::Accepted => true,
            Phase::Asking(_) => !self.awaits_approval(call),
            _ => false,
        })
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
        let mut timers: Vec<_> = self.due().collect();
        for (id, call) in self.calls() {
            match call.phase {
                Phase::Dispatched | Phase::Responding(_) | Phase::Sleeping(Due::Wall { .. }) => return None,
                Phase::Sleeping(Due::At(due_ms)) => timers.push((id, due_ms)),
                Phase::Accepted | Phase::Dozing | Phase::Asking(_) | Phase::Dropped => {}
            }
        }
        timers.extend(self.with_tools().map(|(id, _)| (id, NEVER)));
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

    /// The calls of which something is still expected.
    fn calls(&self) -> impl Iterator<Item = (CallId, &Call)> {
        self.open.iter().chain(&self.substituted).map(|(&id, call)| (id, call))
    }

    /// The call of which something is still expected.
    fn call_mut(&mut self, id: CallId) -> Option<&mut Call> {
        self.open.get_mut(&id).or_else(|| self.substituted.get_mut(&id))
    }

    /// The digests that wait for their time, and the calls that time out; sleeps are none of them.
    fn due(&self) -> impl Iterator<Item = (CallId, u64)> {
        let digests = self.subscriptions.iter().filter_map(|(&id, subscription)| Some((id, subscription.due_ms?)));
        digests.chain(self.calls().filter_map(|(id, call)| Some((id, call.due_ms?))))
    }

    /// Who is above it: the root first, its parent last.
    fn ancestors(&self) -> &[ThreadId] {
        self.family.as_ref().map_or(&[], |family| &family.ancestors)
    }

    /// Who made it; nothing for a root.
    fn parent(&self) -> Option<ThreadId> {
        self.ancestors().last().copied()
    }

    /// Whether calls are open and all of them are sleeps.
    fn only_sleeps(&self) -> bool {
        !self.open.is_empty() && self.open.values().all(Call::is_sleep)
    }

    /// Notes since when the thread wants an answer, or nothing at all.
    fn note(&mut self, step: &Step) {
        if self.wants_completion() {
            self.asked.get_or_insert((step.number, step.at_ms));
            self.idle_since_ms = None;
        } else if self.open.is_empty() {
            self.idle_since_ms.get_or_insert(step.at_ms);
        } else {
            self.idle_since_ms = None;
        }
    }

    /// The bounds are others from here on.
    fn bound(&mut self, step: &Step, bounds: Bounds) -> Outcome {
        self.widest = self.widest.widened(&bounds);
        self.bounds = bounds;
        Outcome::Taken(step.number)
    }

    /// Whether the thread has as many inputs as it keeps that its model has not seen.
    fn is_full(&self) -> bool {
        self.pending.len() >= self.bounds.pending_max.get() as usize
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

/// One application of one record: where it stands, and the effects gathered so far.
struct Step {
    thread: ThreadId,
    number: Number,
    at_ms: u64,
    told: u16,
    /// How many posts it has made.
    posted: u16,
    /// How many of the outputs are views, which say nothing of the thread.
    views: u16,
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
