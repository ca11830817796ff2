//! The history: what the model sees of a thread.
//!
//! In: items, appended by the fold. Out: the items in order, to whoever holds a clone. Always: append-only; a clone costs
//! one reference count and never changes; in the items every call is answered exactly once, directly after the turn that
//! made it.

use crate::id::{CallId, Number};
use crate::record::{Block, Cause, Content};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// One thing that the model sees.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Item {
    /// A user's message.
    User {
        /// Its record.
        number: Number,
        /// What it says.
        content: Vec<Content>,
    },
    /// A turn of the model.
    Assistant {
        /// The completion's record.
        number: Number,
        /// What it said, calls included. The n-th call among them is `CallId { number, index: n }`.
        blocks: Vec<Block>,
        /// Whether the turn was cut before the model had finished.
        cut: bool,
    },
    /// A call's result, or what stands for it.
    Result(Answered),
    /// Something that happened outside, shown to the model as a call that the runtime made (`receive_event__injected`)
    /// and its result.
    Event(Event),
}

/// The answer to a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answered {
    /// The call.
    pub call: CallId,
    /// The provider's id for the call.
    pub provider_id: String,
    /// The tool's name.
    pub name: String,
    /// What the model reads.
    pub content: Vec<Content>,
    /// Where the answer came from.
    pub by: AnsweredBy,
    /// How a person's client may show it: the tool's own JSON as text.
    pub display: Option<String>,
}

/// Where an answer came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnsweredBy {
    /// The tool itself.
    Tool,
    /// The tool, which says that it failed.
    ToolFailure,
    /// The runtime, which does not let the call happen (no such tool, bad arguments).
    Refusal,
    /// A built-in tool.
    BuiltIn,
    /// The substitute for a call that a new message interrupted.
    Interrupted,
    /// The substitute for a call that a stop cancelled.
    Cancelled,
    /// The substitute for a call that took too long.
    TimedOut,
    /// A person, who did not let the call happen.
    Denied,
    /// The substitute for a call that its tool does not know any more.
    Lost,
}

impl AnsweredBy {
    /// Whether the model should read the answer as a failure.
    pub fn is_error(self) -> bool {
        matches!(
            self,
            AnsweredBy::ToolFailure
                | AnsweredBy::Refusal
                | AnsweredBy::TimedOut
                | AnsweredBy::Denied
                | AnsweredBy::Lost
        )
    }

    /// Whether it stands for a result that may still come.
    pub fn is_substitute(self) -> bool {
        matches!(self, AnsweredBy::Interrupted | AnsweredBy::Cancelled | AnsweredBy::TimedOut | AnsweredBy::Lost)
    }
}

/// The name under which the model sees events.
pub const EVENT_TOOL: &str = "receive_event__injected";

/// Something that happened outside, with the call that gave rise to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// The runtime's own id for the injected call.
    pub id: CallId,
    /// The name of the tool that was called.
    pub original_tool_name: String,
    /// The provider's id of the call that gave rise to it.
    pub original_tool_call_id: String,
    /// That call's arguments, JSON as text.
    pub original_args: String,
    /// What happened.
    pub content: Vec<Content>,
}

impl Event {
    /// What a call gave rise to.
    pub fn of(id: CallId, cause: &Cause, content: Vec<Content>) -> Self {
        Self {
            id,
            original_tool_name: cause.name.clone(),
            original_tool_call_id: cause.provider_id.clone(),
            original_args: cause.arguments.clone(),
            content,
        }
    }
}

/// A thread's items, oldest first. Appending makes a new value that shares all that came before.
#[derive(Clone, Default)]
pub struct History {
    newest: Option<Arc<Node>>,
}

struct Node {
    item: Arc<Item>,
    length: usize,
    older: Option<Arc<Node>>,
}

impl History {
    /// Appends an item; clones made before do not see it.
    pub fn push(&mut self, item: Arc<Item>) {
        let older = self.newest.take();
        self.newest = Some(Arc::new(Node { item, length: older.as_ref().map_or(1, |n| n.length + 1), older }));
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.newest.as_ref().map_or(0, |node| node.length)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// The items, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Item>> {
        std::iter::successors(self.newest.as_deref(), |node| node.older.as_deref()).map(|node| &node.item)
    }

    /// The items, oldest first. Costs a list of pointers.
    pub fn to_vec(&self) -> Vec<&Arc<Item>> {
        let mut items = Vec::with_capacity(self.len());
        items.extend(self.newest_first());
        items.reverse();
        items
    }
}

impl Drop for History {
    /// Takes the list apart in a loop: the compiler's own drop would recurse once an item and overflow the stack.
    fn drop(&mut self) {
        let mut next = self.newest.take();
        while let Some(mut node) = next.and_then(Arc::into_inner) {
            next = node.older.take();
        }
    }
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.to_vec()).finish()
    }
}

impl PartialEq for History {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.newest_first().eq(other.newest_first())
    }
}

impl Serialize for History {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.to_vec())
    }
}

impl<'de> Deserialize<'de> for History {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Vec::<Item>::deserialize(deserializer)?.into_iter().map(Arc::new).collect())
    }
}

impl FromIterator<Arc<Item>> for History {
    fn from_iter<I: IntoIterator<Item = Arc<Item>>>(items: I) -> Self {
        let mut history = History::default();
        items.into_iter().for_each(|item| history.push(item));
        history
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(number: Number) -> Arc<Item> {
        Arc::new(Item::User { number, content: vec![Content::Text(number.to_string())] })
    }

    #[test]
    fn a_clone_does_not_see_what_is_appended_later() {
        let mut history: History = (1..=3).map(user).collect();
        let before = history.clone();
        history.push(user(4));
        assert_eq!(before.len(), 3);
        assert_eq!(history.to_vec(), (1..=4).map(user).collect::<Vec<_>>().iter().collect::<Vec<_>>());
    }

    #[test]
    fn an_item_more_is_one_node_more_and_the_rest_is_shared() {
        let before: History = (1..=100).map(user).collect();
        let mut after = before.clone();
        after.push(user(101));
        let newest = after.newest.as_ref().expect("it has items");
        let shared = (newest.older.as_ref()).zip(before.newest.as_ref());
        assert!(shared.is_some_and(|(older, newest)| Arc::ptr_eq(older, newest)));
    }

    #[test]
    fn two_that_grew_from_one_do_not_see_each_other() {
        let trunk: History = (1..=3).map(user).collect();
        let (mut left, mut right) = (trunk.clone(), trunk.clone());
        left.push(user(4));
        right.push(user(5));
        assert_ne!(left, right);
        drop(left);
        assert_eq!(right, [1, 2, 3, 5].into_iter().map(user).collect());
        assert_eq!(trunk, (1..=3).map(user).collect());
    }

    #[test]
    fn it_is_written_and_read_as_its_items_in_order() {
        let history: History = (1..=3).map(user).collect();
        let written = serde_json::to_string(&history).expect("a history is plain data");
        assert!(written.starts_with(r#"[{"User":{"number":1,"#), "{written}");
        assert_eq!(serde_json::from_str::<History>(&written).expect("it reads what it wrote"), history);
        assert!(History::default().is_empty());
    }

    #[test]
    fn a_long_history_is_dropped_without_recursion() {
        let history: History = (1..=1_000_000).map(user).collect();
        let clone = history.clone();
        drop(history);
        assert_eq!(clone.len(), 1_000_000);
    }
}
