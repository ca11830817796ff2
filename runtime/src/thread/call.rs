//! What tools answer: that they took a call over, how long it may take, its result.
//!
//! In: `Accepted`, `Deadline`, `View`, `Lost`, `Result`, and the timer of a deadline. Out: the call's one answer in the history, or an
//! event if it comes after a substitute. Always: a result answers a call that the thread made; the second result of a call
//! changes nothing, and neither does a second deadline.

use super::{Answer, Phase, Step, Thread};
use crate::effect::{Due, Effect, Outcome, Refusal, Shown};
use crate::history::AnsweredBy;
use crate::id::CallId;
use crate::record::{Content, ToolResult, ViewUpdate};

impl Thread {
    pub(super) fn accepted(&mut self, step: &Step, id: CallId) -> Outcome {
        if let Some(call) = self.call_mut(id)
            && call.phase == Phase::Dispatched
        {
            call.phase = Phase::Accepted;
        }
        Outcome::Taken(step.number)
    }

    /// A call that a tool works at may take so long. The first word counts: a call that is asked again after a crash has no
    /// more time than before.
    pub(super) fn deadline(&mut self, step: &mut Step, id: CallId, due_ms: u64) -> Outcome {
        let thread = self.id;
        let call = self.open.get(&id).or_else(|| self.substituted.get(&id));
        let unasked = call.is_some_and(|call| self.awaits_approval(call));
        if let Some(call) = self.call_mut(id)
            && call.due_ms.is_none()
            && !(unasked || call.is_sleep() || call.phase == Phase::Dropped)
        {
            call.due_ms = Some(due_ms);
            step.moved = true;
            step.effects.push(Effect::Arm { thread, call: id, due: Due::At(due_ms) });
        }
        Outcome::Taken(step.number)
    }

    /// The timer of a call's deadline has come due, if it has one.
    pub(super) fn timed_out(&mut self, step: &mut Step, id: CallId) -> bool {
        let Some(call) = self.call_mut(id).filter(|call| call.due_ms.is_some()) else { return false };
        // The timer is not there any more.
        call.due_ms = None;
        let text = "Timed out; the tool was told to cancel. If its result still comes, it arrives as an event.";
        if let Some(call) = self.answer(step, id, Answer::text(AnsweredBy::TimedOut, text)) {
            self.drop_call(step, id, call);
        } else if let Some(mut call) = self.substituted.remove(&id) {
            self.take_back(step, id, &mut call);
            self.notice(step, &call.cause(), text.to_owned());
            self.drop_call(step, id, call);
            self.triggered = step.number;
        }
        true
    }

    /// A tool knows nothing of a call any more that it had taken over.
    pub(super) fn lost(&mut self, step: &mut Step, id: CallId) -> Outcome {
        if !self.with_tools().any(|(known, _)| known == id) {
            return Outcome::Taken(step.number);
        }
        let text = "Lost by the tool: it does not know this call any more, and whether it did anything is not known. If its \
            result still comes, it arrives as an event.";
        if let Some(mut call) = self.answer(step, id, Answer::text(AnsweredBy::Lost, text)) {
            call.phase = Phase::Dropped;
            self.substituted.insert(id, call);
        } else if let Some(mut call) = self.substituted.remove(&id) {
            self.take_back(step, id, &mut call);
            self.notice(step, &call.cause(), text.to_owned());
            call.phase = Phase::Dropped;
            self.substituted.insert(id, call);
            self.triggered = step.number;
        }
        Outcome::Taken(step.number)
    }

    /// A tool has something for clients that show views.
    pub(super) fn view_update(&mut self, step: &mut Step, update: ViewUpdate) -> Outcome {
        let ViewUpdate { call, view_type, content, origin: _ } = update;
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        if self.call_mut(call).is_none() && !self.answered.contains_key(&call) {
            return Outcome::Refused(Refusal::NoSuchCall);
        }
        step.views += 1;
        step.tell(Shown::View { call, view_type, content });
        Outcome::Taken(step.number)
    }

    pub(super) fn result(&mut self, step: &mut Step, result: ToolResult) -> Outcome {
        let id = result.call;
        if let Some(&first) = self.answered.get(&id) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        if let Some(call) = self.open.get(&id) {
            let by = match (result.is_error, call.is_sleep()) {
                (true, _) if result.origin.is_runtime() => AnsweredBy::Refusal,
                (true, _) => AnsweredBy::ToolFailure,
                (false, true) => AnsweredBy::BuiltIn,
                (false, false) => AnsweredBy::Tool,
            };
            self.answered.insert(id, step.number);
            let (cause, mut content) = (call.cause(), result.content);
            if result.subscription && by == AnsweredBy::Tool {
                content.extend(self.begin_subscription(step, id, cause));
            }
            self.answer(step, id, Answer { by, content, display: result.display });
        } else if let Some(mut call) = self.substituted.remove(&id) {
            self.answered.insert(id, step.number);
            self.take_back(step, id, &mut call);
            let (cause, mut content) = (call.cause(), result.content);
            // The tool was told to cancel and goes on all the same: then its events are welcome, and the model knows.
            if result.subscription && !result.is_error {
                content.push(Content::Text("The call goes on producing events.".to_owned()));
                content.extend(self.begin_subscription(step, id, cause.clone()));
            }
            let item = step.event(&cause, content);
            step.tell(Shown::Event(item.clone()));
            self.enqueue(step.number, item);
            // A stopped thread is not set going again by what it had started before; it reads this with its next input.
            if id.number > self.stopped {
                self.triggered = step.number;
            }
        } else {
            return Outcome::Refused(Refusal::NoSuchCall);
        }
        Outcome::Taken(step.number)
    }
}
