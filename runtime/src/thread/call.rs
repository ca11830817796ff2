//! What tools answer: that they took a call over, and its result.
//!
//! In: `Accepted`, `Result`. Out: the call's one answer in the history, or an event if it comes after a substitute.
//! Always: a result answers a call that the thread made; the second result of a call changes nothing.

use super::{Answer, Phase, Step, Thread};
use crate::effect::{Outcome, Refusal, Shown};
use crate::history::AnsweredBy;
use crate::id::CallId;
use crate::record::{Content, ToolResult};

impl Thread {
    pub(super) fn accepted(&mut self, step: &Step, id: CallId) -> Outcome {
        if let Some(call) = self.open.get_mut(&id)
            && call.phase == Phase::Dispatched
        {
            call.phase = Phase::Accepted;
        }
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
        } else if let Some(call) = self.substituted.remove(&id) {
            self.answered.insert(id, step.number);
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
