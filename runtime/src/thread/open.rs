//! Open calls: what the model has asked for and nobody has answered yet.
//!
//! In: answers, real ones and substitutes. Out: items of the history, and what the world is asked on behalf of a call.
//! Always: a call has one answer; what was asked for it (a timer, a tool, a person) is taken back when it is answered, but for
//! an approval that a message came before.

use super::{Step, Thread};
use crate::effect::{Dispatch, Due, Effect, Respond, Shown};
use crate::history::{Answered, AnsweredBy, Item};
use crate::id::{CallId, Number, ThreadId};
use crate::record::{Cause, Content, FailureClass};
use std::sync::Arc;

/// What the model reads of a call that it may still see done.
const HELD: &str = "Interrupted by a new message before it was approved. The question stays open: if it is approved later, the \
    call is done and its result arrives as an event. Do not call it again.";

/// A call that the model made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Call {
    pub(super) provider_id: String,
    pub(super) name: String,
    pub(super) arguments: String,
    pub(super) since_ms: u64,
    pub(super) phase: Phase,
    /// The question by whose answer it was approved.
    pub(super) approved: Option<Number>,
    /// When it times out, in milliseconds since the Unix epoch.
    pub(super) due_ms: Option<u64>,
}

/// How far a call has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A tool was asked and has not said that it took it over.
    Dispatched,
    /// The tool took it over.
    Accepted,
    /// It is a sleep until a time.
    Sleeping(Due),
    /// It is a sleep until anything arrives.
    Dozing,
    /// A person has the question of this number.
    Asking(Number),
    /// A person has chosen; the tool is to be told and has not said that it knows.
    Responding(Chosen),
    /// The tool was told that nobody waits for it any more.
    Dropped,
}

/// What a person has chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) question: Number,
    pub(super) url: String,
    pub(super) selected: u32,
}

impl Call {
    pub(super) fn cause(&self) -> Cause {
        Cause {
            name: self.name.clone(),
            provider_id: self.provider_id.clone(),
            arguments: if self.arguments.trim().is_empty() { "{}".to_owned() } else { self.arguments.clone() },
        }
    }

    pub(super) fn is_sleep(&self) -> bool {
        matches!(self.phase, Phase::Sleeping(_) | Phase::Dozing)
    }

    pub(super) fn dispatch(&self, thread: &Thread, call: CallId) -> Dispatch {
        Dispatch {
            thread: thread.id,
            call,
            name: self.name.clone(),
            arguments: self.arguments.clone(),
            approved: self.approved.is_some(),
            ancestors: thread.ancestors().to_vec(),
        }
    }

    /// What the world is asked on behalf of the call, in the phase it is in.
    pub(super) fn asked(&self, thread: &Thread, call: CallId) -> Option<Effect> {
        match &self.phase {
            Phase::Dispatched => Some(Effect::Dispatch(self.dispatch(thread, call))),
            Phase::Sleeping(due) => Some(Effect::Arm { thread: thread.id, call, due: due.clone() }),
            Phase::Responding(chosen) => Some(Effect::Respond(self.respond(thread.id, call, chosen))),
            Phase::Accepted | Phase::Dozing | Phase::Asking(_) | Phase::Dropped => None,
        }
    }

    fn respond(&self, thread: ThreadId, call: CallId, chosen: &Chosen) -> Respond {
        let Chosen { question, url, selected } = chosen;
        Respond { thread, call, name: self.name.clone(), question: *question, url: url.clone(), selected: *selected }
    }
}

/// An answer on its way to a call.
pub(super) struct Answer {
    pub(super) by: AnsweredBy,
    pub(super) content: Vec<Content>,
    pub(super) display: Option<String>,
}

impl Answer {
    pub(super) fn text(by: AnsweredBy, text: impl Into<String>) -> Self {
        Self { by, content: vec![Content::Text(text.into())], display: None }
    }

    pub(super) fn refusal(text: impl Into<String>) -> Self {
        Self::text(AnsweredBy::Refusal, text)
    }

    fn into_item(self, call: CallId, of: &Call) -> Answered {
        Answered {
            call,
            provider_id: of.provider_id.clone(),
            name: of.name.clone(),
            content: self.content,
            by: self.by,
            display: self.display,
        }
    }
}

