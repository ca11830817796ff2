//! A world that answers a thread: people, a model, tools and timers that play by the rules, in any order and at any time.
//!
//! In: a tape of choices. Out: a life of records. Always: what the world has open is what the fold says is owed; a turn
//! stands directly after what its prompt held; a record that comes again changes nothing; a crash loses nothing.

use crate::compact::{by_hand, crossed, overflow};
use crate::story::{
    CALLS_PER_TURN_MAX, approval, call, choice, committed, completion, failure, message, person, question, result, say,
    verdict,
};
use crate::tape::Tape;
use slackwater_core::effect::{Due, Effect, Outcome, Prompt, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, Number, PostId, ThreadId};
use slackwater_core::record::{
    Asks, Block, Committed, CompactWhy, Decision, End, Origin, Post, PostBody, Proof, Record, Stop, Undelivered, Usage,
};
use slackwater_core::thread::{Applied, Thread};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) struct World {
    pub(crate) thread: Thread,
    pub(crate) records: Vec<Committed>,
    tape: Tape,
    /// Whether the process may die; replaying costs the whole history.
    pub(crate) crashes: bool,
    /// The prompt under way, and whether the model was told to cut it.
    pub(crate) prompt: Option<(Prompt, bool)>,
    /// Calls that tools were asked to do, and whether they took them over.
    pub(crate) asked: BTreeMap<CallId, bool>,
    /// Calls that were cancelled and may be answered all the same.
    late: Vec<CallId>,
    /// Questions that wait for an answer, by their numbers, and whether each is one for an approval.
    questions: BTreeMap<Number, (CallId, bool)>,
    /// Calls whose tool is to be told what was chosen.
    pub(crate) responding: BTreeMap<CallId, Number>,
    approved: BTreeSet<CallId>,
    /// Calls that a message came before while they waited for an approval: what becomes of them is an event.
    pub(crate) held: BTreeSet<CallId>,
    /// Timers; those without a moment are not armed yet.
    pub(crate) timers: BTreeMap<CallId, Option<u64>>,
    /// The messages taken, and how many late results.
    pub(crate) messages: Vec<Number>,
    pub(crate) events: usize,
    /// Whether histories get too long, and what makes a summary: its thread, and whether its birth was taken.
    pub(crate) summaries: bool,
    pub(crate) summarizer: Option<(Post, ThreadId, bool)>,
    /// What summaries have covered: messages, and how many events; and whether one was made since the prompt under way.
    pub(crate) covered: (Vec<Number>, usize),
    pub(crate) summarized: usize,
    pub(crate) rewritten: bool,
    /// Whether the model still makes calls.
    calls: bool,
    inputs: usize,
}

impl World {
    pub(crate) fn new(tape: Tape) -> Self {
        Self {
            thread: Thread::new(crate::story::THREAD),
            records: Vec::new(),
            tape,
            crashes: false,
            prompt: None,
            asked: BTreeMap::new(),
            late: Vec::new(),
            questions: BTreeMap::new(),
            responding: BTreeMap::new(),
            approved: BTreeSet::new(),
            held: BTreeSet::new(),
            timers: BTreeMap::new(),
            messages: Vec::new(),
            events: 0,
            summaries: false,
            summarizer: None,
            covered: (Vec::new(), 0),
            summarized: 0,
            rewritten: false,
            calls: true,
            inputs: 0,
        }
    }

    /// Lives until there are so many records, then a last message comes and everybody answers what is left.
    pub(crate) fn live(&mut self, records: usize) {
        while self.records.len() < records {
            self.act();
            // The tick ends here, or goes on with the next record.
            if self.tape.pick(4) != 3 {
                self.settle();
            }
            self.compare();
        }
        self.calls = false;
        // What comes late for a thread that was stopped is read with its next input.
        loop {
            self.message();
            self.settle();
            while self.answer_something() {
                self.settle();
                self.compare();
            }
            if self.thread.standing().pending == 0 {
                break;
            }
        }
        self.all_is_answered();
    }

