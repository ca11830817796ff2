//! Schemas: whether the arguments of a call are what its tool takes.
//!
//! In: a tool's JSON Schema and the arguments that a model wrote. Out: the arguments as they are passed on; or, for the model,
//! each fault with its place and what is wanted there. Always: a schema that many tools have is compiled once and kept for as
//! long as one of them is offered; nothing is fetched; what is said has a bounded length.

use jsonschema::{ValidationError, Validator};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::HashMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// How many faults the model is told of, and how much of each, in characters.
const FAULTS_MAX: usize = 8;
const FAULT_LENGTH_MAX: usize = 400;
/// The longest value that is repeated to the model, and the longest piece of a schema, in bytes and in characters.
const VALUE_LENGTH_MAX: usize = 60;
const WANTED_LENGTH_MAX: usize = 240;
/// Of arguments longer than this, in bytes, only the first fault is looked for: there may be millions.
const ALL_FAULTS_LENGTH_MAX: usize = 256 << 10;

/// The schemas in use, by their text.
#[derive(Debug, Default)]
pub(super) struct Schemas(Mutex<HashMap<String, Weak<Schema>>>);

/// A schema that arguments can be checked against.
#[derive(Debug)]
pub(super) struct Schema {
    text: Value,
    validator: Validator,
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Schemas {
    /// The compiled schema; or why it cannot be one.
    pub(super) fn compile(&self, schema: &Value) -> Result<Arc<Schema>, String> {
        let key = schema.to_string();
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(schema) = known.get(&key).and_then(Weak::upgrade) {
            return Ok(schema);
        }
        known.retain(|_, schema| schema.strong_count() > 0);
        let compiled = jsonschema::options().offline().build(schema);
        let validator = compiled.map_err(|error| head(&error.to_string(), FAULT_LENGTH_MAX))?;
        let compiled = Arc::new(Schema { text: schema.clone(), validator });
        known.insert(key, Arc::downgrade(&compiled));
        Ok(compiled)
    }
}

impl Schema {
    /// The arguments of a call of this tool, exactly as the model wrote them; or what the model is told about them.
    pub(super) fn check(&self, tool: &str, arguments: &str) -> Result<Box<RawValue>, String> {
        let arguments = if arguments.trim().is_empty() { "{}" } else { arguments };
        let not_json = |error| unfit(tool, format_args!("are not valid JSON: {error}"));
        let value: Value = serde_json::from_str(arguments).map_err(not_json)?;
        if !value.is_object() {
            return Err(unfit(tool, "are valid JSON, but not an object"));
        }
        if self.validator.is_valid(&value) {
            return serde_json::from_str(arguments).map_err(not_json);
        }
        let mut faults: Vec<ValidationError<'_>> = match arguments.len() > ALL_FAULTS_LENGTH_MAX {
            true => self.validator.validate(&value).err().into_iter().collect(),
            false => self.validator.iter_errors(&value).collect(),
        };
        let more = faults.len().saturating_sub(FAULTS_MAX);
        faults.truncate(FAULTS_MAX);
        let mut told: Vec<String> = faults.iter().map(|fault| self.tell(fault)).collect();
        if more > 0 {
            told.push(format!("and {more} more"));
        }
        Err(unfit(tool, format_args!("do not fit its schema: {}", told.join("; "))))
    }

    /// A fault in words: where, what is there, what is wanted.
    fn tell(&self, fault: &ValidationError<'_>) -> String {
        let place = match fault.instance_path().as_str() {
            "" => "the root",
            pointer => pointer,
        };
        let mut told = head(&format!("at {place}: {}", fault.masked_with(shown(fault.instance()))), FAULT_LENGTH_MAX);
        // What these keywords want is not in the message.
        let keyword = fault.kind().keyword();
        if matches!(keyword, "anyOf" | "oneOf" | "contains")
            && let Some(wanted) = self.text.pointer(fault.schema_path().as_str())
        {
            told.push_str(&format!(" ({keyword} is {})", head(&wanted.to_string(), WANTED_LENGTH_MAX)));
        }
        told
    }
}

