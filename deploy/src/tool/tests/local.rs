//! Local functions that behave, and those that do not.

use super::*;
use crate::tool::{CallContext, Error};
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    /// The first number.
    a: i32,
    b: i32,
}

fn add() -> LocalTool {
    LocalTool::new("add", "Add two numbers.", |add: Add, context: CallContext| async move {
        add.a.checked_add(add.b).map(|sum| format!("{} {sum}", context.id())).ok_or("too large")
    })
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test]
async fn a_function_answers_and_its_type_is_its_schema() {
    let mut running = run(config(&[]), vec![add().annotated(json!({"readOnly": true}))]);
    let tools = running.catalog.tools();
    assert_eq!(tools[0].schema["properties"]["a"]["description"], "The first number.");
    assert_eq!(tools[0].schema["required"], json!(["a", "b"]));
    assert_eq!(tools[0].annotations, Some(json!({"readOnly": true})));
    running.call(1, "add", r#"{"a": 1, "b": 2}"#);
    let result = running.result().await;
    assert_eq!(text(&result), format!("{} 3", id(1).effect_id(thread())));
    assert!(!result.is_error);
}

#[tokio::test]
async fn what_fails_is_an_error_result_and_the_runtime_goes_on() {
    let broken = LocalTool::new("broken", "", |_: Nothing, context: CallContext| async move {
        assert_eq!(context.call.number, 0, "the tool is broken");
        Ok::<_, String>("")
    });
    let mut running = run(config(&[]), vec![add(), broken]);
    for (name, arguments, said) in [
        ("add", r#"{"a": 1}"#, "missing field `b`"),
        ("add", r#"{"a": 1, "b": "x"}"#, "invalid type: string \"x\""),
        ("add", "{", "EOF"),
        ("add", "", "missing field `a`"),
        ("add", r#"{"a": 2147483647, "b": 1}"#, "too large"),
        ("broken", "", "the tool is broken"),
        ("subtract", "{}", "The tools there are: add, broken."),
    ] {
        running.call(1, name, arguments);
        let error = running.error(1).await;
        assert!(error.contains(said), "{name} {arguments}: {error}");
    }
    running.call(2, "add", r#"{"a": 1, "b": 2}"#);
    assert!(!running.result().await.is_error);
}

#[tokio::test]
async fn the_same_call_under_way_is_done_once_and_a_cancelled_one_is_dropped() {
    let (started, dropped, told) =
        (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
    struct Count(Arc<AtomicUsize>);
    impl Drop for Count {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (counter, drops, tell) = (started.clone(), dropped.clone(), told.clone());
    let slow = LocalTool::new("slow", "", move |_: Nothing, context: CallContext| {
        counter.fetch_add(1, Ordering::SeqCst);
        let (count, tell, cancelled) = (Count(drops.clone()), tell.clone(), context.cancelled());
        tokio::spawn(async move {
            cancelled.await;
            tell.notify_one();
        });
        async move {
            let _count = count;
            std::future::pending::<Result<String, String>>().await
        }
    });
    let mut running = run(Config { local_calls_max: 1, ..config(&[]) }, vec![slow, add()]);
    running.call(1, "slow", "{}");
    running.call(1, "slow", "{}");
    until(|| started.load(Ordering::SeqCst) == 1).await;
    running.cancel(1, "slow");
    tokio::time::timeout(PATIENCE, told.notified()).await.unwrap();
    running.call(2, "add", r#"{"a": 1, "b": 2}"#);
    // The first record is the second call's: the first was started once, and has no answer.
    assert_eq!(running.result().await.call, id(2));
    assert_eq!((started.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst)), (1, 1));
}

#[tokio::test]
async fn functions_that_no_model_can_call_are_refused_at_the_start() {
    let unit = LocalTool::new("no object", "", |_: (), _| async move { Ok::<_, String>("") });
    let sleep = LocalTool::new("sleep", "", |_: Nothing, _| async move { Ok::<_, String>("") });
    let key = CapabilityKey::random().unwrap();
    let error =
        start(config(&[]), vec![unit, sleep, add(), add()], Catalog::default(), key, String::new()).unwrap_err();
    assert!(matches!(&error, Error::Local(faults) if faults.len() == 4), "{error}");
}

#[tokio::test]
async fn tools_stop_when_nobody_can_ask_any_more() {
    let Running { mut from, to, tools, .. } = run(config(&[]), vec![add()]);
    drop(to);
    assert!(tokio::time::timeout(PATIENCE, from.next()).await.unwrap().is_none());
    tools.stop().await;
}
