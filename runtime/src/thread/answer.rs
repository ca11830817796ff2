//! An answer on its way to a call.
//!
//! In: what answers it, and the words. Out: the item that enters the history. Always: what the model reads and where it came
//! from are said together; refusals are counted.

use super::{Call, REFUSED_TURNS_MAX, Step, Thread};
use crate::effect::Shown;
use crate::history::{Answered, AnsweredBy};
use crate::id::CallId;
use crate::record::{Content, FailureClass};

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

    pub(super) fn into_item(self, call: CallId, of: &Call) -> Answered {
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
    /// A model that makes nothing but calls that are refused is stopped, visibly, before it has gone on for ever.
    pub(super) fn count_refused_turn(&mut self, step: &mut Step) {
        self.refused_turns = if self.turn_refused { self.refused_turns + 1 } else { 0 };
        if self.refused_turns >= REFUSED_TURNS_MAX {
            self.refused_turns = 0;
            self.settled = step.number;
            step.tell(Shown::Failure {
                class: FailureClass::Fatal,
                message: format!(
                    "The model made {REFUSED_TURNS_MAX} turns in a row whose calls were all refused; the thread waits for you."
                ),
            });
        }
    }
}
