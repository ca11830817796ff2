//! Several threads in a whole runtime: the embedded flow with its loop of posts, and a journal on disk.
//!
//! In: messages. Out: what their users hear. Always: the same after a restart, and nobody waits for another.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

use futures::future::BoxFuture;
use serde_json::json;
use slackwater::gateway::Shards;
use slackwater::model::{Answer, Model, ModelError, Reply, Request, Scripted, Sink};
use slackwater::{LocalTool, Runtime, Slackwater};
use slackwater_core::effect::{Outcome, Refusal};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, ThreadId};
use slackwater_core::record::{Content, Message, Origin, Proof, Record};
use std::path::Path;
use std::time::Duration;

/// The root has two children look, and tells all that was reported.
fn model() -> Scripted {
    Scripted::from_fn(|request: &Request| {
        let thread = request.prompt.thread;
        let newest = request.prompt.history.newest_first().next().unwrap();
        let text = |content: &[Content]| match content {
            [Content::Text(text), ..] => text.clone(),
            other => format!("{other:?}"),
        };
        match &**newest {
            Item::User { content, .. } if text(content).starts_with("look") => Reply::text("")
                .call("spawn_thread", &json!({"instructions": "look at a", "child_of": []}))
                .call("spawn_thread", &json!({"instructions": "look at b", "child_of": []})),
            Item::Result(answer)
                if text(&answer.content).starts_with(&format!("You are the child thread {thread}")) =>
            {
                let task = text(&answer.content).rsplit_once("look at ").unwrap().1.to_owned();
                Reply::text("").call(
                    "close_thread",
                    &json!({"thread_id": thread.to_string(), "report_to_parent": format!("{task} is green")}),
                )
            }
            Item::Event(_) => {
                let events = request.prompt.history.newest_first().filter_map(|item| match &**item {
                    Item::Event(event) => Some(text(&event.content)),
                    _ => None,
                });
                Reply::text(events.collect::<Vec<_>>().join("; "))
            }
            _ => Reply::text("I wait."),
        }
    })
}

async fn start(directory: &Path) -> Runtime {
    Slackwater::builder().directory(directory).model(model()).start().await.unwrap()
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("within a minute")
}

#[tokio::test(flavor = "multi_thread")]
async fn children_report_to_their_parent_and_stay_closed_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = start(directory.path()).await;
    let mut conversation = runtime.conversation("demo").unwrap();
    let root = conversation.thread();
    conversation.send("look").await.unwrap();
    let mut heard = String::new();
    while !(heard.contains("a is green") && heard.contains("b is green")) {
        heard = within(conversation.receive()).await.unwrap();
    }
    assert_eq!(heard.matches("is green").count(), 2, "{heard}");
    within(runtime.stop()).await.unwrap();

    let runtime = start(directory.path()).await;
    for index in 0..2 {
        let child: ThreadId = root.child(CallId { number: 2, index });
        let content = vec![Content::Text("more?".into())];
        let origin = Origin { who: "test".into(), proof: Proof::Process };
        let id: InputId = Shards::fresh_id();
        let message = Message { id, origin, content, thread_name: None, metadata: None };
        let outcome = within(runtime.shards().submit(child, Record::Message(message))).await.unwrap();
        assert_eq!(outcome, Outcome::Refused(Refusal::Closed));
    }
    let mut conversation = runtime.conversation("demo").unwrap();
    conversation.send("and now?").await.unwrap();
    assert_eq!(within(conversation.receive()).await.unwrap(), "I wait.");
    within(runtime.stop()).await.unwrap();
}

/// What hangs for ever holds its own thread, until somebody writes to that; no other thread, no stop and no end.
#[tokio::test(flavor = "multi_thread")]
async fn a_slice_never_waits() {
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Nothing {}
    let hang = LocalTool::new("hang", "Never ends.", |_: Nothing, _| std::future::pending::<Result<String, String>>());
    let model = Hanging(Scripted::from_fn(|request: &Request| {
        let newest = request.prompt.history.newest_first().next().unwrap();
        match &**newest {
            Item::User { content, .. } if matches!(&content[..], [Content::Text(text)] if text == "call") => {
                Reply::text("").call("hang", &json!({}))
            }
            _ => Reply::text("Here I am."),
        }
    }));
    let runtime = Slackwater::builder().model(model).tool(hang).start().await.unwrap();
    let mut hanging = Vec::new();
    for name in ["model a", "model b", "tool a", "tool b"] {
        let mut conversation = runtime.conversation(&name.replace(' ', "-")).unwrap();
        conversation.send(if name.starts_with("model") { "hang" } else { "call" }).await.unwrap();
        hanging.push(conversation);
    }
    // Others go on.
    for round in 0..20 {
        let mut conversation = runtime.conversation(&format!("other-{round}")).unwrap();
        conversation.send("hello").await.unwrap();
        assert_eq!(within(conversation.receive()).await.unwrap(), "Here I am.");
    }
    // And so do they when somebody writes.
    for mut conversation in hanging {
        conversation.send("still there?").await.unwrap();
        while within(conversation.receive()).await.unwrap() != "Here I am." {}
    }
    within(runtime.stop()).await.unwrap();
}

/// A model that never answers a message "hang".
struct Hanging(Scripted);

impl Model for Hanging {
    fn name(&self) -> &str {
        "hanging"
    }

    fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
        let newest = request.prompt.history.newest_first().next().unwrap();
        match &**newest {
            Item::User { content, .. } if matches!(&content[..], [Content::Text(text)] if text == "hang") => {
                Box::pin(std::future::pending())
            }
            _ => self.0.complete(request, sink),
        }
    }
}
