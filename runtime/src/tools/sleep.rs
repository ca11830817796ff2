//! `sleep(seconds, reason?)`: wait for a while.
//!
//! In: a number of seconds. Out: a moment. Always: counted from when the call was received; a negative or endless number is
//! refused; no time at all is over at once.

use super::{BuiltIn, Plan};
use crate::effect::Due;
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "sleep",
    description: "Sleep for a number of seconds. Costs nothing while you sleep. Any new input wakes you earlier.",
    schema: r#"{"type":"object","properties":{"seconds":{"type":"number","minimum":0,"description":"How long to sleep"},"reason":{"type":"string","description":"Why, for people who look"}},"required":["seconds"]}"#,
    plan,
};

/// The longest sleep: 100 years of 365 days.
const SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

#[derive(Deserialize)]
struct Arguments {
    seconds: f64,
}

fn plan(arguments: &str, at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of sleep are wrong: {error}. Give {{\"seconds\": a number of 0 or more}}."
        )),
        Ok(Arguments { seconds }) if !(0.0..=SECONDS_MAX).contains(&seconds) => {
            Plan::Refuse(format!("Cannot sleep for {seconds} seconds: give a number from 0 to {SECONDS_MAX}."))
        }
        Ok(Arguments { seconds: 0.0 }) => Plan::Answer("No time to sleep; go on.".to_owned()),
        Ok(Arguments { seconds }) => Plan::Sleep(Due::At(at_ms.saturating_add((seconds * 1000.0).ceil() as u64))),
    }
}
