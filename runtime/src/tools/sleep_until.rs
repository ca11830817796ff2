//! `sleep_until(date, time, timezone)`: wait for a time on somebody's wall.
//!
//! In: a date, a time and a zone. Out: the same, for the timer to find the moment. Always: which moment it is, and whether
//! there is one, is the timer's to say, because it depends on the time-zone database.

use super::{BuiltIn, Plan};
use crate::effect::Due;
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "sleep_until",
    description: "Sleep until a date and time in a time zone. Costs nothing while you sleep. Any new input wakes you earlier. A time in the past returns at once.",
    schema: r#"{"type":"object","properties":{"date":{"type":"string","description":"YYYY-MM-DD"},"time":{"type":"string","description":"HH:MM or HH:MM:SS, 24 hours"},"timezone":{"type":"string","description":"An IANA time zone such as Europe/Berlin or UTC"}},"required":["date","time","timezone"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    date: String,
    time: String,
    timezone: String,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of sleep_until are wrong: {error}. Give {{\"date\": \"2031-05-04\", \"time\": \"09:00\", \"timezone\": \"Europe/Berlin\"}}."
        )),
        Ok(Arguments { date, time, timezone }) => Plan::Sleep(Due::Wall { date, time, timezone }),
    }
}
