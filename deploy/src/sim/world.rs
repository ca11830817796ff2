//! The simulated world: everything around the real fold and the real join, without a clock, a task or a file.
//!
//! In: a scenario, an agent, choices. Out: a life from the first input to the last silence, or the promise that it broke.
//! Always: adapters keep their contracts (a client and a service deliver until they are answered; what lives in our process
//! dies with it); everything that a contract leaves open is a choice.

use super::agent::{Later, answer, cut, text};
use super::journal::{Journal, REFUSED};
use super::log::{Broken, Log, broken};
use super::scenario::{Input, Start, What};
use super::view::{View, words};
use super::{Bounds, Sim, promise};
use crate::model::Reply;
use slackwater_core::effect::{Outcome, Prompt};
use slackwater_core::flow::awake::{Awake, Moment, ToWorld};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, Number, ThreadId, Ticket};
use slackwater_core::port::{FromJournal, ToGateway, ToTool};
use slackwater_core::record::{
    Arrival, Content, End, Failure, FailureClass, Message, Origin, Proof, Record, Stop, Verdict,
};
use std::collections::{BTreeMap, BTreeSet};

/// When the simulated time begins, in milliseconds since the Unix epoch: 2031-01-01 00:00 UTC.
pub(super) const START_MS: u64 = 1_925_078_400_000;

pub(super) type Key = (ThreadId, Number);

/// Something on its way to the shard.
#[derive(Clone, Debug)]
pub(super) struct Flying {
    due_ms: u64,
    /// Whether it comes then; or then at the earliest.
    exact: bool,
    pub(super) cargo: Cargo,
}

#[derive(Clone, Debug)]
pub(super) enum Cargo {
    /// From somebody who sends it until it is answered.
    Delivery(usize),
    /// From the model: the answer to a prompt.
    Answer(Key),
    /// From an adapter in our process.
    Record(ThreadId, Record),
    /// From an adapter in our process: these, in this order.
    Records(ThreadId, Vec<Record>),
    /// From the timer.
    Fired(ThreadId, CallId),
    /// From the journal.
    Recalled(ThreadId, Number),
}

/// Something that its sender sends until it is answered.
#[derive(Debug)]
pub(super) struct Delivery {
    pub(super) name: String,
    pub(super) thread: ThreadId,
    pub(super) record: Record,
    /// Which input of the scenario it is, if it is one.
    pub(super) input: Option<usize>,
    pub(super) outcome: Option<Outcome>,
    /// The sender has given it up.
    pub(super) withdrawn: bool,
}

/// A prompt that the model is answering.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) prompt: Prompt,
    pub(super) reply: Reply,
    /// Where it was cut, if it was.
    pub(super) cut: Option<usize>,
}

pub(super) struct World<'a> {
    pub(super) sim: &'a Sim,
    pub(super) log: &'a mut Log,
    /// What is left of the faults that may happen.
    left: Bounds,
    pub(super) now_ms: u64,
    pub(super) flying: Vec<Flying>,
    pub(super) journal: Journal,
    awake: Awake,
    pub(super) threads_awake: isize,
    pub(super) asked: BTreeMap<Key, Asking>,
    pub(super) deliveries: Vec<Delivery>,
    launched: Vec<bool>,
    /// The questions for which somebody has made up his mind.
    decided: BTreeSet<(ThreadId, Number)>,
    /// Who waits for an answer, by ticket. A crash forgets them.
    pub(super) tickets: BTreeMap<u64, usize>,
    ticket: u64,
    /// What tools that do nothing twice have said.
    pub(super) done: BTreeMap<String, Later>,
    pub(super) view: View,
}

impl<'a> World<'a> {
    pub(super) fn new(sim: &'a Sim, log: &'a mut Log) -> Self {
        Self {
            sim,
            log,
            left: sim.bounds.clone(),
            now_ms: 0,
            flying: Vec::new(),
            journal: Journal::default(),
            awake: Awake::default(),
            threads_awake: 0,
            asked: BTreeMap::new(),
            deliveries: Vec::new(),
            launched: vec![false; sim.inputs.len()],
            decided: BTreeSet::new(),
            tickets: BTreeMap::new(),
            ticket: 0,
            done: BTreeMap::new(),
            view: View { outcomes: vec![None; sim.inputs.len()], ..View::default() },
        }
    }

