//! `close_thread(thread_id, report_to_parent?)`: be done for good.
//!
//! In: the own id, and perhaps a last report. Out: a closed thread. Always: a thread closes itself and all below it, and nothing else.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "close_thread",
    description: "Close your own thread, with its children and subscriptions, when its task is done. Give your own id; optionally a last report to the thread that started you. The root thread cannot be closed.",
    schema: r#"{"type":"object","properties":{"thread_id":{"type":"string","description":"Your own thread id"},"report_to_parent":{"type":"string","description":"A last report"}},"required":["thread_id"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    thread_id: String,
    report_to_parent: Option<String>,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of close_thread are wrong: {error}. Give {{\"thread_id\": your own id, \"report_to_parent\": a last report, if there is one}}."
        )),
        Ok(Arguments { thread_id, report_to_parent }) => {
            Plan::Close { thread: thread_id, report: report_to_parent.filter(|report| !report.trim().is_empty()) }
        }
    }
}
