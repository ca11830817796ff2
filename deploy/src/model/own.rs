//! What is a thread's own: its bounds, its model, its tools, as the adapter sees them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::tests::{answer, completion, nothing_more, prompt, quick, user};
use super::*;
use crate::catalog::Catalog;
use slackwater_core::port::ToModel;
use slackwater_core::record::{Bounds, Record, Terms};
use std::sync::Mutex;

/// A thread that knows other bounds than the runtime has learns them before its model's answer is applied.
#[tokio::test]
async fn other_bounds_become_a_record_before_the_answer() {
    let bounds = Bounds { depth_max: 2, ..Bounds::DEFAULT };
    let model = Scripted::from_fn(|_| Reply::text("fine"));
    let (mut from, to) = start(Arc::new(model), "".into(), Catalog::default(), quick(), bounds);
    to.put(ToModel::Prompt(prompt([user(1, "hello")])));
    assert_eq!(answer(&mut from).await.0, Record::Bounds(bounds));
    completion(answer(&mut from).await.0);
    to.put(ToModel::Prompt(Prompt { seen: 2, bounds, ..prompt([user(1, "hello")]) }));
    completion(answer(&mut from).await.0);
    nothing_more(&mut from, &to).await;
}

#[tokio::test]
async fn a_child_is_answered_by_its_own_model_with_its_own_tools() {
    let catalog = Catalog::default();
    let tool = |name: &str| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        schema: serde_json::json!({}),
        annotations: None,
    };
    catalog.offer("test", vec![tool("read"), tool("write")]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = seen.clone();
    let model = Scripted::from_fn(move |request| {
        keep.lock().unwrap().push((request.model("large").to_owned(), request.tools.clone()));
        Reply::text("fine")
    });
    let (mut from, to) = start(Arc::new(model), "".into(), catalog.clone(), quick(), Bounds::DEFAULT);
    let terms = Terms { model: Some("small".to_owned()), tools: Some(vec!["read".to_owned()]), budget_tokens: None };
    for (number, terms) in [(1, terms.clone()), (2, Terms::default()), (3, terms)] {
        to.put(ToModel::Prompt(Prompt { seen: number, terms, ..prompt([user(1, "hello")]) }));
        answer(&mut from).await;
    }
    let seen = seen.lock().unwrap();
    let named = |at: usize, name: &str| seen[at].1.iter().any(|tool| tool.name == name);
    assert_eq!((seen[0].0.as_str(), seen[1].0.as_str()), ("small", "large"));
    assert!(named(0, "read") && !named(0, "write") && named(0, "close_thread"));
    assert!(named(1, "read") && named(1, "write"));
    assert!(Arc::ptr_eq(&seen[0].1, &seen[2].1), "the same tools are the same allocation");
}
