//! `pin_note(note)`: keep something in view.
//!
//! In: a note. Out: a note that every later summary lists word for word. Always: how many and how long they may be, the
//! thread says.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "pin_note",
    description: "Pin a short note. When your history gets long and is replaced by a summary, pinned notes stay word for word. Use it for what must never be lost.",
    schema: r#"{"type":"object","properties":{"note":{"type":"string","description":"What to keep, in a few sentences"}},"required":["note"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    note: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!("The arguments of pin_note are wrong: {error}. Give {{\"note\": \"…\"}}.")),
        Ok(Arguments { note }) if note.trim().is_empty() => {
            Plan::Refuse("The note is empty: say what to keep.".to_owned())
        }
        Ok(Arguments { note }) => Plan::Pin(note),
    }
}