    fn act(&mut self) {
        match self.tape.pick(18) {
            0..=3 if self.prompt.is_some() => self.model(),
            4..=7 if !self.asked.is_empty() || !self.late.is_empty() => self.tool(),
            8..=9 if !self.timers.is_empty() => self.timer(),
            10 => self.message(),
            11 if self.tape.pick(3) == 0 => self.stop(),
            12 if !self.records.is_empty() => self.again(),
            13 if self.crashes => self.crash(),
            14 if !self.questions.is_empty() => self.decide(),
            15 if !self.responding.is_empty() => self.respond(),
            14 | 15 if self.summarizer.is_some() && self.tape.pick(2) == 0 => self.summarizer(),
            14 if self.summaries => self.compact(),
            _ if self.answer_something() => {}
            _ => self.message(),
        }
    }

    /// Whoever has something to answer does.
    fn answer_something(&mut self) -> bool {
        if self.prompt.is_some() {
            self.model();
        } else if !self.asked.is_empty() || !self.late.is_empty() {
            self.tool();
        } else if !self.timers.is_empty() {
            self.timer();
        } else if !self.responding.is_empty() {
            self.respond();
        } else if !self.questions.is_empty() {
            self.decide();
        } else if self.summarizer.is_some() {
            self.summarizer();
        } else {
            return false;
        }
        true
    }

    /// Somebody wants a summary, or a prompt was long.
    fn compact(&mut self) {
        self.inputs += 1;
        let back = self.tape.pick(3) as Number;
        let record = match self.tape.pick(2) {
            0 => by_hand(&format!("input {}", self.inputs)),
            _ => crossed(self.thread.last().saturating_sub(back)),
        };
        self.apply(record);
    }

    /// The thread that makes a summary comes into being, and then it has one, or none.
    fn summarizer(&mut self) {
        let (birth, from, born) = self.summarizer.take().expect("the caller has looked");
        if !born {
            let refused = (self.tape.pick(8) == 1).then_some(Undelivered::Damaged);
            self.summarizer = refused.is_none().then(|| (birth.clone(), from, true));
            self.apply(birth.receipt(1, refused).record);
            return;
        }
        let PostBody::Summarize { covers, items, .. } = birth.body else { panic!("it was born to summarize") };
        let body = match self.tape.pick(6) {
            1 => PostBody::SummaryFailed { why: "no".into(), overflow: self.tape.pick(2) == 0 },
            2 => PostBody::Summary { covers, text: "useless ".repeat(99_999), usage: Usage::default() },
            _ => PostBody::Summary { covers, text: String::new(), usage: Usage::default() },
        };
        let items = (self.thread.history().clone(), items as usize);
        let applied = self.apply(Record::Post(Post { id: PostId { from, number: 2, index: 0 }, body }));
        assert_eq!(applied.outcome, Outcome::Taken(self.thread.last()));
        if applied
            .effects
            .iter()
            .any(|effect| matches!(effect, Effect::Tell(output) if matches!(output.shown, Shown::Compacted { .. })))
        {
            self.summarized += 1;
            let (before, covered) = items;
            let kept = before.len() - covered;
            let rest = self.thread.history().newest_first().take(kept);
            assert!(
                rest.zip(before.newest_first()).all(|(new, old)| Arc::ptr_eq(new, old)),
                "what is not covered stays"
            );
            assert_eq!(self.thread.history().len(), kept + 1);
            for item in before.newest_first().skip(kept) {
                match &**item {
                    Item::User { number, .. } => self.covered.0.push(*number),
                    Item::Event(_) => self.covered.1 += 1,
                    _ => {}
                }
            }
        }
    }

    fn message(&mut self) {
        self.inputs += 1;
        let applied = self.apply(message(&format!("input {}", self.inputs), "hello"));
        assert_eq!(applied.outcome, Outcome::Taken(self.thread.last()));
        self.messages.push(self.thread.last());
    }

