//! The history: what the model sees of a thread.
//!
//! In: items, appended by the fold. Out: the items in order, to whoever holds a clone. Always: append-only; a clone costs
//! one reference count and never changes; in the items every call is answered exactly once, directly after the turn that
//! made it. A summary makes a new list, in which it stands for the oldest items; the records of those stay.

use crate::id::{CallId, Number};
use crate::record::{Block, Cause, Content};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;

/// About how much of text a picture is worth to a model, in bytes.
const PICTURE_READ_BYTES: usize = 6 * 1_024;

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
    /// What stands for everything before it.
    Summary(Summary),
}

impl Item {
    /// The length of what it says, in bytes: about what the model has to read of it. A picture counts as much as a page of text,
    /// as models count it, however many bytes it has.
    pub fn byte_length(&self) -> usize {
        let piece = |piece: &Content| match piece {
            Content::Image { data, .. } => data.len().min(PICTURE_READ_BYTES),
            Content::Text(_) | Content::File { .. } => piece.byte_length(),
        };
        let pieces = |content: &[Content]| content.iter().map(piece).sum::<usize>();
        match self {
            Item::User { content, .. } => pieces(content),
            Item::Assistant { blocks, .. } => blocks.iter().map(Block::byte_length).sum(),
            Item::Result(answer) => pieces(&answer.content),
            Item::Event(event) => event.original_args.len() + pieces(&event.content),
            Item::Summary(summary) => summary.byte_length(),
        }
    }
}

/// What stands in a history for all items before it. The records that it covers stay in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The record that brought it.
    pub number: Number,
    /// The last record of the thread that it covers; all that the thread inherited is covered, too.
    pub covers: Number,
    /// What the model wrote.
    pub text: String,
    /// Where the thread is in its tree, and its task, if it is a child.
    pub place: Option<String>,
    /// The pinned notes: their ids and what they say.
    pub notes: Vec<(String, String)>,
    /// The calls whose subscriptions are active; long arguments are cut.
    pub subscriptions: Vec<Cause>,
    /// How many children are not closed.
    pub children: usize,
}

impl Summary {
    /// What the model reads.
    pub fn text(&self) -> String {
        let mut text = format!("Summary of the conversation so far, which stands for all before it:\n{}", self.text);
        if let Some(place) = &self.place {
            text.push_str(&format!("\n\n{place}"));
        }
        if !self.notes.is_empty() {
            text.push_str("\n\nPinned notes (unpin_note takes their ids):");
            self.notes.iter().for_each(|(id, note)| text.push_str(&format!("\n- {id}: {note}")));
        }
        if !self.subscriptions.is_empty() {
            text.push_str("\n\nActive subscriptions (cancel_subscription takes the id of the call):");
            self.subscriptions.iter().for_each(|Cause { name, provider_id, arguments }| {
                text.push_str(&format!("\n- {provider_id}: {name} {arguments}"));
            });
        }
        if self.children > 0 {
            text.push_str(&format!("\n\n{} of your children are not closed: list_children names them.", self.children));
        }
        text
    }

    fn byte_length(&self) -> usize {
        let notes: usize = self.notes.iter().map(|(id, note)| id.len() + note.len()).sum();
        let cause = |cause: &Cause| cause.name.len() + cause.provider_id.len() + cause.arguments.len();
        let subscriptions: usize = self.subscriptions.iter().map(cause).sum();
        self.text.len() + self.place.as_ref().map_or(0, String::len) + notes + subscriptions
    }
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
    /// The length of this item and all older ones, in bytes.
    bytes: usize,
    older: Option<Arc<Node>>,
}

impl History {
    /// Appends an item; clones made before do not see it.
    pub fn push(&mut self, item: Arc<Item>) {
        let older = self.newest.take();
        let (length, bytes) = older.as_ref().map_or((0, 0), |node| (node.length, node.bytes));
        let (length, bytes) = (length + 1, bytes + item.byte_length());
        self.newest = Some(Arc::new(Node { item, length, bytes, older }));
    }

    /// How many items there are.
    pub fn len(&self) -> usize {
        self.newest.as_ref().map_or(0, |node| node.length)
    }

    /// The length of what all items say, in bytes.
    pub fn byte_length(&self) -> usize {
        self.newest.as_ref().map_or(0, |node| node.bytes)
    }

    /// How many of the oldest items say together at most so many bytes.
    pub fn fitting(&self, bytes: usize) -> usize {
        self.nodes().find(|node| node.bytes <= bytes).map_or(0, |node| node.length)
    }

    /// The oldest so many items, all of them if there are not more; shared, not copied.
    pub fn first(&self, count: usize) -> Self {
        let mut newest = self.newest.as_ref();
        while let Some(node) = newest.filter(|node| node.length > count) {
            newest = node.older.as_ref();
        }
        Self { newest: newest.cloned() }
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.newest.is_none()
    }

    /// The items, newest first.
    pub fn newest_first(&self) -> impl Iterator<Item = &Arc<Item>> {
        self.nodes().map(|node| &node.item)
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        std::iter::successors(self.newest.as_deref(), |node| node.older.as_deref())
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
    fn its_beginning_is_shared_and_measured() {
        // One digit each.
        let history: History = (1..=9).map(user).collect();
        assert_eq!((history.byte_length(), history.fitting(0), history.fitting(4), history.fitting(99)), (9, 0, 4, 9));
        let first = history.first(4);
        assert_eq!((first.len(), first.byte_length()), (4, 4));
        let node = history.nodes().nth(5).expect("it has nine");
        assert!(first.nodes().next().is_some_and(|first| std::ptr::eq(first, node)));
        assert_eq!((history.first(0).len(), history.first(10).len(), History::default().first(1).len()), (0, 9, 0));
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
