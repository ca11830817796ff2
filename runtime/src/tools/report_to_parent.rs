//! `report_to_parent(report)`: say something to the parent.
//!
//! In: a text. Out: an event of the parent. Always: the parent gets it once, or the nearest ancestor that is not closed.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "report_to_parent",
    description: "Report to the thread that started you. It gets the text as an event. Only child threads have a parent.",
    schema: r#"{"type":"object","properties":{"report":{"type":"string","description":"What the parent is to know; it sees nothing else of what you do"}},"required":["report"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    report: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => {
            Plan::Refuse(format!("The arguments of report_to_parent are wrong: {error}. Give {{\"report\": \"…\"}}."))
        }
        Ok(Arguments { report }) if report.trim().is_empty() => {
            Plan::Refuse("The report is empty: say what the parent is to know.".to_owned())
        }
        Ok(Arguments { report }) => Plan::Report(report),
    }
}