    fn stop(&mut self) {
        self.inputs += 1;
        let id = InputId(format!("input {}", self.inputs));
        // What was held and not approved will not be done: one event says so.
        let held = self.questions.values().filter(|(call, approval)| *approval && self.held.contains(call)).count();
        self.events += held.min(1);
        self.apply(Record::Stop(Stop { id, origin: person() }));
        self.questions.clear();
        self.held.clear();
        assert!(self.thread.prompt().is_none(), "a stopped thread does not go on");
    }

    fn model(&mut self) {
        let (prompt, cut) = self.prompt.take().expect("the caller has looked");
        let (seen, held) = (prompt.seen, prompt.history);
        let rewritten = std::mem::take(&mut self.rewritten);
        let record = match self.tape.pick(8) {
            1 if self.summaries && self.tape.pick(2) == 0 => overflow(seen),
            1 => failure(seen),
            2..=4 if cut => completion(seen, vec![say("I was ab"), call("build", "{")], End::Cut),
            _ => completion(seen, self.blocks(), End::Finished),
        };
        let unfit = crate::compact::may_rewrite(&record);
        let applied = self.apply(record);
        assert_eq!(applied.outcome, Outcome::Taken(self.thread.last()), "no answer to a prompt under way is stale");
        if rewritten || unfit {
            return;
        }
        // What the prompt held is history, item for item, and the turn stands directly after it.
        let mut later =
            self.thread.history().newest_first().take(self.thread.history().len() - held.len()).collect::<Vec<_>>();
        let first = later.pop();
        assert!(
            first.is_none_or(|turn| matches!(&**turn, Item::Assistant { number, .. } if *number == self.thread.last())),
            "something stands between a prompt and its turn"
        );
        let last_held = self.thread.history().newest_first().nth(later.len() + usize::from(first.is_some()));
        assert!(Arc::ptr_eq(last_held.unwrap(), held.newest_first().next().unwrap()), "the model saw another history");
    }

