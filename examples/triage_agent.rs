//! An agent that subscribes to pull requests and handles each in a child thread of its own; only what matters is reported.
//!
//! `cargo run -p slackwater --example triage_agent` needs no key and no network: the model is a function, and the source of
//! the webhooks is below. It takes only those that are signed as GitHub signs them (`X-Hub-Signature-256`), and one delivery
//! is one event. Look at the last line: five pull requests were read, and the parent's history has no more than two reports.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

#[path = "support/rap.rs"]
mod rap;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use slackwater::gateway::{Event, outputs};
use slackwater::model::{Reply, Scripted};
use slackwater::sim::Asked;
use slackwater::{Slackwater, tool};
use slackwater_core::id::OutputId;
use slackwater_core::port::{Query, Reply as Answer};
use std::sync::{Arc, OnceLock};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// What the sender and the receiver of the webhooks share.
const SECRET: &[u8] = b"a secret of the webhook";

fn agent(asked: &Asked<'_>) -> Reply {
    let Some(said) = asked.result_of("watch_pull_requests") else {
        return Reply::silence().call("watch_pull_requests", &json!({}));
    };
    match said.starts_with("Report") {
        true => {
            let news = asked.news();
            let reports: Vec<&str> = news.iter().filter_map(|line| Some(line.rsplit_once('\n')?.1)).collect();
            Reply::text(format!("For you: {}", reports.join("; ")))
        }
        false if said == "subscribed" => Reply::text("I watch them."),
        // This is the child that was made for the event. Closing without a report is silent.
        false => {
            let report = said.contains("security").then_some(&said);
            let close = json!({"thread_id": asked.thread().to_string(), "report_to_parent": report});
            Reply::text("I have read it. ").call("close_thread", &close)
        }
    }
}

/// A tool server whose one tool subscribes to the webhooks that it receives.
async fn webhook_source() -> std::io::Result<String> {
    let subscriber = Arc::new(OnceLock::<Value>::new());
    let known = subscriber.clone();
    let webhook = async move |headers: HeaderMap, body: Bytes| {
        let header = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let signature = header("x-hub-signature-256").strip_prefix("sha256=").and_then(unhex).unwrap_or_default();
        // Compared in constant time; what is not signed proves nothing.
        let (Ok(()), Some(call)) = (mac(&body).verify_slice(&signature), known.get()) else {
            return StatusCode::UNAUTHORIZED;
        };
        let pull: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = format!("pull request {}: {}", pull["number"], pull["title"]);
        let id = header("x-github-delivery");
        let event = json!({"type": "subscription_event", "tool_call_id": call["id"], "text": text, "event_id": id});
        rap::deliver(call, event).await;
        StatusCode::OK
    };
    let router = axum::Router::new().route("/webhook", axum::routing::post(webhook));
    rap::serve("watch_pull_requests", router, move |call| {
        let call = subscriber.get_or_init(|| call).clone();
        let result = json!({"type": "tool_result", "id": call["id"], "text": "subscribed", "subscription": true});
        tokio::spawn(async move { rap::deliver(&call, result).await });
    })
    .await
}

fn mac(body: &[u8]) -> Hmac<sha2::Sha256> {
    Hmac::new_from_slice(SECRET).expect("HMAC takes keys of any length").chain_update(body)
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
}

pub(crate) async fn story(say: impl Fn(String)) -> Outcome<()> {
    let source = webhook_source().await?;
    let server = tool::ServerConfig { url: Some(source.clone()), ..Default::default() };
    let tools = tool::Config { server: vec![server], ..Default::default() };
    let model = Scripted::from_fn(|request| agent(&Asked { request }));
    let runtime = Slackwater::builder().model(model).tool_config(tools).start().await?;
    let mut conversation = runtime.conversation("triage")?;
    let thread = conversation.thread();
    conversation.send("Watch the pull requests, and tell me what is about security.").await?;
    conversation.receive().await?;

    let titles = ["typo", "security: check the length", "new logo", "security: new key", "faster"];
    for (number, title) in (1..).zip(titles).chain([(5, "faster")]) {
        let body = json!({"number": number, "title": title}).to_string();
        let bytes = mac(body.as_bytes()).finalize().into_bytes();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let client = reqwest::Client::builder().no_proxy().build()?;
        let webhook = client.post(format!("{source}/webhook")).header("x-github-delivery", number).body(body);
        let unsigned = webhook.try_clone().ok_or("the body is in memory")?.send().await?.status();
        let signed = webhook.header("x-hub-signature-256", format!("sha256={hex}")).send().await?.status();
        say(format!("webhook {number}: without signature {unsigned}, with it {signed}"));
    }
    let mut events = runtime.shards().subscribe(thread, OutputId::default())?;
    let (mut children, mut told) = (0, 0);
    while let Some(event) = events.next().await {
        let Event::Output(output) = event else { continue };
        let line = outputs::line(&output);
        children += usize::from(line.starts_with("made the child"));
        told += usize::from(line.contains("Report of your child"));
        say(format!("  {line}"));
        if (children, told) == (titles.len(), 2) && line == "waits for any input" {
            break;
        }
    }
    let Answer::View(view) = runtime.shards().query(Query::View { thread, after: 0, limit: 1 }).await? else {
        return Err("the thread is gone".into());
    };
    say(format!("{children} pull requests, each in a child of its own; the parent's history has {} items", view.total));
    Ok(runtime.stop().await?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    story(|line| println!("{line}")).await
}
