//! What models answer: completions and failures.
//!
//! In: `Completion`, `Failure`. Out: a turn in the history, and its calls on their way. Always: what the prompt had seen
//! stands before the turn and what came later after it; a stale answer changes nothing; a failure loses nothing.

use super::{Answer, CALLS_PER_TURN_MAX, Call, Phase, REFUSED_TURNS_MAX, Step, Thread};
use crate::effect::{Outcome, Shown};
use crate::history::{AnsweredBy, EVENT_TOOL, Item};
use crate::id::{CallId, Number};
use crate::record::{Block, Completion, End, Failure, FailureClass};
use crate::tools::{self, Plan};
use std::sync::Arc;

impl Thread {
    pub(super) fn completion(&mut self, step: &mut Step, completion: Completion) -> Outcome {
        let Completion { seen, blocks, end, usage, model: _ } = completion;
        if self.is_stale(step, seen) {
            return Outcome::Duplicate(self.settled_at);
        }
        self.settle(step, seen);
        while self.pending.front().is_some_and(|(number, _)| *number <= seen) {
            let (_, item) = self.pending.pop_front().expect("invariant: the queue has a front");
            self.history.push(item);
        }
        let cut = end == End::Cut;
        let blocks = if cut { blocks.into_iter().filter(|b| matches!(b, Block::Text(_))).collect() } else { blocks };
        let item = Arc::new(Item::Assistant { number: step.number, blocks, cut });
        let Item::Assistant { blocks, .. } = &*item else { unreachable!("the item was made an assistant's just now") };
        if !blocks.is_empty() {
            self.history.push(item.clone());
        }
        step.tell(Shown::Turn { item: item.clone(), end, usage });
        let triggered = self.triggered;
        self.open_calls(step, seen, blocks);
        if self.stopped > seen {
            // The turn was under way when the thread was stopped: its calls do not set the thread going again.
            self.triggered = triggered;
        }
        self.tell_waiting(step);
        Outcome::Taken(step.number)
    }

    pub(super) fn failure(&mut self, step: &mut Step, failure: Failure) -> Outcome {
        if self.is_stale(step, failure.seen) {
            return Outcome::Duplicate(self.settled_at);
        }
        self.settle(step, failure.seen);
        step.tell(Shown::Failure { class: failure.class, message: failure.message });
        self.tell_waiting(step);
        Outcome::Taken(step.number)
    }

    /// An answer is stale when another one was applied after its prompt was sent: then the prompt was sent twice. While
    /// calls are open no prompt is sent, so an answer then is of one sent before.
    fn is_stale(&self, step: &Step, seen: Number) -> bool {
        seen < self.settled_at || seen == 0 || seen >= step.number || !self.open.is_empty()
    }

    fn settle(&mut self, step: &Step, seen: Number) {
        self.settled = seen;
        self.settled_at = step.number;
    }

    fn open_calls(&mut self, step: &mut Step, seen: Number, blocks: &[Block]) {
        let mut refused = 0;
        let calls = blocks.iter().filter_map(|block| match block {
            Block::Call { provider_id, name, arguments } => Some((provider_id, name, arguments)),
            _ => None,
        });
        let mut made = 0;
        // All calls are opened before any is answered: the answer to the last open one lets the model go on.
        let mut answers = Vec::new();
        for (index, (provider_id, name, arguments)) in calls.enumerate() {
            made += 1;
            let id = CallId { number: step.number, index: u16::try_from(index).unwrap_or(u16::MAX) };
            let mut call = Call {
                provider_id: provider_id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                since_ms: step.at_ms,
                phase: Phase::Dispatched,
            };
            let answer = if self.stopped > seen {
                Some(Answer::text(AnsweredBy::Cancelled, "Not started: the user stopped this thread."))
            } else if self.interrupted > seen {
                Some(Answer::text(
                    AnsweredBy::Interrupted,
                    "Not started: interrupted by a new message. Call again if it is still wanted.",
                ))
            } else if index >= CALLS_PER_TURN_MAX {
                Some(Answer::text(
                    AnsweredBy::Refusal,
                    format!(
                        "Not started: at most {CALLS_PER_TURN_MAX} calls in one turn are done. Call again in your next turn."
                    ),
                ))
            } else if name == EVENT_TOOL {
                Some(Answer::text(
                    AnsweredBy::Refusal,
                    format!(
                        "{EVENT_TOOL} cannot be called: the runtime uses it to show you events. Wait with sleep_until_event_or_input instead."
                    ),
                ))
            } else {
                match tools::plan(name, arguments, step.at_ms) {
                    None => None,
                    Some(Plan::Sleep(due)) => {
                        call.phase = Phase::Sleeping(due);
                        None
                    }
                    Some(Plan::Doze) => {
                        call.phase = Phase::Dozing;
                        None
                    }
                    Some(Plan::Answer(text)) => Some(Answer::text(AnsweredBy::BuiltIn, text)),
                    Some(Plan::Refuse(text)) => Some(Answer::text(AnsweredBy::Refusal, text)),
                }
            };
            match answer {
                Some(answer) => answers.push((id, answer)),
                None => step.effects.extend(call.asked(self.id, id)),
            }
            self.open.insert(id, call);
        }
        for (id, answer) in answers {
            refused += u32::from(answer.by == AnsweredBy::Refusal);
            self.answer(step, id, answer);
        }
        self.refused_turns = if made > 0 && refused == made { self.refused_turns + 1 } else { 0 };
        if self.refused_turns >= REFUSED_TURNS_MAX {
            self.refused_turns = 0;
            self.settled = step.number;
            step.tell(Shown::Failure {
                class: FailureClass::Fatal,
                message: format!("The model made {REFUSED_TURNS_MAX} turns in a row whose calls were all refused; the thread waits for you."),
            });
        }
    }
}