/// What the model is told of arguments that cannot be used. `why` goes on from "the arguments".
pub(super) fn unfit(tool: &str, why: impl Display) -> String {
    format!("The arguments of {tool} {why}. Call {tool} again with one JSON object that fits its schema.")
}

/// A text, or as much of its beginning as is shown.
pub(super) fn head(text: &str, characters_max: usize) -> String {
    match text.char_indices().nth(characters_max) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A value in few words.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) if text.len() > VALUE_LENGTH_MAX => format!("a text of {} bytes", text.len()),
        Value::Array(items) => format!("an array of {} items", items.len()),
        Value::Object(_) => "the object".to_owned(),
        short => short.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use serde_json::json;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "line": {"type": "integer", "minimum": 1},
                "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}},
                "mode": {"enum": ["now", "later"]},
                "target": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            },
            "required": ["path"],
            "additionalProperties": false,
            "$defs": {"edit": {
                "type": "object",
                "properties": {"a/b": {"type": "string"}, "edits": {"type": "array", "items": {"$ref": "#/$defs/edit"}}},
                "required": ["a/b"],
            }},
        })
    }

    fn checked(arguments: &str) -> Result<String, String> {
        let schema = Schemas::default().compile(&schema()).unwrap();
        schema.check("edit", arguments).map(|raw| raw.get().to_owned())
    }

    #[test]
    fn arguments_that_fit_are_passed_on_as_they_were_written() {
        for fits in [r#"{"path": "x",  "line": 1.0}"#, r#"{"path":"","edits":[{"a/b":"x","edits":[{"a/b":"y"}]}]}"#] {
            assert_eq!(checked(fits).unwrap(), fits);
        }
        let anything = Schemas::default().compile(&json!({"type": "object"})).unwrap();
        assert_eq!(anything.check("look", " \n").unwrap().get(), "{}");
    }

    #[test]
    fn each_fault_is_told_with_its_place_and_what_is_wanted() {
        for (arguments, told) in [
            (r#"{"path": 5}"#, "at /path: 5 is not of type \"string\""),
            (r#"{"path": null}"#, "at /path: null is not of type \"string\""),
            ("", "at the root: \"path\" is a required property"),
            (r#"{"path": "x", "lines": 1, "n": 2}"#, "('lines', 'n' were unexpected)"),
            (r#"{"path": "x", "line": 0}"#, "at /line: 0 is less than the minimum of 1"),
            (r#"{"path": "x", "edits": {}}"#, "at /edits: the object is not of type \"array\""),
            (r#"{"path": "x", "edits": [{"a/b": "y"}, {}]}"#, "at /edits/1: \"a/b\" is a required property"),
            (
                r#"{"path": "x", "edits": [{"a/b": "y", "edits": [{"a/b": [1]}]}]}"#,
                "at /edits/0/edits/0/a~1b: an array of 1 items is not of type \"string\"",
            ),
            (r#"{"path": "x", "mode": "soon"}"#, "at /mode: \"soon\" is not one of \"now\" or \"later\""),
            (r#"{"path": "x", "target": true}"#, "(anyOf is [{\"type\":\"string\"},{\"type\":\"integer\"}])"),
            (r#"{"path": 5, "line": "x"}"#, "at /line: \"x\" is not of type \"integer\"; at /path: 5 is not"),
            ("{\"path\": ", "not valid JSON: EOF"),
            ("[1]", "not an object"),
            ("nul", "not valid JSON"),
            ("{} {}", "not valid JSON: trailing characters"),
        ] {
            let said = checked(arguments).unwrap_err();
            assert!(said.contains(told), "{arguments}: {said}");
            assert!(said.starts_with("The arguments of edit ") && said.contains("Call edit again"), "{said}");
        }
    }

    #[test]
    fn what_is_said_is_bounded() {
        let long = "x".repeat(4 << 20);
        let many = vec!["5"; 1 << 20].join(",");
        for (arguments, told) in [
            (format!(r#"{{"path": ["{long}"]}}"#), "at /path"),
            (format!(r#"{{"path": "x", "line": "{long}"}}"#), "at /line: a text of 4194304 bytes"),
            (format!(r#"{{"path": "x", "{long}": 1}}"#), "Additional properties"),
            (format!(r#"{{"path": "x", "edits": [{many}]}}"#), "at /edits/0: 5 is not of type \"object\""),
            (format!(r#"{{"path": "x", "edits": [{}]}}"#, vec!["5"; 1_000].join(",")), "; and 992 more."),
            (format!(r#"{{"path": {}1{}}}"#, "[".repeat(1 << 20), "]".repeat(1 << 20)), "recursion limit"),
        ] {
            let said = checked(&arguments).unwrap_err();
            assert!(said.contains(told) && said.len() < 5_000, "{} bytes: {said:.500}", said.len());
        }
        // What is long and fits is nobody's fault.
        assert!(checked(&format!(r#"{{"path": "{long}"}}"#)).is_ok());
    }

    #[test]
    fn a_schema_is_compiled_once_and_kept_while_it_is_used() {
        let schemas = Schemas::default();
        let (one, two) = (schemas.compile(&schema()).unwrap(), schemas.compile(&schema()).unwrap());
        assert!(Arc::ptr_eq(&one, &two));
        let kept = Arc::downgrade(&one);
        drop(one);
        assert!(kept.upgrade().is_some());
        drop(two);
        assert!(kept.upgrade().is_none(), "nobody uses it");
        schemas.compile(&json!({"type": "object"})).unwrap();
        assert_eq!(schemas.0.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_schema_that_is_none_is_refused_with_the_reason() {
        for (schema, said) in [
            (json!({"type": "object", "properties": {"a": {"type": "text"}}}), "text"),
            (json!({"type": "object", "required": "a"}), "\"a\" is not of type \"array\""),
            (json!({"type": "object", "properties": {"a": {"pattern": "("}}}), "("),
            (json!({"type": "object", "properties": {"a": {"$ref": "#/$defs/none"}}}), "none"),
            (json!({"type": "object", "$ref": "https://127.0.0.1:9/schema.json"}), "https://127.0.0.1:9/schema.json"),
            (json!({"type": "object", "$ref": "file:///etc/hostname"}), "file:///etc/hostname"),
        ] {
            let why = Schemas::default().compile(&schema).unwrap_err();
            assert!(why.contains(said), "{schema}: {why}");
        }
    }

    #[test]
    fn a_schema_that_refers_to_itself_is_followed_once() {
        for refers in [
            json!({"$ref": "#"}),
            json!({"allOf": [{"$ref": "#"}]}),
            json!({"oneOf": [{"$ref": "#"}]}),
            json!({"if": {"$ref": "#"}, "then": {"$ref": "#"}, "else": {"$ref": "#"}}),
            json!({"$dynamicRef": "#"}),
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}),
        ] {
            let mut schema = json!({"type": "object", "required": ["x"]});
            schema.as_object_mut().unwrap().extend(refers.as_object().unwrap().clone());
            let schema = Schemas::default().compile(&schema).unwrap();
            assert!(schema.check("look", r#"{"x": 1}"#).is_ok(), "{refers}");
            assert!(schema.check("look", "{}").unwrap_err().contains("\"x\" is a required property"), "{refers}");
        }
    }

    #[test]
    fn a_long_chain_of_references_is_followed_to_its_end() {
        let next = |place: usize| json!({"$ref": format!("#/$defs/{}", place + 1)});
        let chain = (0..3_000).map(|place| (place.to_string(), next(place)));
        let last = ("3000".to_owned(), json!({"required": ["x"]}));
        let links: serde_json::Map<_, _> = chain.chain([last]).collect();
        let schema = json!({"type": "object", "$ref": "#/$defs/0", "$defs": links});
        let schema = Schemas::default().compile(&schema).unwrap();
        assert!(schema.check("look", "{}").unwrap_err().contains("\"x\" is a required property"));
    }
}
