//! The awake threads of a shard: where committed records meet the history they belong to.
//!
//! In: a tick's items from the journal. Out: what the world is asked, in order. Always: a thread's records are applied in
//! journal order; records of a sleeping thread are held until its history is there; a prompt is sent once for all records of
//! a tick; a thread with nothing in flight rests from the end of the tick on, and leaves memory then or, as far as the host
//! allows, somewhat later (see [`super::warm`]). One that rests in memory does what it would do when recalled.

use super::warm::{self, Place, Warm};
use crate::effect::{Effect, Outcome, Refusal};
use crate::id::{Number, ThreadId};
use crate::port::{FromJournal, NEVER, Rest, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use crate::record::{Arrival, Committed, Record};
use crate::thread::Thread;
use std::collections::{BTreeSet, HashMap};

/// About how many items one record causes: so much room is made at once.
const ASKED_BY_A_RECORD: usize = 3;

/// One item for one of the ports.
#[derive(Clone, Debug, PartialEq)]
pub enum ToWorld {
    /// For the journal.
    Journal(ToJournal),
    /// For the model.
    Model(ToModel),
    /// For the tools.
    Tool(ToTool),
    /// For the timers.
    Timer(ToTimer),
    /// For the gateway.
    Gateway(ToGateway),
    /// For another thread of this shard.
    Post(Arrival),
}

impl ToWorld {
    /// Whether it is for the gateway.
    pub fn is_for_gateway(&self) -> bool {
        matches!(self, ToWorld::Gateway(_))
    }

    /// The item, if it is for the gateway.
    pub fn into_gateway(self) -> Option<ToGateway> {
        match self {
            ToWorld::Gateway(item) => Some(item),
            _ => None,
        }
    }

    /// Whether it is for the journal.
    pub fn is_for_journal(&self) -> bool {
        matches!(self, ToWorld::Journal(_))
    }

    /// The item, if it is for the journal.
    pub fn into_journal(self) -> Option<ToJournal> {
        match self {
            ToWorld::Journal(item) => Some(item),
            _ => None,
        }
    }

    /// Whether it is for the model.
    pub fn is_for_model(&self) -> bool {
        matches!(self, ToWorld::Model(_))
    }

    /// The item, if it is for the model.
    pub fn into_model(self) -> Option<ToModel> {
        match self {
            ToWorld::Model(item) => Some(item),
            _ => None,
        }
    }

    /// Whether it is for the tools.
    pub fn is_for_tool(&self) -> bool {
        matches!(self, ToWorld::Tool(_))
    }

    /// The item, if it is for the tools.
    pub fn into_tool(self) -> Option<ToTool> {
        match self {
            ToWorld::Tool(item) => Some(item),
            _ => None,
        }
    }

    /// Whether it is for another thread.
    pub fn is_post(&self) -> bool {
        matches!(self, ToWorld::Post(_))
    }

    /// The item, if it is for another thread.
    pub fn into_post(self) -> Option<Arrival> {
        match self {
            ToWorld::Post(item) => Some(item),
            _ => None,
        }
    }

    /// The item, if it is for the timers.
    pub fn into_timer(self) -> Option<ToTimer> {
        match self {
            ToWorld::Timer(item) => Some(item),
            _ => None,
        }
    }
}

/// What a step of a tick sees: its items one by one, and then its end.
#[derive(Clone, Debug, PartialEq)]
pub enum Moment<T> {
    /// An item.
    Item(T),
    /// There are no more in this tick.
    TickEnd,
}

/// The threads that are in memory. They are looked up and never walked, so the table's order is nobody's.
#[derive(Clone, Debug, Default)]
pub struct Awake {
    threads: HashMap<ThreadId, Slot>,
    /// Those that something happened to in this tick.
    touched: Vec<ThreadId>,
    /// Those that are recalled because the process has started.
    starting: BTreeSet<ThreadId>,
    /// Those of the threads that rest.
    warm: Warm,
    /// The latest time of a record, in milliseconds since the Unix epoch.
    now_ms: u64,
    /// The number of threads that was told last: those that do not rest.
    told: usize,
}

#[derive(Clone, Debug)]
enum Slot {
    /// Its history was asked for; these records came meanwhile.
    Recalling(Vec<Committed>),
    /// It is here.
    Present(Box<Present>),
}

#[derive(Clone, Debug)]
struct Present {
    thread: Thread,
    /// The prompt under way, by what it has seen; not part of the fold, because a crash ends it.
    prompted: Option<Number>,
    /// Whether that prompt was cut already.
    cut: bool,
    /// About how many bytes it takes.
    bytes: usize,
    /// Its place among those that rest, while it does.
    resting: Option<Place>,
}

impl Awake {
    /// Takes what the journal sent in a tick, item by item, and the tick's end.
    pub fn step(&mut self, moment: Moment<FromJournal>) -> Vec<ToWorld> {
        let mut out = Vec::new();
        match moment {
            Moment::Item(item) => self.take(item, &mut out),
            Moment::TickEnd => self.end_tick(&mut out),
        }
        out
    }

    fn take(&mut self, item: FromJournal, out: &mut Vec<ToWorld>) {
        match item {
            FromJournal::Committed(records) => {
                out.reserve(ASKED_BY_A_RECORD * records.len());
                for record in records {
                    self.touched.push(record.arrival.thread);
                    self.admit(record, out);
                }
            }
            FromJournal::Recalled { thread, records, ancestry } => {
                self.touched.push(thread);
                self.recalled(thread, records, ancestry, out);
            }
            FromJournal::Wake { thread, last } => {
                self.starting.insert(thread);
                self.recall(thread, last + 1, Vec::new(), out);
            }
            FromJournal::Refused(arrival, why) => refuse(arrival, why, out),
            FromJournal::Resting(Rest { thread, through, timers }) => {
                let (calls, timers): (Vec<_>, Vec<_>) = timers.into_iter().partition(|(_, due_ms)| *due_ms == NEVER);
                out.extend(timers.into_iter().map(|(call, due_ms)| {
                    ToWorld::Timer(ToTimer::Arm { thread, call, due: crate::effect::Due::At(due_ms) })
                }));
                if !calls.is_empty() {
                    self.starting.insert(thread);
                    self.recall(thread, through + 1, Vec::new(), out);
                }
            }
            FromJournal::KeepWarm { max_bytes } => {
                self.warm.allow(max_bytes);
                self.let_go();
            }
            FromJournal::Reply(ticket, reply) => out.push(ToWorld::Gateway(ToGateway::Reply(ticket, reply))),
        }
    }

    fn end_tick(&mut self, out: &mut Vec<ToWorld>) {
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        touched.drain(..).for_each(|thread| self.settle(thread, out));
        // The room is used again in the next tick.
        self.touched = touched;
        self.let_go();
        let awake = self.threads.len() - self.warm.len();
        if self.told != awake {
            let change = awake as isize - self.told as isize;
            self.told = awake;
            out.push(ToWorld::Gateway(ToGateway::Awake(change)));
        }
    }

    /// Those that rest and may not stay leave memory.
    fn let_go(&mut self) {
        while let Some(thread) = self.warm.leaves(self.now_ms) {
            self.threads.remove(&thread);
        }
    }

    fn admit(&mut self, record: Committed, out: &mut Vec<ToWorld>) {
        let id = record.arrival.thread;
        self.now_ms = self.now_ms.max(record.arrival.at_ms);
        match self.threads.get_mut(&id) {
            Some(Slot::Present(present)) => {
                present.resting.take().into_iter().for_each(|place| self.warm.wakes(place));
                present.apply(record, out);
            }
            Some(Slot::Recalling(held)) => held.push(record),
            // A child that inherits is nothing without what it inherits.
            None if record.number == 1 && record.arrival.record.base().is_none() => {
                let mut present = Present::new(Thread::new(id), 0);
                present.apply(record, out);
                self.threads.insert(id, Slot::Present(Box::new(present)));
            }
            None => {
                let before = record.number;
                self.recall(id, before, vec![record], out);
            }
        }
    }

    fn recall(&mut self, thread: ThreadId, before: Number, held: Vec<Committed>, out: &mut Vec<ToWorld>) {
        self.threads.entry(thread).or_insert_with(|| {
            out.push(ToWorld::Journal(ToJournal::Recall { thread, before }));
            Slot::Recalling(held)
        });
    }

    fn recalled(
        &mut self,
        id: ThreadId,
        records: Result<Vec<Committed>, String>,
        ancestry: Vec<(ThreadId, Vec<Committed>)>,
        out: &mut Vec<ToWorld>,
    ) {
        let Some(Slot::Recalling(held)) = self.threads.remove(&id) else {
            panic!("invariant: one_order_per_thread: the history of {id} came without being asked for");
        };
        let is_start = self.starting.remove(&id);
        match records {
            Ok(records) => {
                let inherited = ancestry.iter().flat_map(|(_, records)| records);
                let all = records.iter().chain(inherited);
                let bytes = all.map(|record| warm::bytes_of(&record.arrival.record)).sum();
                let mut thread = Thread::inheriting(id, ancestry);
                for record in records {
                    // The effects of these records left before; what of them is still owed is said by the fold itself.
                    thread.apply(record);
                }
                let mut owed = thread.owed();
                if is_start {
                    owed.extend(thread.checks());
                }
                let mut present = Present::new(thread, bytes);
                held.into_iter().for_each(|record| present.apply(record, out));
                // What came meanwhile may have settled some of it: a result of a call that would be asked again, the timer
                // that woke the thread.
                let mut still = present.thread.owed();
                still.extend(present.thread.checks());
                route_all(owed.into_iter().filter(|effect| still.contains(effect)).collect(), out);
                self.threads.insert(id, Slot::Present(Box::new(present)));
            }
            Err(_damage) => held.into_iter().for_each(|record| refuse(record.arrival, Refusal::Damaged, out)),
        }
    }

    /// Ends the tick for a thread: cuts its prompt, or sends the one it wants; lets it rest if nothing is in flight.
    fn settle(&mut self, id: ThreadId, out: &mut Vec<ToWorld>) {
        let Some(Slot::Present(present)) = self.threads.get_mut(&id) else {
            return;
        };
        match present.prompted {
            Some(seen) if present.thread.interrupts(seen) && !present.cut => {
                present.cut = true;
                out.push(ToWorld::Model(ToModel::Cut { thread: id, seen }));
            }
            Some(_) => {}
            None => {
                if let Some(prompt) = present.thread.prompt() {
                    present.prompted = Some(prompt.seen);
                    present.cut = false;
                    out.push(ToWorld::Model(ToModel::Prompt(prompt)));
                } else if let Some(rest) = present.thread.rest() {
                    out.push(ToWorld::Journal(ToJournal::Rest(rest)));
                    present.resting = Some(self.warm.rests(id, present.bytes, self.now_ms));
                }
            }
        }
    }
}

impl Present {
    fn new(thread: Thread, bytes: usize) -> Self {
        Self { thread, prompted: None, cut: false, bytes, resting: None }
    }

    fn apply(&mut self, record: Committed, out: &mut Vec<ToWorld>) {
        if let Record::Completion(crate::record::Completion { seen, .. })
        | Record::Failure(crate::record::Failure { seen, .. }) = &record.arrival.record
            && self.prompted == Some(*seen)
        {
            self.prompted = None;
        }
        let ticket = record.arrival.ticket;
        self.bytes += warm::bytes_of(&record.arrival.record);
        let applied = self.thread.apply(record);
        route_all(applied.effects, out);
        if let Some(ticket) = ticket {
            out.push(ToWorld::Gateway(ToGateway::Answer(ticket, applied.outcome)));
        }
    }
}

/// Whoever sent it is told: a client, or another thread.
fn refuse(arrival: Arrival, why: Refusal, out: &mut Vec<ToWorld>) {
    if let Record::Post(post) = &arrival.record {
        out.push(ToWorld::Post(post.receipt(arrival.at_ms, Some(why.undelivered()))));
    }
    out.extend(arrival.ticket.map(|ticket| ToWorld::Gateway(ToGateway::Answer(ticket, Outcome::Refused(why)))));
}

fn route_all(effects: Vec<Effect>, out: &mut Vec<ToWorld>) {
    out.extend(effects.into_iter().map(|effect| match effect {
        Effect::Prompt(prompt) => ToWorld::Model(ToModel::Prompt(prompt)),
        Effect::Cut { thread, seen } => ToWorld::Model(ToModel::Cut { thread, seen }),
        Effect::Dispatch(dispatch) => ToWorld::Tool(ToTool::Dispatch(dispatch)),
        Effect::Cancel(dispatch) => ToWorld::Tool(ToTool::Cancel(dispatch)),
        Effect::Arm { thread, call, due } => ToWorld::Timer(ToTimer::Arm { thread, call, due }),
        Effect::Disarm { thread, call } => ToWorld::Timer(ToTimer::Disarm { thread, call }),
        Effect::Tell(output) => ToWorld::Gateway(ToGateway::Output(output)),
        Effect::Post(arrival) => ToWorld::Post(arrival),
        Effect::Respond(respond) => ToWorld::Tool(ToTool::Respond(respond)),
        Effect::Close(thread) => ToWorld::Tool(ToTool::Close(thread)),
        Effect::Check(dispatch) => ToWorld::Tool(ToTool::Check(dispatch)),
    }));
}
