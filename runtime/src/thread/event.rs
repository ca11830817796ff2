//! Events: what subscriptions produce, and how it reaches a model.
//!
//! In: results that begin a subscription, `Event`, `cancel_subscription`, and the digest's timer. Out: a child for each event,
//! or an event in the history. Always: the same id of the same subscription is one event; at most so many children handle a
//! subscription's events at a time, and the rest wait in order.

use super::{Answer, Step, Thread};
use crate::effect::{Due, Effect, Outcome, Refusal, Shown};
use crate::history::AnsweredBy;
use crate::id::CallId;
use crate::record::{Cause, Content, Deliver, SubscriptionEvent};
use std::collections::VecDeque;

/// A call that goes on producing events after its result.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Subscription {
    /// The call.
    pub(super) cause: Cause,
    /// Whether no more events are taken.
    pub(super) ended: bool,
    /// How many children handle its events.
    pub(super) handling: usize,
    /// Events that wait for such a child.
    pub(super) queue: VecDeque<Vec<Content>>,
    /// Events that wait for the digest, and when that is due at the latest, in milliseconds since the Unix epoch.
    pub(super) gathered: Vec<Vec<Content>>,
    pub(super) due_ms: Option<u64>,
}

impl Thread {
    /// Whether another subscription is too much.
    fn has_subscriptions_enough(&self) -> bool {
        self.subscriptions.values().filter(|subscription| !subscription.ended).count()
            >= self.bounds.subscriptions_max as usize
    }

    /// A call goes on producing events, if the thread may have one such call more; otherwise it is cancelled, which the model
    /// is told with these words.
    pub(super) fn begin_subscription(&mut self, step: &mut Step, id: CallId, cause: Cause) -> Option<Content> {
        if !self.has_subscriptions_enough() {
            self.subscribe(id, cause);
            return None;
        }
        step.effects.push(self.cancel(id, &cause));
        let most = self.bounds.subscriptions_max;
        Some(Content::Text(format!(
            "The runtime has cancelled this subscription: {most} at a time is the most. End others with cancel_subscription."
        )))
    }

    fn subscribe(&mut self, id: CallId, cause: Cause) {
        self.subscriptions.insert(
            id,
            Subscription {
                cause,
                ended: false,
                handling: 0,
                queue: VecDeque::new(),
                gathered: Vec::new(),
                due_ms: None,
            },
        );
    }

    pub(super) fn event(&mut self, step: &mut Step, event: SubscriptionEvent) -> Outcome {
        let SubscriptionEvent { subscription: id, id: name, content, associative, last, deliver, origin: _ } = event;
        let name = (id, name);
        if let Some(&first) = self.events.get(&name) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        let (is_full, queued_max) = (self.is_full(), self.bounds.events_queued_max as usize);
        let Some(subscription) = self.subscriptions.get_mut(&id) else {
            return Outcome::Refused(Refusal::NoSuchSubscription);
        };
        if subscription.ended {
            return Outcome::Refused(Refusal::SubscriptionEnded);
        }
        let deliver = deliver.unwrap_or(if associative { Deliver::Inline } else { Deliver::Child });
        let is_full = match deliver {
            Deliver::Child => subscription.queue.len() >= queued_max,
            Deliver::Inline => is_full,
            Deliver::Digest { .. } => subscription.gathered.len() >= queued_max || is_full,
        };
        if is_full {
            return Outcome::Refused(Refusal::QueueFull);
        }
        self.events.insert(name, step.number);
        subscription.ended = last;
        match deliver {
            Deliver::Child => {
                subscription.queue.push_back(content);
                self.handle_next(step, id);
            }
            Deliver::Inline => {
                let cause = subscription.cause.clone();
                self.inject_event(step, &cause, content);
            }
            Deliver::Digest { count, wait_ms } => {
                subscription.gathered.push(content);
                if last || subscription.gathered.len() >= count.max(1) as usize {
                    self.digest(step, id);
                } else if subscription.due_ms.is_none() {
                    let due_ms = step.at_ms.saturating_add(wait_ms);
                    subscription.due_ms = Some(due_ms);
                    step.effects.push(Effect::Arm { thread: self.id, call: id, due: Due::At(due_ms) });
                }
            }
        }
        Outcome::Taken(step.number)
    }

