//! Posts: what threads of one tree send each other, exactly once through any crash.
//!
//! In: posts of other threads, receipts for one's own. Out: an event for the model, and a receipt for every delivery. Always:
//! a post is owed until its receipt has come; the second delivery changes nothing and has its receipt all the same; a post
//! that is not taken is routed on or told.

use super::{Answer, Step, Thread, Unsummarized};
use crate::effect::{Effect, Outcome, Refusal, Shown};
use crate::history::{AnsweredBy, Item};
use crate::id::{PostId, ThreadId};
use crate::record::{Arrival, Content, Post, PostBody, Receipt, Record, Undelivered};
use std::sync::Arc;

impl Thread {
    /// Sends something to another thread, and keeps it until that one has it.
    pub(super) fn post(&mut self, step: &mut Step, to: ThreadId, body: PostBody) {
        let id = PostId { from: self.id, number: step.number, index: step.posted };
        step.posted += 1;
        let arrival = Arrival { ticket: None, thread: to, at_ms: step.at_ms, record: Record::Post(Post { id, body }) };
        self.outbox.insert(id, arrival.clone());
        step.effects.push(Effect::Post(arrival));
    }

    /// Another thread has sent something.
    pub(super) fn posted(&mut self, step: &mut Step, post: Post) -> Outcome {
        let id = post.id;
        let outcome = match self.posts.get(&id) {
            Some(&first) => Outcome::Duplicate(first),
            None => self.take(step, post.id.from, post.body),
        };
        let refused = match outcome {
            Outcome::Refused(why) => Some(why.undelivered()),
            Outcome::Taken(number) => {
                self.posts.insert(id, number);
                None
            }
            Outcome::Duplicate(_) | Outcome::Declined(_) => None,
        };
        let record = Record::Delivered(Receipt { post: id, refused });
        step.effects.push(Effect::Post(Arrival { ticket: None, thread: id.from, at_ms: step.at_ms, record }));
        outcome
    }

    fn take(&mut self, step: &mut Step, from: ThreadId, body: PostBody) -> Outcome {
        if self.closed.is_some() {
            return match body {
                PostBody::Closed => {
                    self.child_closed(step, from);
                    Outcome::Taken(step.number)
                }
                _ => Outcome::Refused(Refusal::Closed),
            };
        }
        let parent = self.parent();
        match body {
            PostBody::Birth(birth) => return self.born(step, *birth),
            PostBody::Message(text) => {
                let Some(family) = self.family.as_ref().filter(|_| parent == Some(from)) else {
                    return Outcome::Refused(Refusal::Unrelated);
                };
                if self.is_full() {
                    return Outcome::Refused(Refusal::QueueFull);
                }
                let text = format!("Message of your parent:\n{text}");
                let item = step.event(&family.spawn, vec![Content::Text(text)]);
                step.tell(Shown::Event(item.clone()));
                self.inject(step, item);
            }
            PostBody::Report { branch, text } => {
                let Some(child) = self.children.get(&branch) else { return Outcome::Refused(Refusal::Unrelated) };
                if self.is_full() {
                    return Outcome::Refused(Refusal::QueueFull);
                }
                let who = if branch == from { "your child" } else { "a thread below your closed child" };
                let text = format!("Report of {who} {from}:\n{text}");
                let item = step.event(&child.cause, vec![Content::Text(text)]);
                step.tell(Shown::Report { from, item: item.clone() });
                self.inject(step, item);
            }
            PostBody::Close => {
                if parent != Some(from) {
                    return Outcome::Refused(Refusal::Unrelated);
                }
                self.release_open_calls(
                    step,
                    AnsweredBy::Cancelled,
                    "Cancelled: this thread was closed by its parent.",
                );
                self.close(step, None);
            }
            PostBody::Stop => {
                if parent != Some(from) {
                    return Outcome::Refused(Refusal::Unrelated);
                }
                self.halt(step, true);
            }
            PostBody::Closed => {
                if !self.children.contains_key(&from) {
                    return Outcome::Refused(Refusal::Unrelated);
                }
                self.child_closed(step, from);
            }
            PostBody::Summarize { birth, covers, items } => return self.born_to_summarize(step, *birth, covers, items),
            PostBody::Summary { covers: _, text, usage } => return self.summary(step, from, text, usage),
            PostBody::SummaryFailed { why, overflow } => {
                let how = if overflow { Unsummarized::Unfit } else { Unsummarized::Failed };
                return self.not_summarized(step, from, why, how);
            }
        }
        Outcome::Taken(step.number)
    }

