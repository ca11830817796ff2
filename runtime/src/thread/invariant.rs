//! What is true of every thread, whatever happened to it.
//!
//! In: a thread. Out: the first invariant that it breaks, by name. Always: costs a walk over the history, so tests and
//! `doctor` call it and the hot path does not.

use super::{Call, Fate, NOTE_BYTES_MAX, NOTES_MAX, Phase, QUESTIONS_MAX, Thread};
use crate::history::{History, Item};
use crate::id::{CallId, Number};
use crate::record::Block;
use std::collections::{BTreeMap, BTreeSet};

/// Checks a whole thread.
///
/// # Errors
/// The name of the invariant that does not hold, and where.
pub fn check(thread: &Thread) -> Result<(), String> {
    Thread::INVARIANTS.iter().try_for_each(|(name, holds)| holds(thread).map_err(|broken| format!("{name}: {broken}")))
}

/// Checks what the model sees: results follow directly on the turn that made their calls, each once. Returns the calls of
/// the last turn that have no answer yet.
///
/// # Errors
/// The name of the invariant that does not hold, and where.
pub fn check_view(history: &History) -> Result<BTreeSet<CallId>, String> {
    unanswered(history).map_err(|broken| format!("every_call_has_one_result: {broken}"))
}

fn unanswered(history: &History) -> Result<BTreeSet<CallId>, String> {
    let mut unanswered = BTreeSet::new();
    for item in history.to_vec() {
        match &**item {
            Item::Result(answer) => {
                if !unanswered.remove(&answer.call) {
                    return Err(format!("{} is answered twice, too late or was never made", answer.call));
                }
            }
            other if !unanswered.is_empty() => {
                return Err(format!("{unanswered:?} are not answered before {other:?}"));
            }
            Item::Assistant { number, blocks, .. } => {
                let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
                let calls = u16::try_from(calls).map_err(|_| format!("turn {number} has {calls} calls"))?;
                unanswered.extend((0..calls).map(|index| CallId { number: *number, index }));
            }
            Item::User { .. } | Item::Event(_) | Item::Summary(_) => {}
        }
    }
    Ok(unanswered)
}

/// Says how a thread breaks an invariant, if it does.
type Invariant = fn(&Thread) -> Result<(), String>;

// Methods and not functions: Hydro compiles a copy of this module's private functions, which sees no private fields.
impl Thread {
    /// The invariants, in the order in which they are checked.
    const INVARIANTS: [(&str, Invariant); 11] = [
        ("every_call_has_one_result", Thread::every_call_has_one_result),
        ("every_answer_is_kept", Thread::every_answer_is_kept),
        ("one_order_per_thread", Thread::one_order_per_thread),
        ("same_id_once", Thread::same_id_once),
        ("a_prompt_asks_something", Thread::a_prompt_asks_something),
        ("nobody_sleeps_beside_an_unseen_input", Thread::nobody_sleeps_beside_an_unseen_input),
        ("every_queue_is_bounded", Thread::every_queue_is_bounded),
        ("a_closed_thread_is_at_rest", Thread::a_closed_thread_is_at_rest),
        ("every_post_has_a_name", Thread::every_post_has_a_name),
        ("every_question_has_its_call", Thread::every_question_has_its_call),
        ("a_summary_covers_no_open_call", Thread::a_summary_covers_no_open_call),
    ];

    /// In the history exactly the open calls have no answer, and in a prompt every call has one.
    fn every_call_has_one_result(&self) -> Result<(), String> {
        let left = unanswered(&self.history)?;
        let open: BTreeSet<CallId> = self.open.keys().copied().collect();
        if left != open {
            return Err(format!("open are {open:?}, unanswered in the history are {left:?}"));
        }
        if let Some(prompt) = self.prompt() {
            let left = unanswered(&prompt.history)?;
            if !open.is_empty() || !left.is_empty() {
                return Err(format!("a prompt is wanted while {open:?} are open and {left:?} unanswered"));
            }
        }
        Ok(())
    }

