//! `send_message_to_child(thread_id, message)`: say something to a child.
//!
//! In: a child's id and a text. Out: an event of the child. Always: only a child of one's own that is not closed.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "send_message_to_child",
    description: "Send a message to a child thread that you started. It gets the text as an event and is not interrupted by it.",
    schema: r#"{"type":"object","properties":{"thread_id":{"type":"string","description":"The id of the child"},"message":{"type":"string"}},"required":["thread_id","message"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    thread_id: String,
    message: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of send_message_to_child are wrong: {error}. Give {{\"thread_id\": \"…\", \"message\": \"…\"}}."
        )),
        Ok(Arguments { message, .. }) if message.trim().is_empty() => {
            Plan::Refuse("The message is empty: say what the child is to know.".to_owned())
        }
        Ok(Arguments { thread_id, message }) => Plan::SendToChild { child: thread_id, message },
    }
}
