//! `spawn_thread(instructions, child_of, fresh_context?, model?, tools?, budget_tokens?)`: have a child do something.
//!
//! In: instructions, and where the caller says that it is. Out: a child. Always: where the caller is, is for the thread to check: a child that finds
//! its parent's call in its history must not take it for its own.

use super::{BuiltIn, Plan};
use crate::record::Terms;
use serde::Deserialize;
use std::num::NonZeroU64;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "spawn_thread",
    description: "Start a child thread that works beside you. It sees your history up to now (unless fresh_context), then its instructions. Its reports come to you as events. You get its id at once; do not wait for it unless you need to.",
    schema: r#"{"type":"object","properties":{"instructions":{"type":"string","description":"What the child is to do, and what to report"},"child_of":{"type":"array","items":{"type":"string"},"description":"Your own path: the ids of the threads from the first child below the root down to yourself. Empty if nobody has told you that you are a child"},"fresh_context":{"type":"boolean","description":"Give it the instructions only and none of your history"},"model":{"type":"string","description":"Another model for it, by the provider's name"},"tools":{"type":"array","items":{"type":"string"},"description":"The only tools that it may use, beside those of its thread itself; all of yours if left out"},"budget_tokens":{"type":"integer","minimum":1,"description":"The tokens, of prompts and answers together, that it may use; then it is closed, and you are told"}},"required":["instructions","child_of"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    instructions: String,
    child_of: Vec<String>,
    #[serde(default)]
    fresh_context: bool,
    model: Option<String>,
    tools: Option<Vec<String>>,
    budget_tokens: Option<NonZeroU64>,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of spawn_thread are wrong: {error}. Give {{\"instructions\": \"…\", \"child_of\": [your own path from the root; [] if you are no child]}}."
        )),
        Ok(Arguments { instructions, .. }) if instructions.trim().is_empty() => {
            Plan::Refuse("The instructions are empty: say what the child is to do.".to_owned())
        }
        Ok(Arguments { child_of, fresh_context: fresh, model, tools, budget_tokens, .. }) => {
            let terms = Terms { model, tools, budget_tokens: budget_tokens.map(NonZeroU64::get) };
            Plan::Spawn { child_of, fresh, terms }
        }
    }
}

/// What a call with these arguments has a child do. Only arguments that were planned get here; others say nothing.
pub fn instructions(arguments: &str) -> String {
    serde_json::from_str(arguments).map(|Arguments { instructions, .. }| instructions).unwrap_or_default()
}

/// The arguments of a call that the runtime makes on nobody's behalf.
pub fn arguments(instructions: &str) -> String {
    serde_json::json!({ "instructions": instructions, "child_of": [] }).to_string()
}