    fn blocks(&mut self) -> Vec<Block> {
        let mut blocks = vec![say("well")];
        while self.calls && blocks.len() < 20 && self.tape.pick(3) != 0 {
            blocks.push(match self.tape.pick(13) {
                10 => call("pin_note", r#"{"note":"the port is 7070"}"#),
                11 => call("unpin_note", r#"{"note_id":"note_1"}"#),
                12 => call("read_result", r#"{"handle":"result_2_0"}"#),
                0 => call("sleep", r#"{"seconds":60}"#),
                1 => call("sleep_until", r#"{"date":"2031-05-04","time":"09:00","timezone":"UTC"}"#),
                2 => call("sleep_until_event_or_input", "{}"),
                3 => call("sleep", "{}"),
                4 => call("receive_event__injected", "{}"),
                _ => call("build", "{}"),
            });
        }
        blocks
    }

    fn tool(&mut self) {
        let at = self.tape.pick(self.asked.len() + self.late.len());
        let Some((&id, &accepted)) = self.asked.iter().nth(at) else {
            let id = self.late.swap_remove(at - self.asked.len());
            assert_eq!(self.answer(id).outcome, Outcome::Taken(self.thread.last()), "a late result is not lost");
            self.events += 1;
            return;
        };
        match self.tape.pick(9) {
            1 | 2 if !accepted => {
                self.asked.insert(id, true);
                self.apply(Record::Accepted(id));
            }
            3 | 4 if !accepted && !self.approved.contains(&id) => {
                self.asked.remove(&id);
                self.asks(id, approval());
            }
            5 if !self.timers.contains_key(&id) => {
                self.apply(Record::Deadline { call: id, due_ms: 1_935_644_400_000 });
            }
            7 if accepted && !self.responding.contains_key(&id) => {
                // The tool has lost it; it may answer all the same.
                self.events += usize::from(self.held.contains(&id));
                self.apply(Record::Lost(id));
                self.held.remove(&id);
                self.over(id);
                self.late.push(id);
            }
            6 => {
                // What it asked before and has no answer to is not asked any more.
                self.questions.retain(|_, (call, _)| *call != id);
                self.responding.remove(&id);
                self.asked.insert(id, true);
                let prompt = format!("which, {}?", self.records.len());
                self.asks(id, choice(&prompt));
            }
            _ => {
                assert_eq!(self.answer(id).outcome, Outcome::Taken(self.thread.last()));
                self.over(id);
            }
        }
    }

    /// A person is asked something.
    fn asks(&mut self, id: CallId, asks: Asks) {
        let is_approval = matches!(asks, Asks::Approval { .. });
        assert_eq!(self.apply(question(id, asks)).outcome, Outcome::Taken(self.thread.last()));
        self.questions.insert(self.thread.last(), (id, is_approval));
    }

    /// A person answers a question.
    fn decide(&mut self) {
        let at = self.tape.pick(self.questions.len());
        let (&number, &(id, is_approval)) = self.questions.iter().nth(at).expect("the index is in range");
        self.questions.remove(&number);
        self.inputs += 1;
        let answer = match (is_approval, self.tape.pick(3)) {
            (true, 1) => Decision::Deny { reason: None },
            (true, _) => {
                self.approved.insert(id);
                Decision::Approve
            }
            (false, index) => Decision::Choose { index: index as u32 % 2 },
        };
        let denied = matches!(answer, Decision::Deny { .. });
        let applied = self.apply(verdict(&format!("input {}", self.inputs), number, answer));
        assert_eq!(applied.outcome, Outcome::Taken(self.thread.last()));
        if denied {
            self.over(id);
        }
    }

    /// A tool is told what was chosen.
    fn respond(&mut self) {
        let (_, question) = self.responding.pop_first().expect("the caller has looked");
        self.apply(Record::Responded(question));
    }

    /// A call is over; the model hears of it by an event if it had a substitute.
    fn over(&mut self, id: CallId) {
        self.events += usize::from(self.held.remove(&id));
        self.asked.remove(&id);
        self.responding.remove(&id);
        self.questions.retain(|_, (call, _)| *call != id);
    }

    fn answer(&mut self, id: CallId) -> Applied {
        let tool = Origin { who: "tool:build".into(), proof: Proof::Capability };
        let (is_error, origin) = match self.tape.pick(6) {
            1 => (true, tool),
            2 => (true, Origin::runtime()),
            _ => (false, tool),
        };
        let text = if self.summaries && self.tape.pick(9) == 8 { "built ".repeat(9_000) } else { "built".to_owned() };
        self.apply(result(id, &text, is_error, origin))
    }

    fn timer(&mut self) {
        let at = self.tape.pick(self.timers.len());
        let (&id, &due) = self.timers.iter().nth(at).expect("the index is in range");
        if due.is_some() {
            self.timers.remove(&id);
            self.events += usize::from(self.held.contains(&id));
            self.apply(Record::Fired(id));
        } else if self.tape.pick(2) == 0 {
            self.timers.insert(id, Some(1_935_644_400_000));
            self.apply(Record::Armed { call: id, due_ms: 1_935_644_400_000 });
        } else {
            self.timers.remove(&id);
            self.apply(result(id, "There is no such time.", true, Origin::runtime()));
        }
    }

    /// Any record comes a second time.
    fn again(&mut self) {
        let at = self.tape.pick(self.records.len());
        let record = self.records[at].arrival.record.clone();
        // A tool may ask the same again when it has its answer, or when its call is over.
        if matches!(record, Record::Asked(_)) && !self.questions.contains_key(&(at as Number + 1)) {
            return;
        }
        // Whether a count is heard depends on what was summarized since; and a deadline that came while its call waited for an
        // approval did nothing, and would now for the first time.
        if matches!(&record, Record::Compact(compact) if compact.why != CompactWhy::ByHand)
            || matches!(&record, Record::Deadline { call, .. } if !self.timers.contains_key(call))
        {
            return;
        }
        let named = !matches!(
            record,
            Record::Accepted(_)
                | Record::Delivered(_)
                | Record::Armed { .. }
                | Record::Fired(_)
                | Record::Deadline { .. }
                | Record::Responded(_)
                | Record::Lost(_)
        );
        let before = self.view();
        let mut applied = self.apply(record.clone());
        // Every delivery of a post has its receipt.
        let is_receipt =
            |effect: &Effect| matches!(effect, Effect::Post(arrival) if !matches!(arrival.record, Record::Post(_)));
        applied.effects.retain(|effect| !is_receipt(effect));
        assert_eq!(applied.effects, [], "{record:?} did something again");
        assert_eq!(matches!(applied.outcome, Outcome::Duplicate(_)), named, "{record:?}");
        assert_eq!(self.view(), before);
    }

    /// The owner's part at the end of a tick: cuts the prompt under way or sends the one that is wanted.
    fn settle(&mut self) {
        match &mut self.prompt {
            Some((prompt, cut)) => *cut |= self.thread.interrupts(prompt.seen),
            None => {
                self.prompt = self.thread.prompt().map(|prompt| (prompt, false));
                self.rewritten = false;
            }
        }
    }

    fn apply(&mut self, record: Record) -> Applied {
        let committed = committed(self.records.len() as Number + 1, record);
        self.records.push(committed.clone());
        let before = self.thread.history().clone();
        let may_rewrite = crate::compact::may_rewrite(&committed.arrival.record);
        let applied = self.thread.apply(committed);
        if may_rewrite {
            self.rewritten = true;
            applied.effects.iter().for_each(|effect| self.ask(effect));
            return applied;
        }
        // linear: a record appends a few items to what was there and asks a few things, however long the history is.
        let appended = self.thread.history().len() - before.len();
        assert!(
            before.newest_first().next().is_none_or(|newest| {
                Arc::ptr_eq(newest, self.thread.history().newest_first().nth(appended).expect("it was longer"))
            }),
            "the history is append-only"
        );
        assert!(
            applied.effects.len() <= 3 * CALLS_PER_TURN_MAX + 8 + 2 * self.held.len(),
            "{} effects",
            applied.effects.len()
        );
        for effect in &applied.effects {
            self.ask(effect);
        }
        applied
    }

    fn ask(&mut self, effect: &Effect) {
        match effect {
            Effect::Dispatch(dispatch) => assert_eq!(self.asked.insert(dispatch.call, false), None),
            Effect::Cancel(dispatch) => {
                self.late.push(dispatch.call);
                self.held.remove(&dispatch.call);
                self.asked.remove(&dispatch.call);
                self.responding.remove(&dispatch.call);
                self.questions.retain(|_, (call, _)| *call != dispatch.call);
            }
            Effect::Respond(respond) => {
                assert_eq!(self.responding.insert(respond.call, respond.question), None);
            }
            Effect::Arm { call, due, .. } => {
                let due = if let Due::At(due_ms) = due { Some(*due_ms) } else { None };
                assert_eq!(self.timers.insert(*call, due), None);
            }
            Effect::Disarm { call, .. } => assert!(self.timers.remove(call).is_some(), "{call} was not armed"),
            Effect::Tell(output) => {
                if let Shown::Result(item) = &output.shown
                    && let Item::Result(answer) = &**item
                {
                    self.asked.remove(&answer.call);
                    self.responding.remove(&answer.call);
                    if self.questions.values().any(|asked| *asked == (answer.call, true)) {
                        self.held.insert(answer.call);
                    }
                }
            }
            Effect::Prompt(_) | Effect::Cut { .. } => panic!("prompts are the owner's to send"),
            Effect::Check(_) => panic!("only a start asks for it"),
            Effect::Close(_) => panic!("nobody closes it"),
            Effect::Post(arrival) => match &arrival.record {
                Record::Post(post) if matches!(post.body, PostBody::Summarize { .. }) => {
                    assert!(self.summarizer.is_none(), "one attempt at a time");
                    self.summarizer = Some((post.clone(), arrival.thread, false));
                }
                // The receipt of a summary.
                Record::Delivered(_) => {}
                other => panic!("the thread is alone: {other:?}"),
            },
        }
    }
}