    /// What became of a post of this thread.
    pub(super) fn delivered(&mut self, step: &mut Step, receipt: Receipt) -> Outcome {
        let Some(arrival) = self.outbox.remove(&receipt.post) else { return Outcome::Taken(step.number) };
        let (to, Record::Post(Post { body, .. })) = (arrival.thread, arrival.record) else {
            unreachable!("the outbox holds posts")
        };
        let Some(why) = receipt.refused else { return Outcome::Taken(step.number) };
        match body {
            PostBody::Report { text, .. } if why != Undelivered::QueueFull && self.report_above(step, to, &text) => {}
            PostBody::Report { .. } => self.undelivered(step, to, why, "Your report"),
            PostBody::Message(_) => {
                if why == Undelivered::Closed {
                    self.child_closed(step, to);
                }
                self.undelivered(step, to, why, "Your message");
            }
            PostBody::Birth(_) => {
                self.child_closed(step, to);
                self.undelivered(step, to, why, "What a new child was to do");
            }
            PostBody::Close => self.child_closed(step, to),
            PostBody::Stop if why == Undelivered::Closed => self.child_closed(step, to),
            PostBody::Stop => step.tell(Shown::Undelivered { to, why }),
            PostBody::Summarize { .. } => {
                self.not_summarized(
                    step,
                    to,
                    "The thread for the summary could not be made.".to_owned(),
                    Unsummarized::Failed,
                );
            }
            PostBody::Closed | PostBody::Summary { .. } | PostBody::SummaryFailed { .. } => {}
        }
        Outcome::Taken(step.number)
    }

    /// What `report_to_parent` does.
    pub(super) fn report(&mut self, step: &mut Step, text: String) -> Answer {
        let Some(parent) = self.parent() else {
            return Answer::refusal("You are the root thread and have no parent: say it to the user.");
        };
        self.post(step, parent, PostBody::Report { branch: self.id, text });
        Answer::text(AnsweredBy::BuiltIn, "Reported.")
    }

    /// Sends a report to the ancestor above the one that did not take it, if there is one.
    fn report_above(&mut self, step: &mut Step, not_taken: ThreadId, text: &str) -> bool {
        let ancestors = self.ancestors();
        let Some(at) = ancestors.iter().position(|ancestor| *ancestor == not_taken).filter(|at| *at > 0) else {
            return false;
        };
        let above = ancestors[at - 1];
        self.post(step, above, PostBody::Report { branch: not_taken, text: text.to_owned() });
        true
    }

    /// Tells clients and, if it still listens, the model that something was not taken.
    fn undelivered(&mut self, step: &mut Step, to: ThreadId, why: Undelivered, what: &str) {
        step.tell(Shown::Undelivered { to, why });
        if self.closed.is_some() {
            return;
        }
        let cause = self.children.get(&to).map(|child| &child.cause);
        let Some(cause) = cause.or(self.family.as_ref().map(|family| &family.spawn)) else { return };
        let because = match why {
            Undelivered::Closed => "it is closed",
            Undelivered::Unknown => "there is no such thread",
            Undelivered::QueueFull => "it has too many inputs that it has not read",
            Undelivered::Damaged => "its records are damaged on disk",
            Undelivered::Unrelated => "it is not where it should be in the tree",
        };
        let text = format!("{what} did not reach the thread {to}: {because}.");
        let item = step.event(cause, vec![Content::Text(text)]);
        step.tell(Shown::Event(item.clone()));
        self.inject(step, item);
    }

    /// Adds an event that the model is to answer: when the calls that tools work at are answered, or at once.
    pub(super) fn inject(&mut self, step: &Step, item: Arc<Item>) {
        self.enqueue(step.number, item);
        self.triggered = step.number;
    }
}