    /// A child of a subscription has closed: the next event has its turn.
    pub(super) fn event_handled(&mut self, step: &mut Step, id: CallId) {
        if let Some(subscription) = self.subscriptions.get_mut(&id) {
            subscription.handling -= 1;
            if self.closed.is_none() {
                self.handle_next(step, id);
            }
        }
    }

    /// Gives the first event that waits a child of its own, if there is one and not too many are at work. Each record lets
    /// at most one event go on: an event adds one, and a child that closes makes room for one.
    fn handle_next(&mut self, step: &mut Step, id: CallId) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        if subscription.handling >= self.bounds.event_children_max.get() as usize {
            return;
        }
        let Some(content) = subscription.queue.pop_front() else { return };
        subscription.handling += 1;
        let cause = subscription.cause.clone();
        if !self.spawn_for_event(step, id, &cause, &content) {
            // No child can be made; then the thread itself sees it, rather than nobody.
            if let Some(subscription) = self.subscriptions.get_mut(&id) {
                subscription.handling -= 1;
            }
            self.inject_event(step, &cause, content);
        }
    }

    /// The digest's timer has come due, if the call is a subscription's and one is gathered.
    pub(super) fn digest_is_due(&mut self, step: &mut Step, id: CallId) {
        if self.closed.is_none()
            && self.subscriptions.get(&id).is_some_and(|subscription| subscription.due_ms.is_some())
        {
            if let Some(subscription) = self.subscriptions.get_mut(&id) {
                subscription.due_ms = None;
            }
            self.digest(step, id);
        }
    }

    /// Injects all that was gathered as one event.
    fn digest(&mut self, step: &mut Step, id: CallId) {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return };
        let gathered = std::mem::take(&mut subscription.gathered);
        if subscription.due_ms.take().is_some() {
            step.effects.push(Effect::Disarm { thread: self.id, call: id });
        }
        let cause = subscription.cause.clone();
        let mut content = vec![Content::Text(format!("{} events:", gathered.len()))];
        content.extend(gathered.into_iter().flatten());
        self.inject_event(step, &cause, content);
    }

    fn inject_event(&mut self, step: &mut Step, cause: &Cause, content: Vec<Content>) {
        let item = step.event(cause, content);
        step.tell(Shown::Event(item.clone()));
        self.inject(step, item);
    }

    /// What `cancel_subscription` does: the newest subscription whose call has this id ends.
    pub(super) fn cancel_subscription(&mut self, step: &mut Step, called: &str) -> Answer {
        let named = |id: &CallId, cause: &Cause| cause.provider_id == called || id.to_string() == called;
        let found = self.subscriptions.iter().rev().find(|(id, s)| !s.ended && named(id, &s.cause)).map(|(&id, _)| id);
        let Some(id) = found else {
            return Answer::refusal(format!("There is no subscription {called}, or it has ended: nothing to cancel."));
        };
        let waiting = self.end_subscription(step, id);
        Answer::text(
            AnsweredBy::BuiltIn,
            match waiting {
                0 => "Cancelled: no more events of it come.".to_owned(),
                some => format!("Cancelled: no more events of it come; {some} that waited for their turn are dropped."),
            },
        )
    }

    /// Ends a subscription and tells its tool. Returns how many events were waiting, which nobody sees now.
    pub(super) fn end_subscription(&mut self, step: &mut Step, id: CallId) -> usize {
        let Some(subscription) = self.subscriptions.get_mut(&id) else { return 0 };
        let was_over = std::mem::replace(&mut subscription.ended, true);
        let waiting = subscription.queue.len() + subscription.gathered.len();
        subscription.queue.clear();
        subscription.gathered.clear();
        if subscription.due_ms.take().is_some() {
            step.effects.push(Effect::Disarm { thread: self.id, call: id });
        }
        let cause = subscription.cause.clone();
        if !was_over {
            step.effects.push(self.cancel(id, &cause));
        }
        waiting
    }
}
