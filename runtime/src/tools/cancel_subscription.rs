//! `cancel_subscription(tool_call_id)`: hear no more of something.
//!
//! In: the id of the call that subscribed. Out: a subscription that has ended. Always: its later events are refused.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "cancel_subscription",
    description: "End a subscription: no more events of it come. Give the id of the tool call that subscribed.",
    schema: r#"{"type":"object","properties":{"tool_call_id":{"type":"string","description":"The id of the call that subscribed; events name it as original_tool_call_id"}},"required":["tool_call_id"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    tool_call_id: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of cancel_subscription are wrong: {error}. Give {{\"tool_call_id\": \"…\"}}."
        )),
        Ok(Arguments { tool_call_id }) => Plan::CancelSubscription(tool_call_id),
    }
}
