//! A coding agent that starts a build, waits for it at no cost, and goes on when the result comes, also when the runtime was
//! stopped and started again meanwhile.
//!
//! `cargo run -p slackwater --example coding_agent` needs no key and no network: the model is a function, and so is the build.
//! Look at the two lines in capitals: while the build runs, no thread is in memory; then nothing of the runtime runs at all,
//! and what the build server delivers later still finds its agent. The model sees one conversation.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

#[path = "support/rap.rs"]
mod rap;

use serde_json::json;
use slackwater::gateway::{self, Event, Subscription, outputs};
use slackwater::model::{Reply, Scripted};
use slackwater::sim::Asked;
use slackwater::{LocalTool, Runtime, Slackwater, tool};
use slackwater_core::id::OutputId;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{net::SocketAddr, path::Path, time::Duration};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// How long a build takes.
const BUILD: Duration = Duration::from_secs(2);

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Edit {
    file: String,
}

fn agent(asked: &Asked<'_>) -> Reply {
    match (asked.result_of("start_build"), asked.result_of("edit")) {
        (Some(build), _) if build.contains("failed") => {
            Reply::text("An off-by-one; I fix it. ").call("edit", &json!({"file": "src/lib.rs"}))
        }
        (Some(build), _) => Reply::text(format!("Done: {build}.")),
        (None, Some(_)) => Reply::text("Once more. ").call("start_build", &json!({})),
        (None, None) => Reply::text("I build first. ").call("start_build", &json!({})),
    }
}

/// The build server: the first build fails, the next one passes.
async fn build_server() -> std::io::Result<String> {
    let fixed = Arc::new(AtomicBool::new(false));
    rap::serve("start_build", axum::Router::new(), move |call| {
        let text = if fixed.swap(true, Ordering::SeqCst) { "212 tests passed" } else { "2 of 212 tests failed" };
        tokio::spawn(async move {
            tokio::time::sleep(BUILD).await;
            rap::deliver(&call, json!({"type": "tool_result", "id": call["id"], "text": text})).await;
        });
    })
    .await
}

async fn start(directory: &Path, builds: &str, listen: SocketAddr) -> Outcome<Runtime> {
    let edit = |edit: Edit, _| async move { Ok::<_, String>(format!("{} changed", edit.file)) };
    let server = tool::ServerConfig { url: Some(builds.to_owned()), ..Default::default() };
    let builder = Slackwater::builder()
        .directory(directory)
        .model(Scripted::from_fn(|request| agent(&Asked { request })))
        .tool(LocalTool::new("edit", "Edits a file.", edit))
        .tool_config(tool::Config { server: vec![server], ..Default::default() })
        .gateway_config(gateway::Config { listen, ..Default::default() });
    Ok(builder.start().await?)
}

/// Tells what happens until the thread waits as is said; returns the last output told.
async fn tell(events: &mut Subscription, say: &impl Fn(String), until: &str) -> Outcome<OutputId> {
    while let Some(event) = events.next().await {
        let Event::Output(output) = event else { continue };
        let line = outputs::line(&output);
        say(format!("  {line}"));
        if line == until {
            return Ok(output.id);
        }
    }
    Err("the stream has ended".into())
}

pub(crate) async fn story(say: impl Fn(String)) -> Outcome<()> {
    let directory = tempfile::tempdir()?;
    let builds = build_server().await?;
    let runtime = start(directory.path(), &builds, ([127, 0, 0, 1], 0).into()).await?;
    let mut conversation = runtime.conversation("fix")?;
    let mut events = runtime.shards().subscribe(conversation.thread(), OutputId::default())?;
    conversation.send("Make the tests pass.").await?;
    let seen = tell(&mut events, &say, "waits for the tool start_build").await?;
    while runtime.shards().awake() > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    say(format!("THREADS IN MEMORY WHILE IT WAITS: {}", runtime.shards().awake()));

    let address = runtime.address();
    runtime.stop().await?;
    say("THE RUNTIME IS STOPPED; the build goes on".to_owned());
    tokio::time::sleep(BUILD / 4).await;
    let runtime = start(directory.path(), &builds, address).await?;
    say("it is started again on the same directory".to_owned());
    let mut events = runtime.shards().subscribe(conversation.thread(), seen)?;
    tell(&mut events, &say, "waits for any input").await?;
    Ok(runtime.stop().await?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    story(|line| println!("{line}")).await
}