    /// Lives until nothing moves any more.
    pub(super) fn live(&mut self) -> Result<(), Broken> {
        for (place, input) in self.sim.inputs.iter().enumerate() {
            match input.start {
                _ if matches!(input.what, What::Decision(_)) => {}
                Start::AnyTime => self.launch(place, 0, false),
                Start::At(at_ms) => self.launch(place, at_ms, true),
                Start::Acknowledged | Start::Quiet | Start::Asked => {}
            }
        }
        loop {
            while !self.flying.is_empty() {
                self.tick()?;
                self.sim.always.iter().for_each(|holds| holds(&self.view));
                if self.log.counts.steps > self.left.steps_max {
                    return broken(
                        "it_comes_to_rest",
                        format!("after {} steps the agent still does something", self.left.steps_max),
                    );
                }
            }
            let waiting = |place: &usize| !self.launched[*place] && self.sim.inputs[*place].start == Start::Quiet;
            match (0..self.sim.inputs.len()).find(waiting) {
                Some(place) => self.launch(place, 0, false),
                None => break,
            }
        }
        promise::at_the_end(self)?;
        if self.threads_awake != 0 {
            return broken(
                "an_idle_thread_is_data",
                format!("{} threads are in memory at the end", self.threads_awake),
            );
        }
        self.sim.check.iter().for_each(|holds| holds(&self.view));
        Ok(())
    }

    pub(super) fn tell(&mut self, line: impl FnOnce(&Self) -> String) {
        if self.log.story.is_some() {
            let line = format!("{:>7} ms  {}", self.now_ms, line(self));
            self.log.story.iter_mut().for_each(|story| story.push(line.clone()));
        }
    }

    /// The sender of an input begins to send it, if it does at all.
    fn launch(&mut self, place: usize, due_ms: u64, exact: bool) {
        self.launched[place] = true;
        let Input { address, what, maybe, .. } = &self.sim.inputs[place];
        if *maybe && self.log.choices.order(2) == 0 {
            return self.follow(place);
        }
        let id = InputId(format!("input-{place}"));
        let origin = Origin { who: "simulated user".to_owned(), proof: Proof::Process };
        let (name, record) = match what {
            What::Message(text) => (
                format!("{text:?} to {}", self.sim.name(address.thread)),
                Record::Message(Message {
                    id,
                    origin,
                    content: vec![Content::Text(text.clone())],
                    thread_name: address.name.clone(),
                    metadata: None,
                }),
            ),
            What::Stop => (format!("stop of {}", self.sim.name(address.thread)), Record::Stop(Stop { id, origin })),
            What::StopAll => {
                (format!("stop of all of {}", self.sim.name(address.thread)), Record::StopAll(Stop { id, origin }))
            }
            What::Decision(answer) => {
                let mut open = self.view.questions(address.thread).into_iter();
                let Some(question) = open.find(|question| !self.decided.contains(&(address.thread, *question))) else {
                    // Nobody is asked.
                    return self.follow(place);
                };
                self.decided.insert((address.thread, question));
                let verdict = Verdict { id, origin, question, answer: answer.clone() };
                (
                    format!("{answer:?} for question {question} of {}", self.sim.name(address.thread)),
                    Record::Answered(verdict),
                )
            }
        };
        let thread = address.thread;
        let delivery = Delivery { name, thread, record, input: Some(place), outcome: None, withdrawn: false };
        self.send(delivery, due_ms, exact);
    }

    /// People answer what is asked of them.
    fn decide(&mut self) {
        for place in 0..self.sim.inputs.len() {
            let Input { address, what, start, .. } = &self.sim.inputs[place];
            let (thread, start) = (address.thread, *start);
            if self.launched[place] || start == Start::Quiet || !matches!(what, What::Decision(_)) {
                continue;
            }
            let is_new = |question: &Number| !self.decided.contains(&(thread, *question));
            if self.view.questions(thread).iter().any(is_new) {
                match start {
                    Start::At(at_ms) => self.launch(place, at_ms.max(self.now_ms), true),
                    _ => self.launch(place, 0, false),
                }
            }
        }
    }

    /// What waited for this input's acknowledgement is sent.
    pub(super) fn follow(&mut self, place: usize) {
        if self.sim.inputs.get(place + 1).is_some_and(|next| next.start == Start::Acknowledged)
            && !self.launched[place + 1]
        {
            self.launch(place + 1, 0, false);
        }
    }

    pub(super) fn send(&mut self, delivery: Delivery, due_ms: u64, exact: bool) {
        self.fly(due_ms, exact, Cargo::Delivery(self.deliveries.len()));
        self.deliveries.push(delivery);
    }

    pub(super) fn fly(&mut self, due_ms: u64, exact: bool, cargo: Cargo) {
        self.flying.push(Flying { due_ms, exact, cargo });
    }

