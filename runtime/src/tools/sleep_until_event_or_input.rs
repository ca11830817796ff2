//! `sleep_until_event_or_input()`: wait for whatever comes.
//!
//! In: nothing. Out: a thread that waits. Always: any input wakes it, and nothing else does.

use super::{BuiltIn, Plan};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "sleep_until_event_or_input",
    description: "Sleep until an event or a message arrives. Costs nothing while you sleep.",
    schema: r#"{"type":"object","properties":{}}"#,
    plan,
};

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of sleep_until_event_or_input are wrong: {error}. It takes none: give {{}}."
        )),
        Ok(_) => Plan::Doze,
    }
}
