//! What models answer: completions and failures.
//!
//! In: `Completion`, `Failure`. Out: a turn in the history, and its calls on their way. Always: what the prompt had seen
//! stands before the turn and what came later after it; a stale answer changes nothing; a failure loses nothing.

use super::{Answer, CALLS_KEPT_MAX, Call, Phase, Step, Thread};
use crate::effect::{Outcome, Shown};
use crate::history::{AnsweredBy, EVENT_TOOL, Item};
use crate::id::{CallId, Number};
use crate::record::{Block, Completion, End, Failure, FailureClass};
use crate::tools::{self, Plan};
use std::sync::Arc;

impl Thread {
    pub(super) fn completion(&mut self, step: &mut Step, completion: Completion) -> Outcome {
        if self.is_stale(step, completion.seen) {
            return Outcome::Duplicate(self.settled_at);
        }
        self.summary_said(&completion);
        let Completion { seen, blocks, end, usage, model: _ } = completion;
        self.settle(step, seen);
        let cut = end == End::Cut;
        let item = Arc::new(Item::Assistant { number: step.number, blocks: kept(blocks, cut), cut });
        let Item::Assistant { blocks, .. } = &*item else { unreachable!("the item was made an assistant's just now") };
        if !blocks.is_empty() {
            self.may_cut(seen);
            self.history.push(item.clone());
        }
        step.tell(Shown::Turn { item: item.clone(), end, usage });
        let spent = self.spend(usage) && self.closed.is_none();
        self.open_calls(step, seen, blocks, spent);
        Outcome::Taken(step.number)
    }

    pub(super) fn failure(&mut self, step: &mut Step, failure: Failure) -> Outcome {
        if self.is_stale(step, failure.seen) {
            return Outcome::Duplicate(self.settled_at);
        }
        let Failure { seen, class, message, attempts: _ } = failure;
        self.settle(step, seen);
        let is_overflow = class == FailureClass::Overflow;
        if let Some(summarizing) = &mut self.summarizes {
            summarizing.trouble = Some((message.clone(), is_overflow));
        } else if is_overflow {
            self.unfit(step, seen, message);
            return Outcome::Taken(step.number);
        }
        step.tell(Shown::Failure { class, message });
        Outcome::Taken(step.number)
    }

    /// An answer is stale when no prompt that waits for one can have seen that much: another answer was applied after it
    /// was sent, so it was sent twice; or nothing was asked.
    fn is_stale(&self, step: &Step, seen: Number) -> bool {
        seen >= step.number || self.asked.is_none_or(|(first, _)| seen < first)
    }

    /// What the prompt held is history, whether it was answered or not.
    fn settle(&mut self, step: &Step, seen: Number) {
        self.settled = seen;
        self.settled_at = step.number;
        self.asked = None;
        self.take_up(seen);
    }

    fn open_calls(&mut self, step: &mut Step, seen: Number, blocks: &[Block], spent: bool) {
        let calls = blocks.iter().filter_map(|block| match block {
            Block::Call { provider_id, name, arguments } => Some((provider_id, name, arguments)),
            _ => None,
        });
        // All calls are opened before any is answered: the answer to the last open one lets the model go on.
        let mut answers = Vec::new();
        let mut closing = None;
        let calls_max = self.bounds.calls_per_turn_max;
        self.safe = seen;
        for (index, (provider_id, name, arguments)) in calls.enumerate() {
            let id = CallId { number: step.number, index: u16::try_from(index).unwrap_or(u16::MAX) };
            let mut call = Call {
                provider_id: provider_id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                since_ms: step.at_ms,
                phase: Phase::Dispatched,
                approved: None,
                due_ms: None,
            };
            let answer = if self.closed.is_some() {
                Some(Answer::text(AnsweredBy::Cancelled, "Not started: this thread was closed."))
            } else if self.stopped > seen {
                Some(Answer::text(AnsweredBy::Cancelled, "Not started: the user stopped this thread."))
            } else if self.interrupted > seen {
                Some(Answer::text(
                    AnsweredBy::Interrupted,
                    "Not started: interrupted by a new message. Call again if it is still wanted.",
                ))
            } else if let Some(refusal) = self.refuses_calls() {
                Some(refusal)
            } else if let Some(too_late) = spent.then(|| self.is_too_late_for(name)).flatten() {
                Some(too_late)
            } else if let Some(not_given) = self.was_not_given(name) {
                Some(not_given)
            } else if index >= usize::from(calls_max.get()) {
                Some(Answer::text(
                    AnsweredBy::Refusal,
                    format!(
                        "Not started: at most {calls_max} calls in one turn are done. Call again in your next turn."
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
                    Some(Plan::Spawn { child_of, fresh, terms }) => {
                        Some(self.spawn(step, id, seen, call.cause(), (&child_of, fresh, terms)))
                    }
                    Some(Plan::Report(text)) => Some(self.report(step, text)),
                    Some(Plan::SendToChild { child, message }) => Some(self.send_to_child(step, &child, message)),
                    Some(Plan::Pin(note)) => Some(self.pin(note)),
                    Some(Plan::Unpin(id)) => Some(self.unpin(&id)),
                    Some(Plan::Read { handle, offset, length }) => Some(self.read(&handle, offset, length)),
                    Some(Plan::ListChildren) => Some(self.list_children()),
                    Some(Plan::CancelSubscription(called)) => Some(self.cancel_subscription(step, &called)),
                    Some(Plan::Close { thread, report }) => {
                        let refusal = self.refuses_to_close(&thread, seen);
                        if refusal.is_none() {
                            closing = Some((id, report));
                        }
                        refusal
                    }
                }
            };
            answers.extend(answer.map(|answer| (id, answer)));
            self.open.insert(id, call);
        }
        if let Some((id, report)) = closing {
            // The other calls that were answered at once are done; those that would have to wait are not begun.
            let text = self.close(step, report);
            let waiting = self.open.keys().filter(|open| answers.iter().all(|(answered, _)| answered != *open));
            let waiting: Vec<_> = waiting.copied().collect();
            answers.extend(waiting.into_iter().map(|open| match open == id {
                true => (open, Answer::text(AnsweredBy::BuiltIn, text.clone())),
                false => (open, Answer::text(AnsweredBy::Cancelled, "Not started: this thread was closed.")),
            }));
        } else if spent {
            self.close_for_its_budget(step, blocks);
        }
        if self.open.is_empty() {
            self.refused_turns = 0;
            if self.pending.is_empty() {
                // Nothing is left to answer, even if a full queue asked for another try meanwhile.
                self.triggered = seen;
            }
        }
        self.turn_refused = true;
        let triggered = self.triggered;
        for (id, answer) in answers {
            self.answer(step, id, answer);
        }
        if self.stopped > seen {
            // The turn was under way when the thread was stopped: its calls do not set the thread going again.
            self.triggered = triggered;
        }
    }
}

/// What of a completion enters the history. Empty text says nothing; of a completion that was cut only the text is whole.
fn kept(blocks: Vec<Block>, cut: bool) -> Vec<Block> {
    let mut calls = 0;
    blocks
        .into_iter()
        .filter(|block| match block {
            Block::Text(text) => !text.is_empty(),
            Block::Reasoning { .. } => !cut,
            Block::Call { .. } => {
                calls += 1;
                !cut && calls <= CALLS_KEPT_MAX
            }
        })
        .collect()
}
