//! A model that sends wrong arguments: it is told so, can mend them, and is stopped when it does not.

use crate::kills::rap_server::RapServer;
use crate::kills::records;
use serde_json::{Value, json};
use slackwater::model::{Reply, Request, Scripted};
use slackwater::tool::{Config, ServerConfig};
use slackwater::{LocalTool, Slackwater};
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::record::{Bounds, Origin, Record};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const REFUSED_TURNS_MAX: u32 = Bounds::DEFAULT.refused_turns_max.get();

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Count {
    /// How many.
    n: u32,
}

/// A runtime with the local tool `count`, which fails for 0, and the server's tool `look`.
async fn runtime(
    directory: &Path,
    server: &RapServer,
    model: impl Fn(&Request) -> Reply + Send + Sync + 'static,
) -> slackwater::Runtime {
    let count = LocalTool::new("count", "Counts.", |count: Count, _| async move {
        if count.n == 0 { Err("there is nothing to count") } else { Ok(count.n.to_string()) }
    });
    let server = ServerConfig { url: Some(server.url().to_owned()), ..ServerConfig::default() };
    let tools = Config { server: vec![server], ..Config::default() };
    Slackwater::builder()
        .directory(directory)
        .model(Scripted::from_fn(model))
        .tool(count)
        .tool_config(tools)
        .start()
        .await
        .unwrap()
}

/// How the last call was answered, since the last message.
fn answered(request: &Request) -> Option<(AnsweredBy, String)> {
    match &***request.prompt.history.to_vec().last()? {
        Item::Result(answer) => Some((answer.by, format!("{:?}", answer.content))),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_always_sends_wrong_arguments_is_stopped_with_a_visible_failure() {
    for (tool, wrong) in [("count", json!({"n": "three"})), ("look", json!({"about": 5}))] {
        let place = tempfile::tempdir().unwrap();
        let server = RapServer::start(Some(0)).await;
        let prompts = Arc::new(AtomicU32::new(0));
        let counter = prompts.clone();
        let model = move |_: &Request| {
            counter.fetch_add(1, Ordering::SeqCst);
            Reply::silence().call(tool, &wrong)
        };
        let runtime = runtime(place.path(), &server, model).await;
        let mut thread = runtime.conversation("wrong").unwrap();
        // Each message gives it as many turns again, and no more.
        for messages in 1..=2 {
            thread.send("Go on.").await.unwrap();
            let failure = thread.receive().await.unwrap_err().to_string();
            assert!(failure.contains("turns in a row whose calls were all refused"), "{failure}");
            assert_eq!(prompts.load(Ordering::SeqCst), messages * REFUSED_TURNS_MAX);
        }
        let id = thread.thread();
        runtime.stop().await.unwrap();
        assert_eq!(prompts.load(Ordering::SeqCst), 2 * REFUSED_TURNS_MAX);
        assert!(server.work().is_empty(), "no tool was asked");
        let folded = records::read(place.path()).await.remove(&id).unwrap();
        let answers = folded.answers();
        assert_eq!(answers.len() as u32, 2 * REFUSED_TURNS_MAX);
        assert!(answers.values().all(|answers| answers[..] == [AnsweredBy::Refusal]), "{answers:?}");
        for record in &folded.records {
            if let Record::Result(result) = &record.arrival.record {
                assert_eq!(result.origin, Origin::runtime());
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_that_mends_its_arguments_or_whose_tool_fails_goes_on() {
    let place = tempfile::tempdir().unwrap();
    let server = RapServer::start(Some(0)).await;
    let failures = AtomicU32::new(0);
    let model = move |request: &Request| {
        let look = |about: Value| Reply::silence().call("look", &json!({"about": about}));
        match answered(request) {
            None => look(json!(5)),
            Some((AnsweredBy::Refusal, why)) if why.contains("at /about: 5 is not of type") => look(json!("the build")),
            // A failure of the tool is no refusal, however often it comes.
            Some((AnsweredBy::Tool | AnsweredBy::ToolFailure, why))
                if failures.fetch_add(1, Ordering::SeqCst) <= REFUSED_TURNS_MAX =>
            {
                assert!(why.contains("seen: the build") || why.contains("there is nothing to count"), "{why}");
                Reply::silence().call("count", &json!({"n": 0}))
            }
            Some((by, why)) => Reply::text(format!("{by:?}: {why}")),
        }
    };
    let runtime = runtime(place.path(), &server, model).await;
    let mut thread = runtime.conversation("mends").unwrap();
    thread.send("Go on.").await.unwrap();
    let said = thread.receive().await.unwrap();
    assert!(said.starts_with("ToolFailure: ") && said.contains("there is nothing to count"), "{said}");
    runtime.stop().await.unwrap();
    let work = server.work();
    assert_eq!(work.values().map(|work| work.arguments.clone()).collect::<Vec<_>>(), [json!({"about": "the build"})]);
}
