//! The built-in tools: those that act on the thread itself.
//!
//! In: a call's name and arguments. Out: what it does to the thread. Always: pure; one file a tool, with its name, its
//! schema and its plan.

use crate::effect::Due;

pub mod sleep;
pub mod sleep_until;
pub mod sleep_until_event_or_input;

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
}

/// All built-in tools, by name.
pub const BUILT_IN: [BuiltIn; 3] = [sleep::TOOL, sleep_until::TOOL, sleep_until_event_or_input::TOOL];

/// What a call of the built-in tool of this name does; nothing when there is none of this name.
pub fn plan(name: &str, arguments: &str, at_ms: u64) -> Option<Plan> {
    let tool = BUILT_IN.iter().find(|tool| tool.name == name)?;
    Some((tool.plan)(if arguments.trim().is_empty() { "{}" } else { arguments }, at_ms))
}
