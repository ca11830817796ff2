//! Closing: a thread ends, with all below it.
//!
//! In: `close_thread`, or the parent's word. Out: children told to close, subscriptions cancelled, the parent told. Always: a
//! closed thread asks nothing of the world and takes nothing; what it had already sent still arrives.

use super::{Answer, Phase, Step, Thread};
use crate::effect::{Effect, Shown};
use crate::history::AnsweredBy;
use crate::id::{Number, ThreadId};
use crate::record::PostBody;

impl Thread {
    /// Why `close_thread` may not be done, if it may not.
    pub(super) fn refuses_to_close(&self, thread: &str, seen: Number) -> Option<Answer> {
        if self.family.is_none() {
            return Some(Answer::refusal("You are the root thread, which cannot be closed."));
        }
        if thread.parse() != Ok(self.id) {
            return Some(Answer::refusal(format!(
                "A thread closes only itself: your id is {}. A child closes itself when it is done; send it a message.",
                self.id
            )));
        }
        let unseen = self.pending.iter().filter(|(number, _)| *number > seen).count();
        (unseen > 0).then(|| {
            Answer::text(
                AnsweredBy::BuiltIn,
                format!("Not closed yet: {unseen} inputs came meanwhile and follow. Read them, then close again."),
            )
        })
    }

    /// Closes the thread; its calls are answered already. Returns what was done, in words.
    pub(super) fn close(&mut self, step: &mut Step, report: Option<String>) -> String {
        self.closed = Some(step.number);
        self.stopped = step.number;
        self.interrupted = step.number;
        // Nothing takes a late result any more.
        for (id, mut call) in std::mem::take(&mut self.substituted) {
            let is_under_way = call.phase != Phase::Dropped && !self.awaits_approval(&call);
            self.take_back(step, id, &mut call);
            if is_under_way {
                step.effects.push(Effect::Cancel(call.dispatch(self, id)));
            }
        }
        let living = self.living_children();
        let summarizing = self.compaction.running.take().map(|attempt| attempt.child);
        living.iter().chain(&summarizing).for_each(|child| self.post(step, *child, PostBody::Close));
        let (subscriptions, waiting) = self.end_subscriptions(step);
        if let Some(text) = report {
            self.report(step, text);
        }
        if let Some(parent) = self.parent() {
            self.post(step, parent, PostBody::Closed);
        }
        step.effects.push(Effect::Close(self.id));
        step.tell(Shown::Closed { children: living.len(), subscriptions, unseen: self.pending.len() + waiting });
        format!("Closed, with {} children and {subscriptions} subscriptions.", living.len())
    }

    /// A child is closed, as it says itself or as a refusal shows.
    pub(super) fn child_closed(&mut self, step: &mut Step, id: ThreadId) {
        let Some(child) = self.children.get_mut(&id).filter(|child| !child.closed) else { return };
        child.closed = true;
        self.living -= 1;
        if let Some(subscription) = child.subscription {
            self.event_handled(step, subscription);
        }
    }

    /// Cancels what still produces events. Returns how many there were, and how many events waited for their turn; those of
    /// a subscription whose last event had come wait, too.
    fn end_subscriptions(&mut self, step: &mut Step) -> (usize, usize) {
        let all: Vec<_> = self.subscriptions.iter().map(|(&id, subscription)| (id, subscription.ended)).collect();
        let waiting = all.iter().map(|&(id, _)| self.end_subscription(step, id)).sum();
        (all.iter().filter(|(_, ended)| !ended).count(), waiting)
    }

    /// The effect that tells a subscription's tool that nobody listens any more.
    pub(super) fn cancel(&self, call: crate::id::CallId, cause: &crate::record::Cause) -> Effect {
        Effect::Cancel(crate::effect::Dispatch {
            thread: self.id,
            call,
            name: cause.name.clone(),
            arguments: cause.arguments.clone(),
            approved: false,
            ancestors: self.ancestors().to_vec(),
        })
    }
}
