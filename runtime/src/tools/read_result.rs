//! `read_result(handle, offset?, length?)`: read what was too long to be shown.
//!
//! In: the handle that stands in the place of what was left out, and which part. Out: that part. Always: offsets and lengths
//! are in bytes; how much one call reads at most, the thread says.

use super::{BuiltIn, Plan};
use serde::Deserialize;

/// The tool.
pub const TOOL: BuiltIn = BuiltIn {
    name: "read_result",
    description: "Read a part of a result or event that was too long to be shown in full. It was shown by its beginning and end, with a handle between.",
    schema: r#"{"type":"object","properties":{"handle":{"type":"string","description":"The handle, such as result_4_0"},"offset":{"type":"integer","minimum":0,"description":"Where to begin, in bytes; 0 without it"},"length":{"type":"integer","minimum":1,"description":"How much to read, in bytes"}},"required":["handle"]}"#,
    plan,
};

#[derive(Deserialize)]
struct Arguments {
    handle: String,
    #[serde(default)]
    offset: u64,
    length: Option<u64>,
}

fn plan(arguments: &str, _at_ms: u64) -> Plan {
    match serde_json::from_str(arguments) {
        Err(error) => Plan::Refuse(format!(
            "The arguments of read_result are wrong: {error}. Give {{\"handle\": \"…\", \"offset\": bytes, \"length\": bytes}}."
        )),
        Ok(Arguments { length: Some(0), .. }) => {
            Plan::Refuse("A length of 0 reads nothing: give 1 or more.".to_owned())
        }
        Ok(Arguments { handle, offset, length }) => Plan::Read { handle, offset, length },
    }
}
