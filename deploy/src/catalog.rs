//! The catalog: which tools the model may call.
//!
//! In: tools, as adapters find them. Out: a snapshot for each prompt, and word of each new one. Always: sorted by name; a name
//! that two sources share is usable in neither.

use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::watch;

/// What the model is told about a tool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolSpec {
    /// The name that the model calls.
    pub name: String,
    /// What it does.
    pub description: String,
    /// Its arguments' JSON Schema.
    pub schema: serde_json::Value,
    /// What its author says of it (`destructive` and the like), as the source gave it.
    pub annotations: Option<serde_json::Value>,
}

/// The tools of a process, by the source that brought them. A clone is the same catalog.
#[derive(Clone, Debug, Default)]
pub struct Catalog(Arc<Sources>);

#[derive(Debug, Default)]
struct Sources {
    by_source: Mutex<BTreeMap<String, Vec<ToolSpec>>>,
    snapshot: watch::Sender<Arc<[ToolSpec]>>,
}

impl Catalog {
    /// Sets what a source offers, in place of what it offered before. Returns the names that it shares with another source;
    /// none of them is usable.
    pub fn offer(&self, source: &str, tools: Vec<ToolSpec>) -> Vec<String> {
        let mut by_source = self.0.by_source.lock().unwrap_or_else(PoisonError::into_inner);
        by_source.insert(source.to_owned(), tools);
        let mut count: BTreeMap<&str, usize> = BTreeMap::new();
        for tool in by_source.values().flatten() {
            *count.entry(&tool.name).or_default() += 1;
        }
        let shared: BTreeSet<String> =
            count.iter().filter(|(_, n)| **n > 1).map(|(name, _)| (*name).to_owned()).collect();
        let mut usable: Vec<ToolSpec> =
            by_source.values().flatten().filter(|tool| !shared.contains(&tool.name)).cloned().collect();
        usable.sort_by(|a, b| a.name.cmp(&b.name));
        let clashes = by_source[source].iter().map(|t| t.name.clone()).filter(|name| shared.contains(name)).collect();
        self.0.snapshot.send_replace(usable.into());
        clashes
    }

    /// The usable tools, sorted by name.
    pub fn tools(&self) -> Arc<[ToolSpec]> {
        self.0.snapshot.borrow().clone()
    }

    /// The same, and each that comes after it.
    pub fn watch(&self) -> watch::Receiver<Arc<[ToolSpec]>> {
        self.0.snapshot.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolSpec {
        ToolSpec { name: name.into(), description: String::new(), schema: serde_json::json!({}), annotations: None }
    }

    #[test]
    fn a_name_that_two_sources_share_is_usable_in_neither() {
        let catalog = Catalog::default();
        assert_eq!(catalog.offer("a", vec![tool("x"), tool("b")]), Vec::<String>::new());
        assert_eq!(catalog.offer("b", vec![tool("x"), tool("a")]), ["x"]);
        assert_eq!(catalog.tools().iter().map(|t| t.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(catalog.offer("b", vec![tool("a")]), Vec::<String>::new());
        assert_eq!(catalog.tools().len(), 3);
    }
}