impl Thread {
    /// Answers an open call in the history and tells the clients. When it was the last open one, the model goes on.
    pub(super) fn answer(&mut self, step: &mut Step, id: CallId, answer: Answer) -> Option<Call> {
        let mut call = self.open.remove(&id)?;
        self.turn_refused &= answer.by == AnsweredBy::Refusal;
        let held = answer.by == AnsweredBy::Interrupted && self.awaits_approval(&call);
        let item = Arc::new(Item::Result(answer.into_item(id, &call)));
        let shown = self.shown(&item);
        self.history.push(shown);
        step.tell(Shown::Result(item));
        if !held {
            self.take_back(step, id, &mut call);
        }
        if self.open.is_empty() {
            self.triggered = step.number;
            self.count_refused_turn(step);
        }
        Some(call)
    }

    /// A model that makes nothing but calls that are refused is stopped, visibly, before it has gone on for ever.
    fn count_refused_turn(&mut self, step: &mut Step) {
        self.refused_turns = if self.turn_refused { self.refused_turns + 1 } else { 0 };
        let most = self.bounds.refused_turns_max.get();
        if self.refused_turns >= most {
            self.refused_turns = 0;
            self.settled = step.number;
            step.tell(Shown::Failure {
                class: FailureClass::Fatal,
                message: format!(
                    "The model made {most} turns in a row whose calls were all refused; the thread waits for you."
                ),
            });
        }
    }

    /// Gives every open call an answer, because something has arrived that does not wait for them. A sleep is simply over;
    /// a tool's call gets a substitute, and the tool is told. A call that waits for its approval may still be approved, unless
    /// nothing of what was asked is wanted any more.
    pub(super) fn release_open_calls(&mut self, step: &mut Step, substitute: AnsweredBy, why: &str) {
        for id in self.open.keys().copied().collect::<Vec<_>>() {
            let call = &self.open[&id];
            let interrupted = substitute == AnsweredBy::Interrupted;
            let (by, text) = match (interrupted, call.is_sleep(), self.awaits_approval(call)) {
                (true, true, _) => (AnsweredBy::BuiltIn, "Woken by a new input."),
                (true, _, true) => (substitute, HELD),
                _ => (substitute, why),
            };
            let unasked = self.awaits_approval(call);
            let call = self.answer(step, id, Answer::text(by, text)).expect("invariant: the id was just listed");
            match call.phase {
                // A sleep of this very record was not armed yet.
                Phase::Sleeping(_) if id.number < step.number => {
                    step.effects.push(Effect::Disarm { thread: self.id, call: id });
                }
                Phase::Sleeping(_) | Phase::Dozing => {}
                // It may still be approved.
                Phase::Asking(_) if unasked && interrupted => {
                    self.substituted.insert(id, call);
                }
                // No tool has heard of it.
                _ if unasked => {}
                _ => self.drop_call(step, id, call),
            }
        }
    }

    /// Tells the tool that nobody waits for a call any more. Its result is welcome all the same.
    pub(super) fn drop_call(&mut self, step: &mut Step, id: CallId, mut call: Call) {
        step.effects.push(Effect::Cancel(call.dispatch(self, id)));
        call.phase = Phase::Dropped;
        self.substituted.insert(id, call);
    }

    /// Takes back what was asked on behalf of a call that is not waited for any more: its timer, and its question.
    pub(super) fn take_back(&mut self, step: &mut Step, id: CallId, call: &mut Call) {
        if call.due_ms.take().is_some() {
            step.effects.push(Effect::Disarm { thread: self.id, call: id });
        }
        if let Phase::Asking(question) = call.phase {
            self.withdraw(question);
        }
    }

    /// Ends the calls that go on although their turn was interrupted. The model learns of those that were to be approved.
    pub(super) fn end_late_calls(&mut self, step: &mut Step) {
        let mut unasked = Vec::new();
        for id in self.substituted.keys().copied().collect::<Vec<_>>() {
            let Some(mut call) = self.substituted.remove(&id) else { continue };
            if self.awaits_approval(&call) {
                self.take_back(step, id, &mut call);
                unasked.push(call);
                continue;
            }
            self.take_back(step, id, &mut call);
            match call.phase {
                Phase::Dropped => {
                    self.substituted.insert(id, call);
                }
                _ => self.drop_call(step, id, call),
            }
        }
        if let Some(first) = unasked.first() {
            let names: Vec<&str> = unasked.iter().map(|call| call.name.as_str()).collect();
            let text = format!(
                "Not done, and not to be approved any more, because this thread was stopped: {}.",
                names.join(", ")
            );
            self.notice(step, &first.cause(), text);
        }
    }

    /// An event that is no call's result, for the model's next turn. It does not set the thread going.
    pub(super) fn notice(&mut self, step: &mut Step, cause: &Cause, text: String) {
        let item = step.event(cause, vec![Content::Text(text)]);
        step.tell(Shown::Event(item.clone()));
        self.noticed.insert(step.number);
        self.enqueue(step.number, item);
    }
}
