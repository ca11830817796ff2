//! Questions: what people are asked on behalf of a call, and what they answer.
//!
//! In: `Asked`, `Answered`, `Responded`. Out: a question for the clients; a call that is done, denied, or told what was chosen.
//! Always: an answer names its question, and a question is answered once or withdrawn; text answers none. While a question is
//! open its call asks nothing of the world, so that the thread may leave memory.

use super::{Answer, Call, Chosen, Phase, QUESTIONS_MAX, Step, Thread};
use crate::effect::{Effect, Outcome, Refusal, Shown};
use crate::history::AnsweredBy;
use crate::id::{CallId, Number};
use crate::record::{self, Asks, Decision, Verdict};

/// Something that a person was asked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    /// For which call.
    pub(super) call: CallId,
    /// What.
    pub(super) asks: Asks,
    /// When, in milliseconds since the Unix epoch.
    pub(super) since_ms: u64,
    /// What has become of it.
    pub(super) fate: Fate,
}

/// What has become of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It waits for its answer.
    Open,
    /// It has its answer.
    Answered,
    /// Nobody waits for an answer any more.
    Withdrawn,
}

impl Thread {
    /// Whether a call waits for a person to say that it may be done. No tool has heard of it then.
    pub(super) fn awaits_approval(&self, call: &Call) -> bool {
        let Phase::Asking(question) = call.phase else { return false };
        self.questions.get(&question).is_some_and(|question| matches!(question.asks, Asks::Approval { .. }))
    }

    /// A person is asked something on behalf of a call.
    pub(super) fn asked_of_a_person(&mut self, step: &mut Step, question: record::Question) -> Outcome {
        let record::Question { call: id, asks, origin: _ } = question;
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        let Some(call) = self.open.get(&id).or_else(|| self.substituted.get(&id)) else {
            let over = self.answered.contains_key(&id);
            return Outcome::Refused(if over { Refusal::QuestionWithdrawn } else { Refusal::NoSuchCall });
        };
        let is_approval = matches!(asks, Asks::Approval { .. });
        let is_same = |number: &Number| self.questions.get(number).is_some_and(|known| known.asks == asks);
        let replaced = match &call.phase {
            Phase::Dropped => return Outcome::Refused(Refusal::QuestionWithdrawn),
            Phase::Sleeping(_) | Phase::Dozing => return Outcome::Refused(Refusal::NoSuchCall),
            Phase::Asking(known) if self.awaits_approval(call) => {
                // Nobody but the runtime knows of the call yet.
                return if is_approval { Outcome::Duplicate(*known) } else { Outcome::Refused(Refusal::NoSuchCall) };
            }
            Phase::Asking(known) | Phase::Responding(Chosen { question: known, .. }) if is_same(known) => {
                return Outcome::Duplicate(*known);
            }
            _ if is_approval && call.approved.is_some() => {
                return Outcome::Duplicate(call.approved.unwrap_or_default());
            }
            Phase::Dispatched => None,
            _ if is_approval => return Outcome::Refused(Refusal::NoSuchCall),
            Phase::Asking(known) => Some(*known),
            Phase::Accepted | Phase::Responding(_) => None,
        };
        if let Some(known) = replaced {
            self.withdraw(known);
        }
        if self.questions.len() >= QUESTIONS_MAX && !self.forget_a_question() {
            if is_approval && self.open.contains_key(&id) {
                let text = format!(
                    "Not done: {QUESTIONS_MAX} questions wait for an answer, which is the most. Wait until some have one."
                );
                self.answer(step, id, Answer::refusal(text));
                return Outcome::Taken(step.number);
            }
            return Outcome::Refused(Refusal::QueueFull);
        }
        let call = self.call_mut(id).expect("invariant: the call was found just now");
        call.phase = Phase::Asking(step.number);
        // A tool was to do it before the rules were others: its time begins with the approval.
        if is_approval && call.due_ms.take().is_some() {
            step.effects.push(Effect::Disarm { thread: step.thread, call: id });
        }
        let (name, arguments) = (call.name.clone(), call.arguments.clone());
        step.tell(Shown::Question { question: step.number, call: id, name, arguments, asks: asks.clone() });
        self.questions.insert(step.number, Question { call: id, asks, since_ms: step.at_ms, fate: Fate::Open });
        Outcome::Taken(step.number)
    }

