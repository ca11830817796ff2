//! Notes: what the model pins so that no summary loses it.
//!
//! In: `pin_note`, `unpin_note`. Out: notes that every summary lists word for word. Always: so many and so long at most; a
//! child begins with its parent's notes and changes only its own copy of them.

use super::{Answer, Thread};
use crate::history::AnsweredBy;
use std::collections::BTreeMap;

/// How many notes a thread pins at a time. Like the other bounds of the fold, it is part of its rules.
pub const NOTES_MAX: usize = 32;

/// How long a note may be, in bytes.
pub const NOTE_BYTES_MAX: usize = 1_024;

/// The pinned notes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Notes {
    /// How many were pinned so far, the ancestors' included: the last one's number.
    pub(super) made: u64,
    pub(super) pinned: BTreeMap<u64, String>,
}

impl Thread {
    /// What `pin_note` does.
    pub(super) fn pin(&mut self, note: String) -> Answer {
        if note.len() > NOTE_BYTES_MAX {
            return Answer::refusal(format!(
                "The note has {} bytes; at most {NOTE_BYTES_MAX} are pinned. Make it shorter.",
                note.len()
            ));
        }
        if self.notes.pinned.len() >= NOTES_MAX {
            return Answer::refusal(format!(
                "{NOTES_MAX} notes are pinned, which is the most. Unpin one that is not needed with unpin_note, then pin again."
            ));
        }
        self.notes.made += 1;
        self.notes.pinned.insert(self.notes.made, note);
        Answer::text(AnsweredBy::BuiltIn, format!("Pinned as note_{}.", self.notes.made))
    }

    /// What `unpin_note` does.
    pub(super) fn unpin(&mut self, id: &str) -> Answer {
        let number = id.strip_prefix("note_").and_then(|number| number.parse().ok());
        if number.is_some_and(|number: u64| self.notes.pinned.remove(&number).is_some()) {
            return Answer::text(AnsweredBy::BuiltIn, format!("Unpinned {id}."));
        }
        let pinned: Vec<String> = self.notes.pinned.keys().map(|number| format!("note_{number}")).collect();
        Answer::refusal(match pinned.is_empty() {
            true => format!("There is no note {id}: none is pinned."),
            false => format!("There is no note {id}; pinned are {}.", pinned.join(", ")),
        })
    }
}