    /// What may arrive next, the earliest first. Everything can be late except for what comes at a known time; that time does
    /// not pass while our own process has something to do.
    fn candidates(&self) -> Vec<usize> {
        let horizon = self.flying.iter().filter(|flying| flying.exact).map(|flying| flying.due_ms).min();
        let mut candidates: Vec<usize> =
            (0..self.flying.len()).filter(|&at| horizon.is_none_or(|ms| self.flying[at].due_ms <= ms)).collect();
        candidates.sort_by_key(|&at| self.flying[at].due_ms);
        candidates
    }

    /// One tick: (a) things arrive, (b) they are committed, (c) they meet their threads, (d) what follows leaves.
    fn tick(&mut self) -> Result<(), Broken> {
        // (a) The first one, and those that the tick catches with it.
        let candidates = self.candidates();
        let first = candidates[self.log.choices.order(candidates.len())];
        let mut items = Vec::new();
        let mut batch = Vec::new();
        self.arrive(first, &mut items, &mut batch);
        for _ in 1..self.left.together {
            // A tick does not wait for what has its own time.
            let (flying, now_ms) = (&self.flying, self.now_ms);
            let catches = |at: &usize| !flying[*at].exact || flying[*at].due_ms <= now_ms;
            let candidates: Vec<usize> = self.candidates().into_iter().filter(catches).collect();
            match self.log.choices.order(1 + candidates.len()) {
                0 => break,
                more => self.arrive(candidates[more - 1], &mut items, &mut batch),
            }
        }
        // (b) A crash may come before the sync, within it, or after it.
        let written = batch.len();
        self.journal.append(batch);
        let mut dies_after_sync = false;
        if written > 0 {
            self.log.counts.commits += 1;
            if self.left.crashes > 0 {
                match self.log.choices.fault(2 + written) {
                    0 => {}
                    last if last == written + 1 => dies_after_sync = true,
                    lost_or_torn => return self.crash(lost_or_torn - 1, written),
                }
            }
            let (committed, refused) = self.journal.sync();
            committed.iter().try_for_each(|committed| promise::keep(self.view.apply(committed, &self.journal)))?;
            self.decide();
            if let [first, ..] = &committed[..] {
                let (first, count) = (first.number, committed.len());
                self.tell(|_| format!("    committed: {count}, from record {first} on"));
            }
            items.push(FromJournal::Committed(committed));
            items.extend(refused.into_iter().map(|arrival| FromJournal::Refused(arrival, REFUSED)));
        }
        // (c) The real join and the real fold.
        let mut asked = self.step(items);
        // (d) All of it leaves, or the beginning.
        if dies_after_sync {
            let leaves = |item: &ToWorld| {
                matches!(item, ToWorld::Tool(ToTool::Dispatch(_)) | ToWorld::Gateway(ToGateway::Answer(..)))
            };
            let ends: Vec<usize> = (0..asked.len()).filter(|&at| leaves(&asked[at])).map(|at| at + 1).collect();
            let leave = self.log.choices.order(1 + ends.len());
            asked.truncate(if leave == 0 { 0 } else { ends[leave - 1] });
        }
        for item in asked {
            self.ask(item)?;
        }
        if dies_after_sync { self.crash(written, written) } else { Ok(()) }
    }

    fn step(&mut self, items: Vec<FromJournal>) -> Vec<ToWorld> {
        let mut asked = Vec::new();
        for item in items {
            asked.extend(self.awake.step(Moment::Item(item)));
        }
        asked.extend(self.awake.step(Moment::TickEnd));
        asked
    }