    /// A call is open, or waits for its real result after a substitute, or has that: at most one of them. A real result after
    /// a substitute is an event, once.
    fn every_answer_is_kept(&self) -> Result<(), String> {
        let mut where_it_is: BTreeMap<CallId, u32> = BTreeMap::new();
        for id in self.open.keys().chain(self.substituted.keys()).chain(self.answered.keys()) {
            *where_it_is.entry(*id).or_default() += 1;
        }
        if let Some((id, _)) = where_it_is.iter().find(|(_, count)| **count > 1) {
            return Err(format!("{id} is both open and answered"));
        }
        if let Some((id, brought)) = self.answered.iter().find(|(id, brought)| id.number >= **brought) {
            return Err(format!("{id} was answered by {brought}, before it was made"));
        }
        let results: BTreeSet<Number> = self.answered.values().copied().collect();
        if results.len() != self.answered.len() {
            return Err("one record answered two calls".to_owned());
        }
        let mut events = BTreeSet::new();
        // Other threads and subscriptions are heard as events, too.
        let is_alone = self.family.is_none() && self.children.is_empty() && self.subscriptions.is_empty();
        for item in self.view().to_vec().into_iter().skip(self.inherited) {
            if let Item::Event(event) = &**item
                && !((!is_alone || results.contains(&event.id.number) || self.noticed.contains(&event.id.number))
                    && events.insert(event.id))
            {
                return Err(format!("event {} is there twice or follows from no result", event.id));
            }
        }
        Ok(())
    }

    /// Inputs stand in the order of their records, and so do turns; nothing comes from a record that was not applied.
    fn one_order_per_thread(&self) -> Result<(), String> {
        let marks = [self.triggered, self.settled, self.settled_at, self.interrupted, self.stopped];
        if marks.into_iter().chain(self.asked.map(|(number, _)| number)).any(|mark| mark > self.last) {
            return Err("a mark lies after the last record".to_owned());
        }
        if self.pending.iter().any(|(number, _)| *number <= self.settled && self.settled < self.settled_at) {
            return Err("an input that a settled prompt held still waits".to_owned());
        }
        let (mut input_last, mut turn_last) = (0, 0);
        for item in self.view().to_vec().into_iter().skip(self.inherited) {
            let (last, number) = match &**item {
                Item::User { number, .. } => (&mut input_last, *number),
                Item::Event(event) => (&mut input_last, event.id.number),
                Item::Assistant { number, .. } => (&mut turn_last, *number),
                Item::Result(_) | Item::Summary(_) => continue,
            };
            if number <= *last || number > self.last {
                return Err(format!("record {number} stands after {last}; the last one applied is {}", self.last));
            }
            *last = number;
        }
        Ok(())
    }

    /// Two ids are two records.
    fn same_id_once(&self) -> Result<(), String> {
        let numbers: BTreeSet<Number> = self.ids.values().copied().collect();
        if numbers.len() != self.ids.len() || numbers.last().is_some_and(|number| *number > self.last) {
            return Err("two ids have one record, or one that was not applied".to_owned());
        }
        Ok(())
    }

    /// The last thing in a prompt is for the model to answer, not its own; and a prompt that is wanted can be answered.
    fn a_prompt_asks_something(&self) -> Result<(), String> {
        let Some(prompt) = self.prompt() else { return Ok(()) };
        match prompt.history.newest_first().next().map(|item| &**item) {
            None => Err("there is nothing in it".to_owned()),
            Some(Item::Assistant { number, .. }) => Err(format!("it ends with the model's own turn {number}")),
            Some(_) if self.asked.is_none() => Err("its answer would be taken for stale".to_owned()),
            Some(_) => Ok(()),
        }
    }

    /// Any input wakes a sleeper, also one that came just before it fell asleep.
    fn nobody_sleeps_beside_an_unseen_input(&self) -> Result<(), String> {
        if self.only_sleeps() && !self.pending.is_empty() {
            return Err(format!("{} inputs wait for a thread that sleeps", self.pending.len()));
        }
        Ok(())
    }

