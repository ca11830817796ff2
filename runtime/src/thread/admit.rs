//! What users ask: messages and stops.
//!
//! In: `Message`, `Stop`, `StopAll`. Out: a pending input, or a thread at rest. Always: the same id changes nothing the second time;
//! a message releases every open call and interrupts the completion under way.

use super::{Step, Thread};
use crate::effect::{Outcome, Refusal, Shown};
use crate::history::{AnsweredBy, Item};
use crate::id::ThreadId;
use crate::record::{Message, PostBody, Stop};
use std::sync::Arc;

impl Thread {
    pub(super) fn message(&mut self, step: &mut Step, message: Message) -> Outcome {
        if let Some(&first) = self.ids.get(&message.id) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() || self.summarizes.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        if self.is_full() {
            // The sender is told to come back later, so there must be a later: a thread at rest tries again with what it has.
            if self.open.is_empty() && !self.wants_completion() {
                self.triggered = step.number;
            }
            return Outcome::Refused(Refusal::QueueFull);
        }
        self.ids.insert(message.id, step.number);
        if self.name.is_none() {
            self.name = message.thread_name;
        }
        let item = Arc::new(Item::User { number: step.number, content: message.content });
        step.tell(Shown::Message(item.clone()));
        self.release_open_calls(
            step,
            AnsweredBy::Interrupted,
            "Interrupted by a new message; the tool was told to cancel. If its result still comes, it arrives as an event.",
        );
        self.enqueue(step.number, item);
        self.triggered = step.number;
        self.interrupted = step.number;
        self.refused_turns = 0;
        Outcome::Taken(step.number)
    }

    /// Somebody asks the thread to stop, perhaps with all below it.
    pub(super) fn stop(&mut self, step: &mut Step, stop: Stop, subtree: bool) -> Outcome {
        if let Some(&first) = self.ids.get(&stop.id) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        self.ids.insert(stop.id, step.number);
        self.halt(step, subtree);
        Outcome::Taken(step.number)
    }

    /// Ends what the thread is doing, and has its children do so if all below it is meant.
    pub(super) fn halt(&mut self, step: &mut Step, subtree: bool) {
        self.release_open_calls(step, AnsweredBy::Cancelled, "Cancelled: the user stopped this thread.");
        self.end_late_calls(step);
        self.interrupted = step.number;
        self.stopped = step.number;
        // A summary that is being made goes on, but nothing is asked again when it is there.
        self.compaction.unfit = None;
        step.tell(Shown::Stopped);
        if subtree {
            self.living_children().iter().for_each(|child| self.post(step, *child, PostBody::Stop));
        }
    }

    /// The children that are not closed.
    pub(super) fn living_children(&self) -> Vec<ThreadId> {
        self.children.iter().filter(|(_, child)| !child.closed).map(|(&id, _)| id).collect()
    }
}
