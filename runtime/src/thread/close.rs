//! Closing: a thread ends, with all below it.
//!
//! In: `close_thread`, or the parent's word. Out: children told to close, subscriptions cancelled, the parent told. Always: a
//! closed thread asks nothing of the world and takes nothing; what it had already sent still arrives.

use super::{Answer, Step, Thread};
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
        self.substituted.clear();
        let living: Vec<ThreadId> =
            self.children.iter().filter(|(_, child)| !child.closed).map(|(&id, _)| id).collect();
        let summarizing = self.compaction.running.take().map(|attempt| attempt.child);
        living.iter().chain(&summarizing).for_each(|child| self.post(step, *child, PostBody::Close));
        let subscriptions = self.end_subscriptions(step);
        if let Some(text) = report {
            self.report(step, text);
        }
        if let Some(parent) = self.family.as_ref().and_then(|family| family.ancestors.last().copied()) {
            self.post(step, parent, PostBody::Closed);
        }
        step.tell(Shown::Closed { children: living.len(), subscriptions, unseen: self.pending.len() });
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

    /// Cancels what still produces events. Returns how many there were.
    fn end_subscriptions(&mut self, step: &mut Step) -> usize {
        let active: Vec<_> =
            self.subscriptions.iter().filter(|(_, subscription)| !subscription.ended).map(|(&id, _)| id).collect();
        for &id in &active {
            self.end_subscription(step, id);
        }
        active.len()
    }

    /// The effect that tells a subscription's tool that nobody listens any more.
    pub(super) fn cancel(&self, call: crate::id::CallId, cause: &crate::record::Cause) -> Effect {
        Effect::Cancel(crate::effect::Dispatch {
            thread: self.id,
            call,
            name: cause.name.clone(),
            arguments: cause.arguments.clone(),
        })
    }
}