    /// What waits is bounded, whatever arrives. An event answers a call that was made, so it is let in beside a full queue.
    fn every_queue_is_bounded(&self) -> Result<(), String> {
        let messages = self.pending.iter().filter(|(_, item)| matches!(**item, Item::User { .. })).count();
        let widest = &self.widest;
        if messages > widest.pending_max.get() as usize
            || self.open.len() > usize::from(widest.calls_per_turn_max.get())
            || self.refused_turns >= widest.refused_turns_max.get()
        {
            return Err(format!(
                "{messages} messages wait, {} calls are open, {} turns in a row were refused",
                self.open.len(),
                self.refused_turns
            ));
        }
        for (id, subscription) in &self.subscriptions {
            let handling =
                self.children.values().filter(|child| !child.closed && child.subscription == Some(*id)).count();
            let (queued, gathered) = (subscription.queue.len(), subscription.gathered.len());
            if handling != subscription.handling
                || handling > widest.event_children_max.get() as usize
                || queued.max(gathered) > widest.events_queued_max as usize
            {
                return Err(format!("{handling} children handle events of {id}, {queued} and {gathered} wait"));
            }
            if (gathered > 0) != subscription.due_ms.is_some() {
                return Err(format!(
                    "{gathered} events of {id} wait for a digest that is due at {:?}",
                    subscription.due_ms
                ));
            }
        }
        let living = self.children.values().filter(|child| !child.closed).count();
        if living != self.living || living > widest.children_max as usize {
            return Err(format!("{living} children live, counted are {}", self.living));
        }
        Ok(())
    }

    /// Nothing goes on in a closed thread, and its subscriptions are over.
    fn a_closed_thread_is_at_rest(&self) -> Result<(), String> {
        let active = self.subscriptions.values().filter(|subscription| !subscription.ended).count();
        if self.closed.is_some() && (!self.open.is_empty() || self.prompt().is_some() || active > 0) {
            return Err(format!("{} calls are open and {active} subscriptions active", self.open.len()));
        }
        Ok(())
    }

    /// An open question and a call that waits for its answer belong together, one to one; only a call that something is expected
    /// of times out; and what was asked comes from a record that was applied.
    fn every_question_has_its_call(&self) -> Result<(), String> {
        let asking: BTreeMap<Number, CallId> = self
            .calls()
            .filter_map(|(id, call)| if let Phase::Asking(question) = call.phase { Some((question, id)) } else { None })
            .collect();
        let open: BTreeMap<Number, CallId> = self
            .questions
            .iter()
            .filter(|(_, question)| question.fate == Fate::Open)
            .map(|(&number, question)| (number, question.call))
            .collect();
        if asking != open {
            return Err(format!("open questions are {open:?}, calls that wait for an answer {asking:?}"));
        }
        if self.questions.len() > QUESTIONS_MAX
            || self.questions.keys().chain(&self.noticed).any(|number| *number > self.last)
        {
            return Err(format!("{} questions, or one from a record that was not applied", self.questions.len()));
        }
        let times_out = |(_, call): &(CallId, &Call)| call.due_ms.is_some();
        let cannot =
            |(_, call): &(CallId, &Call)| call.is_sleep() || call.phase == Phase::Dropped || self.awaits_approval(call);
        match self.calls().filter(times_out).find(cannot) {
            Some((id, call)) => Err(format!("{id} times out at {:?} and is {:?}", call.due_ms, call.phase)),
            None => Ok(()),
        }
    }

    /// What is owed to other threads comes from records that were applied; and each of theirs was taken by one record.
    fn every_post_has_a_name(&self) -> Result<(), String> {
        if self.outbox.keys().any(|id| id.from != self.id || id.number > self.last) {
            return Err("a post has the name of another thread, or of a record that was not applied".to_owned());
        }
        let taken: BTreeSet<Number> = self.posts.values().copied().collect();
        if taken.len() != self.posts.len() || taken.last().is_some_and(|number| *number > self.last) {
            return Err("two posts have one record, or one that was not applied".to_owned());
        }
        Ok(())
    }

