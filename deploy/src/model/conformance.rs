//! Conformance: what providers demand of a request, checked as they would.
//!
//! In: a request's body as JSON. Out: the first rule that it breaks. Always: knows nothing of how the body was made, so
//! that any test can hold any request against it.

use serde_json::Value;
use std::collections::BTreeSet;

/// Checks the body of a chat completions request.
pub(crate) fn openai(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("messages is no list")?;
    check(body["stream"] == true && body["stream_options"]["include_usage"] == true, "it does not ask for a stream")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        check(tool["type"] == "function", "a tool is no function")?;
        check_tool(&tool["function"]["name"], &tool["function"]["parameters"])?;
    }
    let mut ids = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut before = "";
    for (position, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().ok_or("a message without a role")?;
        let content = &message["content"];
        if role != "tool" {
            check(open.is_empty(), format!("calls {open:?} are not answered directly after they were made"))?;
        }
        match role {
            "system" => {
                check(position == 0, "a system message that is not the first")?;
                check_text(content)?;
            }
            "user" => check_openai_content(content)?,
            "assistant" => {
                check(matches!(before, "user" | "tool"), format!("an assistant's message after {before:?}"))?;
                let calls = message["tool_calls"].as_array();
                check(calls.is_none_or(|calls| !calls.is_empty()), "an empty list of calls")?;
                check(calls.is_some() || !content.is_null(), "an assistant's message that says nothing")?;
                if !content.is_null() {
                    check_text(content)?;
                }
                for call in calls.into_iter().flatten() {
                    check(call["type"] == "function", "a call is no function's")?;
                    let id = check_id(&call["id"])?;
                    check(ids.insert(id) && open.insert(id), format!("two calls have the id {id}"))?;
                    check_name(&call["function"]["name"])?;
                    check(call["function"]["arguments"].is_string(), "arguments that are no text")?;
                }
            }
            "tool" => {
                let id = message["tool_call_id"].as_str().ok_or("a result without a call")?;
                check(open.remove(id), format!("a result for {id}, which is not open"))?;
                check_text(content)?;
            }
            other => return Err(format!("a message of {other:?}")),
        }
        before = role;
    }
    check(open.is_empty(), format!("calls {open:?} have no result"))?;
    check(matches!(before, "user" | "tool"), format!("the last message is of {before:?}"))
}

/// Checks the body of a Messages request.
pub(crate) fn anthropic(body: &Value) -> Result<(), String> {
    let messages = body["messages"].as_array().ok_or("messages is no list")?;
    check(body["stream"] == true && body["max_tokens"].as_u64() > Some(0), "no stream or no max_tokens")?;
    for tool in body["tools"].as_array().into_iter().flatten() {
        check_tool(&tool["name"], &tool["input_schema"])?;
    }
    for block in body["system"].as_array().into_iter().flatten() {
        check_text(&block["text"])?;
    }
    check(body.to_string().matches("\"cache_control\"").count() <= 4, "more than four cache marks")?;
    let mut ids = BTreeSet::new();
    let mut open: BTreeSet<&str> = BTreeSet::new();
    let mut before = "assistant";
    for message in messages {
        let role = message["role"].as_str().ok_or("a message without a role")?;
        check(
            matches!((before, role), ("assistant", "user") | ("user", "assistant")),
            format!("{role} after {before}"),
        )?;
        let content = message["content"].as_array().ok_or("content is no list")?;
        check(!content.is_empty(), "a message without content")?;
        let mut results_are_over = false;
        for block in content {
            let kind = block["type"].as_str().ok_or("a block without a type")?;
            results_are_over |= kind != "tool_result";
            check(
                role == "assistant" || open.is_empty() || !results_are_over,
                format!("calls {open:?} are not answered first"),
            )?;
            match (role, kind) {
                (_, "text") => check_text(&block["text"])?,
                ("user", "image" | "document") => check_source(&block["source"])?,
                ("user", "tool_result") => {
                    check(!results_are_over, "a result after something else")?;
                    let id = block["tool_use_id"].as_str().ok_or("a result without a call")?;
                    check(open.remove(id), format!("a result for {id}, which is not open"))?;
                    for piece in block["content"].as_array().ok_or("a result's content is no list")? {
                        match piece["type"].as_str() {
                            Some("text") => check_text(&piece["text"])?,
                            Some("image" | "document") => check_source(&piece["source"])?,
                            other => return Err(format!("a result that holds {other:?}")),
                        }
                    }
                }
                ("assistant", "tool_use") => {
                    let id = check_id(&block["id"])?;
                    check(ids.insert(id) && open.insert(id), format!("two calls have the id {id}"))?;
                    check_name(&block["name"])?;
                    check(block["input"].is_object(), "an input that is no object")?;
                }
                ("assistant", "thinking") => {
                    check(block["signature"].as_str().is_some_and(|s| !s.is_empty()), "thinking that is not signed")?;
                }
                ("assistant", "redacted_thinking") => {
                    check(block["data"].is_string(), "redacted thinking without data")?
                }
                other => return Err(format!("a block {other:?}")),
            }
        }
        if role == "user" {
            check(open.is_empty(), format!("calls {open:?} have no result"))?;
        }
        before = role;
    }
    check(open.is_empty() && before == "user", "it does not end with the user")
}

fn check(holds: bool, problem: impl Into<String>) -> Result<(), String> {
    if holds { Ok(()) } else { Err(problem.into()) }
}

fn check_text(text: &Value) -> Result<(), String> {
    check(text.as_str().is_some_and(|text| !text.trim().is_empty()), format!("blank text: {text}"))
}

fn check_openai_content(content: &Value) -> Result<(), String> {
    let Some(pieces) = content.as_array() else { return check_text(content) };
    check(!pieces.is_empty(), "a message without content")?;
    pieces.iter().try_for_each(|piece| match piece["type"].as_str() {
        Some("text") => check_text(&piece["text"]),
        Some("image_url") => check_data_url(&piece["image_url"]["url"]),
        Some("file") => check_data_url(&piece["file"]["file_data"]),
        other => Err(format!("a piece {other:?}")),
    })
}

fn check_data_url(url: &Value) -> Result<(), String> {
    let holds = url.as_str().is_some_and(|url| url.starts_with("data:") && url.contains(";base64,"));
    check(holds, format!("not a data URL: {url}"))
}

fn check_source(source: &Value) -> Result<(), String> {
    let known = ["image/jpeg", "image/png", "image/gif", "image/webp", "application/pdf"];
    let holds = source["type"] == "base64"
        && source["data"].is_string()
        && source["media_type"].as_str().is_some_and(|kind| known.contains(&kind));
    check(holds, format!("not a source: {source}"))
}

fn check_tool(name: &Value, schema: &Value) -> Result<(), String> {
    check_name(name)?;
    check(schema["type"] == "object", format!("the schema of {name} is not an object's"))
}

fn check_name(name: &Value) -> Result<(), String> {
    let holds = name.as_str().is_some_and(|name| (1..=64).contains(&name.len()) && name.bytes().all(is_name_byte));
    check(holds, format!("a name that is none: {name}"))
}

fn check_id(id: &Value) -> Result<&str, String> {
    id.as_str()
        .filter(|id| (1..=64).contains(&id.len()) && id.bytes().all(is_name_byte))
        .ok_or_else(|| format!("an id that is none: {id}"))
}

fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}
