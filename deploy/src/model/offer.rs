//! The offer: the tools as a provider's JSON.
//!
//! In: a snapshot of the tools. Out: the JSON that stands in a request. Always: made once for each snapshot, not once for
//! each prompt.

use crate::catalog::ToolSpec;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};

/// The JSON of the tools that were offered last.
#[derive(Default)]
pub(super) struct Offer(Mutex<Option<Made>>);

struct Made {
    of: Arc<[ToolSpec]>,
    json: Arc<RawValue>,
}

impl Offer {
    /// The JSON of these tools: what was made of the same snapshot before, or what `form` makes of each.
    pub(super) fn json(&self, tools: &Arc<[ToolSpec]>, form: fn(&ToolSpec, Value) -> Value) -> Arc<RawValue> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Made { of, json }) = &*kept
            && Arc::ptr_eq(of, tools)
        {
            return json.clone();
        }
        let all: Vec<Value> = tools.iter().map(|tool| form(tool, schema(tool))).collect();
        let json: Arc<RawValue> = to_raw_value(&all).expect("invariant: a JSON value can be written").into();
        *kept = Some(Made { of: tools.clone(), json: json.clone() });
        json
    }
}

/// The tool's schema as providers take it: an object's.
fn schema(tool: &ToolSpec) -> Value {
    let mut schema = match &tool.schema {
        Value::Object(fields) => fields.clone(),
        _ => serde_json::Map::new(),
    };
    schema.entry("type").or_insert_with(|| json!("object"));
    schema.entry("properties").or_insert_with(|| json!({}));
    Value::Object(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_written_once_for_each_snapshot() {
        let tool = |schema| ToolSpec { name: "look".into(), description: "Looks.".into(), schema, annotations: None };
        let offer = Offer::default();
        let form = |tool: &ToolSpec, schema: Value| json!([tool.name, schema]);
        let tools: Arc<[ToolSpec]> = vec![tool(json!({"additionalProperties": false})), tool(json!(true))].into();
        let json = offer.json(&tools, form);
        assert_eq!(
            json.get(),
            r#"[["look",{"additionalProperties":false,"properties":{},"type":"object"}],["look",{"properties":{},"type":"object"}]]"#
        );
        assert!(Arc::ptr_eq(&json, &offer.json(&tools.clone(), form)));
        let others: Arc<[ToolSpec]> = vec![tool(json!({}))].into();
        assert!(!Arc::ptr_eq(&json, &offer.json(&others, form)));
    }
}
