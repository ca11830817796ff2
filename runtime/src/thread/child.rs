//! Children: how a thread makes them, comes into being as one, and speaks of them.
//!
//! In: births, and the calls `spawn_thread`, `send_message_to_child`, `list_children`. Out: a child on its way, or a thread
//! that knows where it is. Always: a child's name follows from its parent's and the call's; what it inherits is named and
//! not copied; who is not where the caller believes to be makes no child.

use super::{Answer, CHILDREN_LISTED_MAX, EVENT_INSTRUCTIONS, Step, Thread};
use crate::effect::{Outcome, Refusal, Shown};
use crate::history::{Answered, AnsweredBy, Event, Item};
use crate::id::{CallId, Number, ThreadId};
use crate::record::{Birth, Block, Bounds, Cause, Content, PostBody, Terms};
use crate::tools;
use std::sync::Arc;

/// What a thread knows of the one that made it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Family {
    /// Its ancestors: the root first, its parent last.
    pub(super) ancestors: Vec<ThreadId>,
    /// Its own copy of the call that made it.
    pub(super) spawn: Cause,
}

/// What a thread knows of a child.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Child {
    /// What its reports are shown as the events of.
    pub(super) cause: Cause,
    /// When it was made, in milliseconds since the Unix epoch.
    pub(super) since_ms: u64,
    /// Whether it has said that it is closed.
    pub(super) closed: bool,
    /// The subscription whose event it handles.
    pub(super) subscription: Option<CallId>,
}

impl Child {
    /// What it does, in a few words.
    pub(super) fn task(&self) -> String {
        match self.subscription {
            None => head(&tools::instructions(&self.cause.arguments)),
            Some(_) => format!("handles an event of {}", self.cause.name),
        }
    }
}

impl Thread {
    /// The thread comes into being as another one's child.
    pub(super) fn born(&mut self, step: &mut Step, birth: Birth) -> Outcome {
        let Birth { ancestors, spawn, fresh, event, terms, through: _ } = birth;
        let Some(&parent) = ancestors.last() else { return Outcome::Refused(Refusal::Unrelated) };
        if step.number > 1 {
            return Outcome::Refused(Refusal::Unrelated);
        }
        step.tell(Shown::Born { ancestors: ancestors.clone() });
        self.terms = terms.unwrap_or_default();
        self.family = Some(Family { ancestors, spawn: spawn.clone() });
        let place = self.place(parent);
        if fresh {
            let content = vec![Content::Text(tools::instructions(&spawn.arguments)), Content::Text(place)];
            self.enqueue(1, Arc::new(Item::User { number: 1, content }));
        } else {
            let Cause { name, provider_id, arguments } = spawn;
            let text = format!(
                "{place} What you see above this call is your parent's history up to it. Your task is this: {}",
                tools::instructions(&arguments)
            );
            let call = Block::Call { provider_id: provider_id.clone(), name: name.clone(), arguments };
            self.history.push(Arc::new(Item::Assistant { number: 1, blocks: vec![call], cut: false }));
            self.history.push(Arc::new(Item::Result(Answered {
                call: CallId { number: 1, index: 0 },
                provider_id,
                name,
                content: vec![Content::Text(text)],
                by: AnsweredBy::BuiltIn,
                display: None,
            })));
            // What it inherits and its task may be summarized when they do not fit; a summary repeats the task.
            self.may_cut(1);
        }
        if let Some((cause, content)) = event {
            let item = Arc::new(Item::Event(Event::of(CallId { number: 1, index: 1 }, &cause, content)));
            step.tell(Shown::Event(item.clone()));
            self.enqueue(1, item);
        }
        self.triggered = 1;
        Outcome::Taken(1)
    }

    /// Tells a child where it is.
    pub(super) fn place(&self, parent: ThreadId) -> String {
        format!(
            "You are the child thread {id}, made by the thread {parent}. Your path from the root, which is `child_of` if you \
             make children yourself, is {path}. Report with report_to_parent what your parent is to know, and when you are \
             done, close with close_thread and your id.",
            id = self.id,
            path = quoted(&self.path()),
        )
    }

    /// The threads from the first below the root down to this one; none for the root.
    pub(super) fn path(&self) -> Vec<ThreadId> {
        let above = self.ancestors().iter().skip(1).copied();
        above.chain(self.family.is_some().then_some(self.id)).collect()
    }

