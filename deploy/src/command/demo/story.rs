//! The story of the demo, step by step.
//!
//! In: an empty directory. Out: the timeline, and what was proven. Always: each step is looked at from outside (over HTTP,
//! in the stream, at the tool server, in the journal) within a bound; the first that is not as it should be ends the story.

use super::look::{check, children_of, journal_bytes, text, until};
use super::process::Process;
use super::stream::Stream;
use super::timeline::Timeline;
use super::tools::Tools;
use crate::command::Failure;
use crate::command::client::Client;
use crate::output;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

const THREAD: &str = "release";
const MESSAGE: &str = "Build the release and tell me how it went.";
/// The message's id: the same again is the same message.
const MESSAGE_ID: &str = "demo-1";
const SCRIPT: &str = include_str!("script.toml");

/// How long the runtime stays dead at least.
const DEAD_MS: u64 = 2_000;

/// Tells the whole story.
pub(super) async fn tell(directory: &Path) -> Result<(), Failure> {
    let time = Timeline::begin();
    output::line(time.style.bold("An agent waits for a build. Its runtime is killed meanwhile, and nothing is lost."));
    output::line(
        time.style.dim("A script stands in for the language model, and four pauses for the build; all else is real.\n"),
    );
    std::fs::write(directory.join("script.toml"), SCRIPT).map_err(Failure::because)?;

    // (a) Two processes: the tools and the runtime.
    let mut tools = Tools::start(time, directory).await?;
    time.tell("tools", format_args!("a build service runs: process {}, {}", tools.process.id(), tools.url));
    let (runtime, ready) = start_runtime(directory, &tools.url, "127.0.0.1:0").await?;
    let address = text(&ready, "address");
    let client = Client::new(&text(&ready, "url"), None).map_err(Failure::Failed)?;
    time.tell("runtime", format_args!("ready: process {}, {}", runtime.id(), client.url()));

    // (b) A message, durable before it is answered.
    time.tell("you", format_args!("\u{201c}{MESSAGE}\u{201d}"));
    let taken = client.send(THREAD, MESSAGE_ID, MESSAGE).await.map_err(Failure::because)?;
    check(taken["number"] == 1 && taken["duplicate"] == false, "the message is not taken as record 1", &taken)?;
    time.seen("the message is on disk, as record 1 of the thread");

    // (c) The agent calls the tool, the tool takes the call over.
    let mut stream = Stream::default();
    stream.connect(&client, THREAD).await?;
    let turn = stream.next("turn").await?;
    let call = &turn.data["calls"][0];
    check(call["name"] == "start_build", "the agent does not call start_build", &turn.data)?;
    time.tell("agent", format_args!("\u{201c}{}\u{201d}", text(&turn.data, "text")));
    time.tell("agent", format_args!("calls start_build({})", call["arguments"]));
    tools.show();
    stream.next("waiting").await?;
    let accepted = tools.next("accepted").await?;
    let thread = text(&taken, "thread");
    let expected = format!("{thread}.{}", text(call, "id"));
    check(accepted["call"] == expected.as_str(), "the tool was given another call", &accepted)?;
    let path = format!("/v1/threads/{THREAD}");
    let standing = until(&client, &path, "the call is not accepted", |at| at["waits"][0]["accepted"] == true).await?;
    check(standing["waits"][0]["name"] == "start_build", "the thread does not wait for the build", &standing)?;
    time.seen("the tool has the call and a callback URL of its own; the thread waits for it");

    // (d) What waiting costs.
    let status = until(&client, "/v1/status", "the thread stays awake", |status| status["awake"] == 0).await?;
    let (children, journal) = (children_of(runtime.id())?, journal_bytes(&directory.join("data"))?);
    check(children == 0, "the runtime has processes of its own", &json!(children))?;
    let resident = status["resident_bytes"].as_f64().unwrap_or_default() / (1 << 20) as f64;
    time.seen(format_args!(
        "awake threads: 0. The agent is {journal} bytes on disk and an index entry, and no process;"
    ));
    time.seen(format_args!("the whole runtime has {resident:.1} MiB resident"));
    stream.disconnect();

    // (e) kill -9, and a build that ends while nobody listens.
    tools.until_step(3).await?;
    time.blow("kill -9", format_args!("of process {}: the runtime is gone", runtime.id()));
    runtime.kill().await?;
    let killed = tokio::time::Instant::now();
    let gone = client.get("/health").await.err().map(|error| error.to_string()).unwrap_or_default();
    check(!gone.is_empty(), "something still answers", &Value::Null)?;
    time.seen(format_args!("nobody answers at {address}"));
    tools.next("built").await?;
    tools.next("undelivered").await?;
    tokio::time::sleep_until(killed + Duration::from_millis(DEAD_MS)).await;

    // (f) A new life at the same address.
    let (runtime, _) = start_runtime(directory, &tools.url, &address).await?;
    time.tell("runtime", format_args!("started again: process {}, the same address and journal", runtime.id()));
    stream.connect(&client, THREAD).await?;
    let again = client.send(THREAD, MESSAGE_ID, MESSAGE).await.map_err(Failure::because)?;
    check(again["number"] == 1 && again["duplicate"] == true, "the repeated message was taken twice", &again)?;
    time.seen("the same message again is recognised: still record 1");

    // (g) The result comes by the same URL, and the agent reports.
    let delivered = tools.next("delivered").await?;
    check(delivered["callback_url"] == accepted["callback_url"], "the callback URL has changed", &delivered)?;
    let result = stream.next("result").await?;
    check(result.data["call"] == call["id"] && result.data["by"] == "tool", "not the build's result", &result.data)?;
    time.seen(format_args!(
        "the result is record {}: {}",
        text(&result.data, "id").trim_end_matches(".0"),
        text(&result.data, "text")
    ));
    let report = stream.next("turn").await?;
    let said = text(&report.data, "text");
    check(said.contains(&text(&result.data, "text")), "the agent does not report the result", &report.data)?;
    time.tell("agent", format_args!("\u{201c}{said}\u{201d}"));
    let idle = stream.next("waiting").await?;
    check(idle.data["waits"][0]["on"] == "input", "the thread does not rest", &idle.data)?;
    stream.disconnect();
    check(
        stream.kinds == ["message", "turn", "result", "turn"],
        "the stream has a gap or a repeat",
        &json!(stream.kinds),
    )?;
    until(&client, "/v1/status", "the thread stays awake", |status| status["awake"] == 0).await?;
    tools.check_one_build()?;
    time.seen("the tool was called once; the thread rests; awake threads: 0");

    // (h) A clean end, and a look at the journal.
    let took_ms = runtime.terminate().await?;
    time.tell("runtime", format_args!("SIGTERM: stopped cleanly in {took_ms} ms"));
    let report = doctor(directory).await?;
    let records = &report["records_by_kind"];
    // The repeated message is in the journal, where the fold passes over it.
    for (kind, count) in [("message", 2), ("completion", 2), ("accepted", 1), ("result", 1)] {
        check(records[kind] == count, "the journal has not the records it should have", &report)?;
    }
    check(report["sound"] == true, "the journal is damaged", &report)?;
    time.seen("doctor: the journal is sound: the message and its repetition, 2 completions, 1 acceptance, 1 result");

    output::line(format_args!("\n{}", time.style.bold("Seen, each from outside:")));
    for proven in PROVEN {
        output::line(format_args!("  {} {proven}", time.style.green("\u{2713}")));
    }
    Ok(())
}

const PROVEN: [&str; 6] = [
    "what was acknowledged survived kill -9",
    "a waiting agent is data: no thread awake, no process",
    "a call outlives the runtime that made it: its callback URL stayed good",
    "each record once, in order, across both lives: the stream went on after its last event",
    "the same message twice is one message; the same call is one build",
    "the journal is sound",
];

async fn start_runtime(directory: &Path, tools: &str, listen: &str) -> Result<(Process, Value), Failure> {
    let arguments = [
        "serve",
        "--json",
        "--end-with-parent",
        "--directory",
        "data",
        "--script",
        "script.toml",
        "--tool",
        tools,
        "--listen",
        listen,
    ];
    let (process, ready) = Process::start("runtime", &arguments, directory).await?;
    check(ready["troubles"].as_array().is_some_and(Vec::is_empty), "the runtime does not find the tools", &ready)?;
    Ok((process, ready))
}

async fn doctor(directory: &Path) -> Result<Value, Failure> {
    let (_, report) = Process::start("doctor", &["doctor", "data", "--json"], directory).await?;
    Ok(report)
}
