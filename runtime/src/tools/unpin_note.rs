//! `unpin_note(note_id)`: let a pinned note go.
//!
//! In: the id that `pin_note` gave. Out: a note that later summaries do not list. Always: one that is not pinned is refused.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "unpin_note",
    description: "Unpin a note that you pinned and that need not be kept any more.",
    schema: r#"{"type":"object","properties":{"note_id":{"type":"string","description":"The id that pin_note gave, such as note_1"}},"required":["note_id"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    note_id: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => {
            Plan::Refuse(format!("The arguments of unpin_note are wrong: {error}. Give {{\"note_id\": \"note_1\"}}."))
        }
        Ok(Arguments { note_id }) => Plan::Unpin(note_id),
    }
}
