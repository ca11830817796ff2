//! Local functions that behave, and those that do not.

use super::*;
use crate::tool::{CallContext, Error};
use slackwater_core::record::{Origin, Proof};
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
async fn what_an_operator_refuses_is_answered_and_not_done() {
    let mut running = run(config(&[]), vec![add()]);
    running.to.put(ToTool::Refuse(dispatch(1, "add", r#"{"a": 1, "b": 2}"#), "not here".to_owned()));
    let result = running.result().await;
    assert_eq!((text(&result), result.call, result.is_error), ("not here", id(1), true));
    assert!(result.origin.is_runtime(), "{result:?}");
}

#[tokio::test]
async fn what_fails_is_an_error_result_and_the_runtime_goes_on() {
    let broken = LocalTool::new("broken", "", |_: Nothing, context: CallContext| async move {
        assert_eq!(context.call.number, 0, "the tool is broken");
        Ok::<_, String>("")
    });
    let broken_at_once = LocalTool::new("broken_at_once", "", |_: Nothing, context: CallContext| {
        assert_eq!(context.call.number, 0, "the tool is broken at once");
        async { Ok::<_, String>("") }
    });
    let mut running = run(config(&[]), vec![add(), broken, broken_at_once]);
    for (name, arguments, said) in [
        ("add", r#"{"a": 2147483647, "b": 1}"#, "too large"),
        ("broken", "", "the tool is broken\n"),
        ("broken_at_once", "", "the tool is broken at once"),
    ] {
        running.call(1, name, arguments);
        let result = running.result().await;
        assert!(result.is_error && text(&result).contains(said), "{name} {arguments}: {result:?}");
        assert!(!result.origin.is_runtime() && result.origin.proof == Proof::Process, "{name}: {result:?}");
    }
    running.call(2, "add", r#"{"a": 1, "b": 2}"#);
    assert!(!running.result().await.is_error);
}

/// A type whose schema says less than it wants.
struct Even;

impl<'de> serde::Deserialize<'de> for Even {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        match value["n"].as_u64() {
            Some(n) if n % 2 == 0 => Ok(Self),
            _ => Err(serde::de::Error::custom(format!("n is not even: {value}"))),
        }
    }
}

impl schemars::JsonSchema for Even {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Even".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object"})
    }
}

#[tokio::test]
async fn arguments_that_do_not_fit_are_refused_by_the_runtime_and_the_function_is_not_called() {
    let called = Arc::new(AtomicUsize::new(0));
    let counter = called.clone();
    let even = LocalTool::new("even", "", move |_: Even, _| {
        counter.fetch_add(1, Ordering::SeqCst);
        async { Ok::<_, String>("") }
    });
    let mut running = run(config(&[]), vec![add(), even]);
    let long = format!(r#"{{"n": 1, "long": "{}"}}"#, "x".repeat(1 << 20));
    for (name, arguments, said) in [
        ("add", r#"{"a": 1}"#, "at the root: \"b\" is a required property"),
        ("add", r#"{"a": 1, "b": "x"}"#, "at /b: \"x\" is not of type \"integer\""),
        ("add", "{", "EOF"),
        ("add", "", "at the root: \"a\" is a required property; at the root: \"b\""),
        // The schema takes it for an integer; Rust does not.
        ("add", r#"{"a": 1.0, "b": 2}"#, "invalid type: floating point `1.0`, expected i32"),
        ("add", r#"{"a": 1, "b": 3000000000}"#, "expected i32"),
        ("even", r#"{"n": 1}"#, "n is not even"),
        ("even", &long, "n is not even"),
        ("subtract", "{}", "The tools there are: add, even."),
    ] {
        running.call(1, name, arguments);
        let result = running.result().await;
        assert!(result.is_error && result.origin == Origin::runtime(), "{name} {arguments:.100}: {result:?}");
        assert!(text(&result).contains(said) && text(&result).len() < 1_000, "{name} {arguments:.100}: {result:?}");
    }
    assert_eq!(called.load(Ordering::SeqCst), 0);
    running.call(2, "even", r#"{"n": 2}"#);
    assert!(!running.result().await.is_error);
    assert_eq!(called.load(Ordering::SeqCst), 1);
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

/// A type whose schema is none.
#[derive(serde::Deserialize)]
struct Away;

impl schemars::JsonSchema for Away {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Away".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({"type": "object", "$ref": "https://127.0.0.1:9/away.json"})
    }
}

#[tokio::test]
async fn functions_that_no_model_can_call_are_refused_at_the_start() {
    let unit = LocalTool::new("no object", "", |_: (), _| async move { Ok::<_, String>("") });
    let sleep = LocalTool::new("sleep", "", |_: Nothing, _| async move { Ok::<_, String>("") });
    let away = LocalTool::new("away", "", |_: Away, _| async move { Ok::<_, String>("") });
    let key = CapabilityKey::random().unwrap();
    let error =
        start(config(&[]), vec![unit, sleep, add(), add(), away], Catalog::default(), key, String::new()).unwrap_err();
    assert!(matches!(&error, Error::Local(faults) if faults.len() == 5), "{error}");
    assert!(error.to_string().contains("the schema of \"away\" cannot be used: "), "{error}");
}

#[tokio::test]
async fn tools_stop_when_nobody_can_ask_any_more() {
    let Running { mut from, to, tools, .. } = run(config(&[]), vec![add()]);
    drop(to);
    assert!(tokio::time::timeout(PATIENCE, from.next()).await.unwrap().is_none());
    tools.stop().await;
}
