//! The built-in tools: those that act on the thread itself.
//!
//! In: a call's name and arguments. Out: what it does to the thread. Always: pure; one file a tool, with its name, its
//! schema and its plan. A plan follows from the arguments alone; whether the thread may do it, the thread says.

use crate::effect::Due;
use crate::record::Terms;

pub mod cancel_subscription;
pub mod close_thread;
pub mod list_children;
pub mod pin_note;
pub mod read_result;
pub mod report_to_parent;
pub mod send_message_to_child;
pub mod sleep;
pub mod sleep_until;
pub mod sleep_until_event_or_input;
pub mod spawn_thread;
pub mod unpin_note;

/// A tool that acts on the thread itself.
#[derive(Clone, Copy, Debug)]
pub struct BuiltIn {
    /// The name that the model calls.
    pub name: &'static str,
    /// What the model reads about it.
    pub description: &'static str,
    /// Its arguments' JSON Schema, as text.
    pub schema: &'static str,
    /// What a call with these arguments (JSON as text), received at this time (milliseconds since the Unix epoch), does.
    pub plan: fn(&str, u64) -> Plan,
}

/// What a call of a built-in tool does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// The thread sleeps until then, or until something arrives.
    Sleep(Due),
    /// The thread sleeps until something arrives.
    Doze,
    /// The call is answered at once.
    Answer(String),
    /// The call is refused; the text says why and what to do.
    Refuse(String),
    /// The thread makes a child. The instructions are in the arguments: [`spawn_thread::instructions`].
    Spawn {
        /// The path from the root on which the caller believes to be.
        child_of: Vec<String>,
        /// Whether the child inherits nothing.
        fresh: bool,
        /// What is asked for the child.
        terms: Terms,
    },
    /// The thread reports to its parent.
    Report(String),
    /// The thread closes.
    Close {
        /// The thread that the caller believes to be.
        thread: String,
        /// A last report.
        report: Option<String>,
    },
    /// The thread says something to a child.
    SendToChild {
        /// The child's id.
        child: String,
        /// What it says.
        message: String,
    },
    /// The thread ends the subscription of the call that the provider gave this id.
    CancelSubscription(String),
    /// The thread wants to know its children.
    ListChildren,
    /// The thread keeps a note in view.
    Pin(String),
    /// The thread lets the note of this id go.
    Unpin(String),
    /// The thread wants to read what was too long to be shown.
    Read {
        /// What it is called.
        handle: String,
        /// Where to begin, in bytes.
        offset: u64,
        /// How much, in bytes.
        length: Option<u64>,
    },
}

/// All built-in tools.
pub const BUILT_IN: [BuiltIn; 12] = [
    sleep::TOOL,
    sleep_until::TOOL,
    sleep_until_event_or_input::TOOL,
    spawn_thread::TOOL,
    report_to_parent::TOOL,
    close_thread::TOOL,
    send_message_to_child::TOOL,
    list_children::TOOL,
    cancel_subscription::TOOL,
    pin_note::TOOL,
    unpin_note::TOOL,
    read_result::TOOL,
];

/// What a call of the built-in tool of this name does; nothing when there is none of this name.
pub fn plan(name: &str, arguments: &str, at_ms: u64) -> Option<Plan> {
    let tool = BUILT_IN.iter().find(|tool| tool.name == name)?;
    Some((tool.plan)(if arguments.trim().is_empty() { "{}" } else { arguments }, at_ms))
}

/// Whether there is a built-in tool of this name.
pub fn is_built_in(name: &str) -> bool {
    BUILT_IN.iter().any(|tool| tool.name == name)
}

/// Whether a thread that may do nothing more may still call this.
pub fn is_last_word(name: &str) -> bool {
    name == report_to_parent::TOOL.name || name == close_thread::TOOL.name
}

/// What a `spawn_thread` call with these arguments has a child do.
pub fn instructions(arguments: &str) -> String {
    spawn_thread::instructions(arguments)
}

/// The `spawn_thread` call that the runtime makes for a child that handles an event: its name and arguments.
pub fn spawn_for_event(instructions: &str) -> (&'static str, String) {
    (spawn_thread::TOOL.name, spawn_thread::arguments(instructions))
}
