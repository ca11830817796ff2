//! The terms of a tool: which arguments it takes, how long a call of it may take, and whether a person is asked first.
//!
//! In: what a tool's author and the configuration say of it, and a call. Out: the arguments as the tool gets them, and how
//! long it has; or the record that takes the place of the call. Always: nobody is asked about a call that does not fit; a
//! call that is approved is not asked about again.

use super::outbox::refused;
use super::schema::{Schema, unfit};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use slackwater_core::effect::Dispatch;
use slackwater_core::record::{Asks, Origin, Proof, Question, Record};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The argument by which a model says how long a call may take. The tool does not see it.
const OVERRIDE: &str = "call_timeout_seconds";
/// The longest time that can be said: 100 years of 365 days.
const OVERRIDE_SECONDS_MAX: f64 = 100.0 * 365.0 * 86_400.0;

/// Which calls wait for a person's approval.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Approvals {
    /// Calls of tools whose annotations say that they are destructive (`destructive`, or MCP's `destructiveHint`).
    pub destructive: bool,
    /// Calls of the tools of these names, whatever is said of them.
    pub tools: Vec<String>,
    /// Tools whose calls never wait, unless they are named in `tools`.
    pub never: Vec<String>,
}

impl Default for Approvals {
    fn default() -> Self {
        Self { destructive: true, tools: Vec::new(), never: Vec::new() }
    }
}

impl Approvals {
    /// Why somebody has to be asked before a call of this tool, if so.
    fn reason(&self, tool: &str, annotations: Option<&Value>) -> Option<String> {
        if self.tools.iter().any(|name| name == tool) {
            return Some(format!("calls of {tool} wait for an approval, as it is configured"));
        }
        let says = |field| annotations.and_then(|annotations| annotations.get(field)) == Some(&Value::Bool(true));
        let is_destructive = self.destructive && (says("destructive") || says("destructiveHint"));
        (is_destructive && !self.never.iter().any(|name| name == tool)).then(|| format!("{tool} is destructive"))
    }
}

/// The terms of one tool.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Terms {
    schema: Arc<Schema>,
    annotations: Option<Value>,
    timeout_ms: Option<u64>,
    /// Whether the model may say how long a call takes.
    is_overridable: bool,
}

/// A call that may be done.
#[derive(Debug)]
pub(super) struct Admitted {
    /// The arguments, as the model wrote them.
    pub(super) arguments: Box<RawValue>,
    /// How long it may take, in milliseconds.
    pub(super) timeout_ms: Option<u64>,
}

impl Terms {
    /// The terms of a tool with this schema, compiled and as text, and these annotations; its calls may take so long if the
    /// annotations do not say (`timeoutMs`). Also returns the schema that the model is shown.
    pub(super) fn new(
        schema: Arc<Schema>,
        text: &Value,
        annotations: Option<Value>,
        timeout_ms: Option<u64>,
    ) -> (Self, Value) {
        let said = annotations.as_ref().and_then(|annotations| annotations.get("timeoutMs")?.as_u64());
        let timeout_ms = said.or(timeout_ms).filter(|timeout_ms| *timeout_ms > 0);
        let mut shown = text.clone();
        let properties = shown.as_object_mut().map(|schema| schema.entry("properties").or_insert_with(|| json!({})));
        let mut is_overridable = false;
        if let (Some(timeout_ms), Some(Value::Object(properties))) = (timeout_ms, properties)
            && !properties.contains_key(OVERRIDE)
        {
            is_overridable = true;
            let description = format!(
                "How many seconds this call may take before it is cancelled and you are told. Without it: {}.",
                timeout_ms as f64 / 1000.0
            );
            let property = json!({"type": "number", "exclusiveMinimum": 0, "description": description});
            properties.insert(OVERRIDE.to_owned(), property);
        }
        let shown = if is_overridable { shown } else { text.clone() };
        (Self { schema, annotations, timeout_ms, is_overridable }, shown)
    }

    /// Lets a call pass, or says what comes in its place: a refusal, or a question to a person.
    pub(super) fn admit(&self, dispatch: &Dispatch, approvals: &Approvals, who: &str) -> Result<Admitted, Box<Record>> {
        let Dispatch { call, name, arguments, .. } = dispatch;
        let refuse = |text| Box::new(refused(*call, text));
        let (arguments, said_ms) = self.without_override(name, arguments).map_err(refuse)?;
        let arguments = self.schema.check(name, &arguments).map_err(refuse)?;
        if !dispatch.approved
            && let Some(reason) = approvals.reason(name, self.annotations.as_ref())
        {
            let origin = Origin { who: who.to_owned(), proof: Proof::Process };
            let asks = Asks::Approval { reason };
            return Err(Box::new(Record::Asked(Question { call: *call, origin, asks })));
        }
        Ok(Admitted { arguments, timeout_ms: said_ms.or(self.timeout_ms) })
    }