    /// What `spawn_thread` does. The prompt that the call answers had seen `seen`, and no call was open then.
    pub(super) fn spawn(
        &mut self,
        step: &mut Step,
        id: CallId,
        seen: Number,
        spawn: Cause,
        (child_of, fresh, asked): (&[String], bool, Terms),
    ) -> Answer {
        let path = self.path();
        if !child_of.iter().map(|id| id.parse()).eq(path.iter().map(|id| Ok(*id))) {
            return Answer::refusal(match self.family {
                Some(_) => format!(
                    "You are the child {}: what you see above the call that made you was your parent's to do. Do your own \
                     task. If it needs children, give your own path as `child_of`: {}.",
                    self.id,
                    quoted(&path)
                ),
                None => "You are the root thread: give [] as `child_of`.".to_owned(),
            });
        }
        if let Some(why) = self.no_room_for_a_child() {
            return Answer::refusal(why);
        }
        let terms = match self.terms_of_a_child(asked) {
            Ok(terms) => terms,
            Err(why) => return Answer::refusal(why),
        };
        self.spent_tokens += terms.budget_tokens.filter(|_| self.terms.budget_tokens.is_some()).unwrap_or(0);
        let (text, cause) = (tools::instructions(&spawn.arguments), spawn.clone());
        let birth = Birth { ancestors: vec![], through: seen, fresh, spawn, event: None, terms: Some(terms) };
        let child = self.make(step, id, birth, cause, None);
        Answer::text(
            AnsweredBy::BuiltIn,
            format!("The child {child} works beside you on: {}. Its reports come to you as events.", head(&text)),
        )
    }

    /// Makes a child for an event, if there is room for one.
    pub(super) fn spawn_for_event(
        &mut self,
        step: &mut Step,
        subscription: CallId,
        cause: &Cause,
        content: &[Content],
    ) -> bool {
        // A budget is the model's to divide; an event costs the thread that has one.
        if self.no_room_for_a_child().is_some() || self.terms.budget_tokens.is_some() {
            return false;
        }
        let (name, arguments) = tools::spawn_for_event(EVENT_INSTRUCTIONS);
        let spawn = Cause { name: name.to_owned(), provider_id: format!("event_{}", step.number), arguments };
        // While calls are open, the child starts before the turn that made them; otherwise just before this record.
        let through = if self.open.is_empty() { step.number - 1 } else { self.safe };
        let event = Some((cause.clone(), content.to_vec()));
        let birth = Birth { ancestors: vec![], through, fresh: false, spawn, event, terms: Some(self.terms.clone()) };
        let id = CallId { number: step.number, index: 0 };
        self.make(step, id, birth, cause.clone(), Some(subscription));
        true
    }

    fn no_room_for_a_child(&self) -> Option<String> {
        let Bounds { depth_max, children_max, .. } = self.bounds;
        if self.path().len() >= usize::from(depth_max) {
            return Some(format!(
                "Threads are at most {depth_max} levels deep, and you are at the last: do the work yourself."
            ));
        }
        (self.living >= children_max as usize)
            .then(|| format!("A thread has at most {children_max} children that are not closed: wait until some are."))
    }

    fn make(
        &mut self,
        step: &mut Step,
        id: CallId,
        mut birth: Birth,
        cause: Cause,
        subscription: Option<CallId>,
    ) -> ThreadId {
        let child = self.id.child(id);
        birth.ancestors = self.ancestors().to_vec();
        birth.ancestors.push(self.id);
        birth.terms = birth.terms.filter(|terms| *terms != Terms::default());
        self.post(step, child, PostBody::Birth(Box::new(birth)));
        self.children.insert(child, Child { cause, since_ms: step.at_ms, closed: false, subscription });
        self.living += 1;
        step.tell(Shown::Spawned { child, call: subscription.unwrap_or(id), for_event: subscription.is_some() });
        child
    }

    /// What `send_message_to_child` does.
    pub(super) fn send_to_child(&mut self, step: &mut Step, child: &str, message: String) -> Answer {
        let known = child.parse().ok().and_then(|id: ThreadId| self.children.get(&id).map(|known| (id, known.closed)));
        match known {
            Some((id, false)) => {
                self.post(step, id, PostBody::Message(message));
                Answer::text(AnsweredBy::BuiltIn, "Sent; the child gets it as an event.")
            }
            Some((id, true)) => Answer::refusal(format!("The child {id} is closed: it takes no messages any more.")),
            None => Answer::refusal(format!("{child} is no child of yours: list_children names them.")),
        }
    }

    /// What `list_children` says.
    pub(super) fn list_children(&self) -> Answer {
        let living = self.children.iter().filter(|(_, child)| !child.closed);
        let lines: Vec<String> =
            living.take(CHILDREN_LISTED_MAX).map(|(id, child)| format!("{id}: {}", child.task())).collect();
        let closed = self.children.len() - self.living;
        let text = match self.living {
            0 => format!("You have no children that are not closed; {closed} are closed."),
            living if living > lines.len() => {
                format!(
                    "The first {} of {living} children; {closed} more are closed:\n{}",
                    lines.len(),
                    lines.join("\n")
                )
            }
            living => format!("{living} children; {closed} more are closed:\n{}", lines.join("\n")),
        };
        Answer::text(AnsweredBy::BuiltIn, text)
    }
}

/// A path as the JSON in which it is to be given.
fn quoted(path: &[ThreadId]) -> String {
    let ids: Vec<String> = path.iter().map(|id| format!("\"{id}\"")).collect();
    format!("[{}]", ids.join(", "))
}

/// As much of a text as helps to recognise it.
fn head(text: &str) -> String {
    let mut letters = text.chars();
    let head: String = letters.by_ref().take(80).collect();
    if letters.next().is_some() { format!("{head}…") } else { head }
}