    fn arrive(&mut self, at: usize, items: &mut Vec<FromJournal>, batch: &mut Vec<Arrival>) {
        let Flying { due_ms, cargo, .. } = self.flying.remove(at);
        self.now_ms = self.now_ms.max(due_ms);
        self.view.now_ms = self.now_ms;
        self.log.counts.steps += 1;
        let (ticket, thread, record) = match cargo {
            Cargo::Recalled(thread, before) => {
                self.tell(|world| format!("{} is read from the journal", world.sim.name(thread)));
                items.push(self.journal.recall(thread, before));
                return;
            }
            Cargo::Delivery(at) => {
                self.ticket += 1;
                self.tickets.insert(self.ticket, at);
                self.tell(|world| format!("{} arrives", world.deliveries[at].name));
                if self.duplicates() {
                    self.fly(self.now_ms, false, Cargo::Delivery(at));
                }
                let Delivery { thread, record, .. } = &self.deliveries[at];
                (Some(Ticket { gateway: 0, request: self.ticket }), *thread, record.clone())
            }
            Cargo::Answer(key) => {
                let asking = self.asked.remove(&key).expect("invariant: an answer that is on its way was asked for");
                let record = self.answered(&asking);
                self.tell(|world| format!("the model answers {}: {}", world.sim.name(key.0), spoken(&record)));
                if self.duplicates() {
                    self.fly(self.now_ms, false, Cargo::Record(key.0, record.clone()));
                }
                (None, key.0, record)
            }
            Cargo::Records(thread, records) => {
                for record in records {
                    self.tell(|world| format!("for {}: {}", world.sim.name(thread), spoken(&record)));
                    batch.push(Arrival { ticket: None, thread, at_ms: START_MS + self.now_ms, record });
                }
                return;
            }
            Cargo::Record(thread, record) => {
                self.tell(|world| format!("for {}: {}", world.sim.name(thread), spoken(&record)));
                (None, thread, record)
            }
            Cargo::Fired(thread, call) => {
                self.tell(|world| format!("the timer of {} comes due", world.sim.name(thread)));
                (None, thread, Record::Fired(call))
            }
        };
        batch.push(Arrival { ticket, thread, at_ms: START_MS + self.now_ms, record });
    }

    /// Whether what arrives now will arrive once more.
    fn duplicates(&mut self) -> bool {
        if self.left.duplicates == 0 || self.log.choices.fault(2) == 0 {
            return false;
        }
        self.left.duplicates -= 1;
        self.log.counts.duplicates += 1;
        self.log.counts.steps += 1;
        self.tell(|_| "    and will be delivered once more".to_owned());
        true
    }

    fn answered(&mut self, asking: &Asking) -> Record {
        if let Some(chunks) = asking.cut {
            return cut(&asking.reply, &asking.prompt, chunks);
        }
        if self.left.model_failures > 0 && self.log.choices.fault(2) == 1 {
            self.left.model_failures -= 1;
            self.log.counts.model_failures += 1;
            self.log.counts.steps += 1;
            let message = "the simulated provider cannot be reached".to_owned();
            let (seen, class) = (asking.prompt.seen, FailureClass::Transient);
            return Record::Failure(Failure { seen, class, message, attempts: 4 });
        }
        answer(&asking.reply, &asking.prompt)
    }

    /// The process dies and starts again. Of the tail that was not synced so many records are kept.
    fn crash(&mut self, kept: usize, written: usize) -> Result<(), Broken> {
        self.left.crashes -= 1;
        self.view.crashes += 1;
        let counts = &mut self.log.counts;
        counts.steps += 1;
        let how = match kept {
            _ if kept == written => {
                counts.crashes_kept += 1;
                "after the sync".to_owned()
            }
            0 => {
                counts.crashes_lost += 1;
                "before the sync: what was written is lost".to_owned()
            }
            _ => {
                counts.crashes_torn += 1;
                format!("during the sync: {kept} of {written} are kept")
            }
        };
        self.tell(|_| format!("    CRASH {how}"));
        let kept = self.journal.crash(kept);
        kept.iter().try_for_each(|committed| promise::keep(self.view.apply(committed, &self.journal)))?;
        self.decide();
        self.awake = Awake::default();
        self.threads_awake = 0;
        self.asked.clear();
        self.tickets.clear();
        self.flying.retain(|flying| matches!(flying.cargo, Cargo::Delivery(_)));
        for at in 0..self.deliveries.len() {
            let waits = self.deliveries[at].outcome.is_none() && !self.deliveries[at].withdrawn;
            if waits && !self.flying.iter().any(|flying| matches!(flying.cargo, Cargo::Delivery(of) if of == at)) {
                self.fly(self.now_ms, false, Cargo::Delivery(at));
            }
        }
        let start = self.journal.start();
        for item in self.step(start) {
            self.ask(item)?;
        }
        Ok(())
    }
}

/// A record in words.
fn spoken(record: &Record) -> String {
    match record {
        Record::Completion(completion) => {
            let (blocks, cut) = (completion.blocks.clone(), completion.end == End::Cut);
            words(&Item::Assistant { number: completion.seen + 1, blocks, cut })
        }
        Record::Failure(failure) => format!("failure: {}", failure.message),
        Record::Accepted(call) => format!("call {call} is taken over"),
        Record::Result(result) => format!("call {} has its result {:?}", result.call, text(&result.content)),
        other => format!("{other:?}"),
    }
}