    /// The arguments that are the tool's, and how long the model says that the call may take, in milliseconds.
    fn without_override(&self, tool: &str, arguments: &str) -> Result<(String, Option<u64>), String> {
        let untouched = || (arguments.to_owned(), None);
        if !self.is_overridable || !arguments.contains(OVERRIDE) {
            return Ok(untouched());
        }
        // What is no object is told when it is checked.
        let Ok(mut fields) = serde_json::from_str::<BTreeMap<String, Box<RawValue>>>(arguments) else {
            return Ok(untouched());
        };
        let Some(said) = fields.remove(OVERRIDE) else { return Ok(untouched()) };
        let seconds = serde_json::from_str::<f64>(said.get()).ok();
        let Some(seconds) = seconds.filter(|seconds| *seconds > 0.0 && *seconds <= OVERRIDE_SECONDS_MAX) else {
            let why =
                format!("do not fit: at /{OVERRIDE}: it has to be a number above 0 and at most {OVERRIDE_SECONDS_MAX}");
            return Err(unfit(tool, why));
        };
        let rest = serde_json::to_string(&fields).expect("invariant: JSON that was read can be written");
        Ok((rest, Some((seconds * 1000.0).ceil() as u64)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::super::schema::Schemas;
    use super::*;
    use slackwater_core::id::{CallId, ThreadId};

    fn terms(annotations: Value, timeout_ms: Option<u64>) -> (Terms, Value) {
        let schema = json!({
            "type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"], "additionalProperties": false,
        });
        Terms::new(Schemas::default().compile(&schema).unwrap(), &schema, Some(annotations), timeout_ms)
    }

    fn dispatch(arguments: &str, approved: bool) -> Dispatch {
        let (thread, call) = (ThreadId::from_bytes([1; 16]), CallId { number: 2, index: 0 });
        Dispatch { thread, call, name: "work".into(), arguments: arguments.into(), approved, ancestors: vec![] }
    }

    fn text(record: &Record) -> String {
        let Record::Result(result) = record else { panic!("{record:?}") };
        let slackwater_core::record::Content::Text(text) = &result.content[0] else { panic!("{result:?}") };
        text.clone()
    }

    #[test]
    fn a_tool_with_a_time_limit_offers_another_and_does_not_see_it() {
        let (terms, shown) = terms(json!({"timeoutMs": 1500}), Some(9));
        assert!(shown["properties"][OVERRIDE]["description"].as_str().unwrap().ends_with("Without it: 1.5."));
        let admit = |arguments: &str| terms.admit(&dispatch(arguments, false), &Approvals::default(), "t");
        let plain = admit(r#"{ "n": 1.0 }"#).unwrap();
        assert_eq!((plain.arguments.get(), plain.timeout_ms), (r#"{ "n": 1.0 }"#, Some(1_500)));
        let other = admit(r#"{"n": 12345678901234567890.10, "call_timeout_seconds": 0.25}"#).unwrap();
        assert_eq!((other.arguments.get(), other.timeout_ms), (r#"{"n":12345678901234567890.10}"#, Some(250)));
        for wrong in ["0", "-1", "\"5\"", "1e99", "null"] {
            let arguments = format!(r#"{{"n": 1, "call_timeout_seconds": {wrong}}}"#);
            assert!(text(&admit(&arguments).unwrap_err()).contains("at /call_timeout_seconds"), "{wrong}");
        }
        assert!(text(&admit(r#"{"call_timeout_seconds": 5}"#).unwrap_err()).contains("\"n\" is a required property"));
        assert!(text(&admit(r#"["call_timeout_seconds"]"#).unwrap_err()).contains("not an object"));
    }

    #[test]
    fn a_tool_without_one_offers_none_and_one_of_its_own_is_its_own() {
        let (terms, shown) = terms(json!({"timeoutMs": 0}), None);
        assert!(shown["properties"].get(OVERRIDE).is_none());
        let said = terms.admit(&dispatch(r#"{"n": 1, "call_timeout_seconds": 5}"#, false), &Approvals::default(), "t");
        assert!(text(&said.unwrap_err()).contains("'call_timeout_seconds' was unexpected"));
        let schema = json!({"type": "object", "properties": {"call_timeout_seconds": {"type": "string"}}});
        let (own, shown) = Terms::new(Schemas::default().compile(&schema).unwrap(), &schema, None, Some(7));
        assert_eq!(shown, schema);
        let admitted =
            own.admit(&dispatch(r#"{"call_timeout_seconds": "x"}"#, false), &Approvals::default(), "t").unwrap();
        assert_eq!((admitted.arguments.get(), admitted.timeout_ms), (r#"{"call_timeout_seconds": "x"}"#, Some(7)));
    }

    #[test]
    fn who_is_asked_about_what() {
        let rules = |destructive, tools: &[&str], never: &[&str]| {
            let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            Approvals { destructive, tools: names(tools), never: names(never) }
        };
        let rap = json!({"destructive": true});
        let mcp = json!({"destructiveHint": true});
        let mild = json!({"destructive": false, "readOnly": true});
        for (annotations, approvals, asks) in [
            (&rap, Approvals::default(), true),
            (&mcp, Approvals::default(), true),
            (&mild, Approvals::default(), false),
            (&json!({"destructive": "yes"}), Approvals::default(), false),
            (&rap, rules(false, &[], &[]), false),
            (&rap, rules(true, &[], &["work"]), false),
            (&rap, rules(true, &[], &["other"]), true),
            (&mild, rules(false, &["work"], &["work"]), true),
        ] {
            let (terms, _) = terms(annotations.clone(), None);
            let asked = terms
                .admit(&dispatch(r#"{"n": 1}"#, false), &approvals, "t")
                .is_err_and(|record| matches!(*record, Record::Asked(Question { asks: Asks::Approval { .. }, .. })));
            assert_eq!(asked, asks, "{annotations} {approvals:?}");
            assert!(terms.admit(&dispatch(r#"{"n": 1}"#, true), &approvals, "t").is_ok(), "it is approved");
            // Nobody is asked about a call that cannot be done.
            let unfit = terms.admit(&dispatch(r#"{"n": "1"}"#, false), &approvals, "t").unwrap_err();
            assert!(text(&unfit).contains("at /n"));
        }
    }
}
