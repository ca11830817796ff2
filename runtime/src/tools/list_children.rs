//! `list_children()`: who works for this thread.
//!
//! In: nothing. Out: the children and what each was told to do. Always: those that are not closed.

use super::{BuiltIn, Plan};
use serde::de::IgnoredAny;
use std::collections::BTreeMap;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "list_children",
    description: "List the child threads that you started and that have not closed.",
    schema: r#"{"type":"object","properties":{}}"#,
    plan,
};

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str::<BTreeMap<String, IgnoredAny>>(arguments) {
        Err(error) => {
            Plan::Refuse(format!("The arguments of list_children are wrong: {error}. It takes none: give {{}}."))
        }
        Ok(_) => Plan::ListChildren,
    }
}