    /// Forgets the oldest question that nobody needs any more, if there is one.
    fn forget_a_question(&mut self) -> bool {
        let is_needed = |(number, question): &(&Number, &Question)| {
            let call = self.open.get(&question.call).or_else(|| self.substituted.get(&question.call));
            let is_told =
                matches!(call.map(|call| &call.phase), Some(Phase::Responding(chosen)) if chosen.question == **number);
            question.fate == Fate::Open || is_told
        };
        let found = self.questions.iter().find(|asked| !is_needed(asked)).map(|(number, _)| *number);
        found.is_some_and(|number| self.questions.remove(&number).is_some())
    }

    /// A person has answered.
    pub(super) fn verdict(&mut self, step: &mut Step, verdict: Verdict) -> Outcome {
        let Verdict { id: name, origin, question: number, answer } = verdict;
        if let Some(&first) = self.ids.get(&name) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        let Some(question) = self.questions.get(&number) else { return Outcome::Refused(Refusal::NoSuchQuestion) };
        match question.fate {
            Fate::Open => {}
            Fate::Answered => return Outcome::Refused(Refusal::QuestionAnswered),
            Fate::Withdrawn => return Outcome::Refused(Refusal::QuestionWithdrawn),
        }
        let phase = match (&question.asks, &answer) {
            (Asks::Approval { .. }, Decision::Approve | Decision::Deny { .. }) => Phase::Dispatched,
            (Asks::Choice { choices, respond_to, .. }, Decision::Choose { index }) => {
                if *index as usize >= choices.len() {
                    return Outcome::Refused(Refusal::NoSuchChoice);
                }
                Phase::Responding(Chosen { question: number, url: respond_to.clone(), selected: *index })
            }
            _ => return Outcome::Refused(Refusal::WrongAnswer),
        };
        let id = question.call;
        self.ids.insert(name, step.number);
        self.close_question(number, Fate::Answered);
        step.tell(Shown::Verdict { question: number, call: id, origin, answer: answer.clone() });
        let call = self.call_mut(id).expect("invariant: every_question_has_its_call: an open question's call is there");
        call.phase = phase;
        match answer {
            Decision::Deny { reason } => self.deny(step, id, reason),
            Decision::Approve | Decision::Choose { .. } => {
                if answer == Decision::Approve {
                    call.approved = Some(number);
                }
                let call = call.clone();
                step.effects.extend(call.asked(self, id));
            }
        }
        Outcome::Taken(step.number)
    }

    /// A tool knows what was chosen; it has the call again.
    pub(super) fn responded(&mut self, step: &Step, question: Number) -> Outcome {
        if let Some(id) = self.questions.get(&question).map(|question| question.call)
            && let Some(call) = self.call_mut(id)
            && matches!(&call.phase, Phase::Responding(chosen) if chosen.question == question)
        {
            call.phase = Phase::Accepted;
        }
        Outcome::Taken(step.number)
    }

    /// Nobody waits for the answer to a question any more.
    pub(super) fn withdraw(&mut self, question: Number) {
        self.close_question(question, Fate::Withdrawn);
    }

    fn close_question(&mut self, question: Number, fate: Fate) {
        if let Some(question) = self.questions.get_mut(&question) {
            question.fate = fate;
        }
    }

    /// A call may not be done: that is its answer, or an event if it has a substitute already.
    fn deny(&mut self, step: &mut Step, id: CallId, reason: Option<String>) {
        let text = match reason {
            Some(reason) => format!("Not done: denied by the user, who says: {reason}"),
            None => "Not done: denied by the user. Do not try it again unless you are asked to.".to_owned(),
        };
        self.answered.insert(id, step.number);
        match self.substituted.remove(&id) {
            Some(call) => {
                self.notice(step, &call.cause(), text);
                self.triggered = step.number;
            }
            None => {
                self.answer(step, id, Answer::text(AnsweredBy::Denied, text));
            }
        }
    }
}
