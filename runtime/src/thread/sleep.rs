//! What timers say: which moment a wall-clock time is, and that it has come.
//!
//! In: `Armed`, `Fired`. Out: a sleep with its moment, or a thread awake. Always: a timer whose call is answered already
//! changes nothing, unless it is a digest's or ends a call that took too long.

use super::{Answer, Phase, Step, Thread};
use crate::effect::{Due, Outcome};
use crate::history::AnsweredBy;
use crate::id::CallId;

impl Thread {
    pub(super) fn armed(&mut self, step: &mut Step, id: CallId, due_ms: u64) -> Outcome {
        if let Some(call) = self.open.get_mut(&id)
            && let Phase::Sleeping(due @ Due::Wall { .. }) = &mut call.phase
        {
            *due = Due::At(due_ms);
            step.moved = true;
        }
        Outcome::Taken(step.number)
    }

    pub(super) fn fired(&mut self, step: &mut Step, id: CallId) -> Outcome {
        if self.open.get(&id).is_some_and(|call| matches!(call.phase, Phase::Sleeping(_))) {
            self.answer(step, id, Answer::text(AnsweredBy::BuiltIn, "The time has come."));
        } else if !self.timed_out(step, id) {
            self.digest_is_due(step, id);
        }
        Outcome::Taken(step.number)
    }
}