    /// A summary ends where no call is open, and stands at the beginning; notes are bounded; who waits for a summary has one
    /// under way.
    fn a_summary_covers_no_open_call(&self) -> Result<(), String> {
        let (mut open, mut safe) = (0, BTreeSet::new());
        for (position, item) in self.history.to_vec().into_iter().enumerate() {
            match &**item {
                Item::Assistant { blocks, .. } => {
                    open += blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
                }
                Item::Result(_) => open = open.saturating_sub(1),
                Item::Summary(_) if position > 0 => return Err(format!("a summary is item {position}")),
                Item::User { .. } | Item::Event(_) | Item::Summary(_) => {}
            }
            if open == 0 {
                safe.insert(position + 1);
            }
        }
        let cuts = &self.compaction.cuts;
        let running = self.compaction.running.map(|attempt| attempt.cut);
        if let Some(cut) = cuts.iter().chain(&running).find(|cut| !safe.contains(&cut.items)) {
            return Err(format!("a call is open at {cut:?}"));
        }
        if !cuts.is_sorted_by(|earlier, later| earlier.items < later.items && earlier.seen <= later.seen)
            || cuts.last().is_some_and(|cut| cut.seen > self.last)
        {
            return Err(format!("the places where a summary may end are out of order: {cuts:?}"));
        }
        let longest = self.notes.pinned.values().map(String::len).max().unwrap_or(0);
        if self.notes.pinned.len() > NOTES_MAX || longest > NOTE_BYTES_MAX {
            return Err(format!("{} notes are pinned, the longest of {longest} bytes", self.notes.pinned.len()));
        }
        if self.compaction.unfit.is_some() && !self.compaction.holds() && self.closed.is_none() {
            return Err("a prompt waits for a summary that nobody makes".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use crate::history::{Answered, AnsweredBy, Event, Summary};
    use crate::id::{InputId, PostId, ThreadId};
    use crate::record::{Asks, Content};
    use crate::thread::Question;
    use std::sync::Arc;

    const CALL: CallId = CallId { number: 2, index: 0 };

    fn user(number: Number) -> Arc<Item> {
        Arc::new(Item::User { number, content: vec![Content::Text("hello".into())] })
    }

    fn turn() -> Arc<Item> {
        let call = Block::Call { provider_id: "p".into(), name: "build".into(), arguments: "{}".into() };
        Arc::new(Item::Assistant { number: 2, blocks: vec![call], cut: false })
    }

    fn result() -> Arc<Item> {
        let (provider_id, name) = ("p".into(), "build".into());
        Arc::new(Item::Result(Answered {
            call: CALL,
            provider_id,
            name,
            content: vec![],
            by: AnsweredBy::Tool,
            display: None,
        }))
    }

    fn event(number: Number) -> Arc<Item> {
        Arc::new(Item::Event(Event {
            id: CallId { number, index: 0 },
            original_tool_name: "build".into(),
            original_tool_call_id: "p".into(),
            original_args: "{}".into(),
            content: vec![],
        }))
    }

    fn call(phase: Phase) -> Call {
        let (provider_id, name, arguments) = ("p".into(), "build".into(), "{}".into());
        Call { provider_id, name, arguments, since_ms: 0, phase, approved: None, due_ms: None }
    }

    fn question(fate: Fate) -> Question {
        Question { call: CALL, asks: Asks::Approval { reason: String::new() }, since_ms: 0, fate }
    }

    #[test]
    fn each_invariant_catches_a_thread_that_breaks_it() {
        // Inside the test, because Hydro compiles a copy of what stands beside it, which sees no private fields.
        /// A thread with one open call.
        fn working() -> Thread {
            let mut thread = Thread::new(ThreadId::from_bytes([1; 16]));
            (thread.last, thread.triggered, thread.settled, thread.settled_at) = (9, 1, 1, 2);
            thread.history = [user(1), turn()].into_iter().collect();
            thread.open.insert(CALL, call(Phase::Accepted));
            check(&thread).unwrap();
            thread
        }

        /// Breaks a sound thread, and says which invariant must notice.
        fn caught(name: &str, break_it: impl FnOnce(&mut Thread)) {
            let mut thread = working();
            break_it(&mut thread);
            let broken = check(&thread).unwrap_err();
            assert!(broken.starts_with(&format!("{name}: ")), "{name} should have caught it: {broken}");
        }

        caught("every_call_has_one_result", |t| t.open.clear());
        caught("every_call_has_one_result", |t| t.history.push(user(3)));
        caught("every_call_has_one_result", |t| {
            t.open.clear();
            t.history.push(result());
            t.history.push(result());
        });
        caught("every_answer_is_kept", |t| t.answered.extend([(CALL, 3)]));
        caught("every_answer_is_kept", |t| t.answered.extend([(CallId { number: 4, index: 0 }, 4)]));
        caught("every_answer_is_kept", |t| t.pending.push_back((3, event(3))));
        caught("one_order_per_thread", |t| t.stopped = 10);
        caught("one_order_per_thread", |t| t.pending.extend([(4, user(4)), (3, user(3))]));
        caught("one_order_per_thread", |t| t.pending.push_back((10, user(10))));
        caught("one_order_per_thread", |t| t.pending.push_back((1, user(1))));
        caught("same_id_once", |t| t.ids.extend([(InputId("a".into()), 1), (InputId("b".into()), 1)]));
        caught("every_question_has_its_call", |t| t.open.insert(CALL, call(Phase::Asking(3))).map_or((), drop));
        caught("every_question_has_its_call", |t| t.questions.insert(3, question(Fate::Open)).map_or((), drop));
        caught("every_question_has_its_call", |t| t.questions.insert(10, question(Fate::Answered)).map_or((), drop));
        caught("every_question_has_its_call", |t| {
            t.substituted.insert(CallId { number: 1, index: 0 }, Call { due_ms: Some(9), ..call(Phase::Dropped) });
        });
        caught("a_prompt_asks_something", |t| {
            t.open.clear();
            t.history =
                [user(1), Arc::new(Item::Assistant { number: 2, blocks: vec![], cut: true })].into_iter().collect();
            t.triggered = 3;
        });
        caught("a_prompt_asks_something", |t| {
            t.open.clear();
            t.history.push(result());
            t.triggered = 3;
        });
        caught("nobody_sleeps_beside_an_unseen_input", |t| {
            t.open.insert(CALL, call(Phase::Dozing));
            t.pending.push_back((3, user(3)));
        });
        caught("every_queue_is_bounded", |t| t.refused_turns = t.bounds.refused_turns_max.get());
        caught("every_queue_is_bounded", |t| t.living = 1);
        caught("a_closed_thread_is_at_rest", |t| t.closed = Some(9));
        let post = |from, number| PostId { from: ThreadId::from_bytes([from; 16]), number, index: 0 };
        caught("every_post_has_a_name", |t| t.posts.extend([(post(2, 1), 3), (post(2, 2), 3)]));
        caught("every_post_has_a_name", |t| t.posts.extend([(post(2, 1), 10)]));
        caught("a_summary_covers_no_open_call", |t| t.may_cut(1));
        caught("a_summary_covers_no_open_call", |t| {
            let summary = Summary {
                number: 9,
                covers: 1,
                text: "x".into(),
                place: None,
                notes: vec![],
                subscriptions: vec![],
                children: 0,
            };
            t.history = [user(1), Arc::new(Item::Summary(summary)), turn()].into_iter().collect();
        });
        caught("a_summary_covers_no_open_call", |t| t.compaction.unfit = Some("too long".into()));
        caught("a_summary_covers_no_open_call", |t| t.notes.pinned.extend((0..40).map(|n| (n, String::new()))));
    }
}
