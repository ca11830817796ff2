//! The story of the demo, step by step.
//!
//! In: an empty directory. Out: the timeline, and what was proven. Always: each step is looked at from outside (over HTTP,
//! in the stream, at the tool server, in the journal) within a bound; the first that is not as it should be ends the story.

use super::home::Home;
use super::look::{check, text, until};
use super::process::Process;
use super::stream::Stream;
use super::timeline::Timeline;
use super::tools::Tools;
use crate::command::Failure;
use crate::command::client::Client;
use crate::output;
use serde_json::{Value, json};
use slackwater_core::id::ThreadId;
use std::path::Path;

const THREAD: &str = "release";
const MESSAGE: &str = "Build the release and tell me how it went.";
/// The message's id: the same again is the same message.
const MESSAGE_ID: &str = "demo-1";
const SCRIPT: &str = include_str!("script.toml");

/// Tells the whole story, of a runtime of one process or of a cluster with so many shards.
pub(super) async fn tell(directory: &Path, shards: Option<u32>) -> Result<(), Failure> {
    let time = Timeline::begin();
    let struck = if shards.is_none() { "runtime" } else { "shard" };
    output::line(
        time.style
            .bold(format_args!("An agent waits for a build. Its {struck} is killed meanwhile, and nothing is lost.")),
    );
    output::line(
        time.style.dim("A script stands in for the language model, and four pauses for the build; all else is real.\n"),
    );
    std::fs::write(directory.join("script.toml"), SCRIPT).map_err(Failure::because)?;

    // (a) The tools, and what the agent lives in.
    let mut tools = Tools::start(time, directory).await?;
    time.tell("tools", format_args!("a build service runs: process {}, {}", tools.process.id(), tools.url));
    let home = Home::start(time, directory, &tools, shards).await?;
    let client = Client::new(home.url(), None).map_err(Failure::Failed)?;

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
    until(&client, "/v1/status", "the thread stays awake", |status| status["awake"] == 0).await?;
    let thread: ThreadId = thread.parse().map_err(Failure::because)?;
    home.see_rest(time, directory, thread)?;
    stream.disconnect();

    // (e) kill -9 in the middle of the build, and (f) a new life at the same address.
    tools.until_step(3).await?;
    let home = home.strike(time, directory, thread, &client, &mut tools).await?;
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
    let journal = home.journal(directory, thread);
    home.end(time, directory).await?;
    let report = doctor(directory, &journal).await?;
    let records = &report["records_by_kind"];
    // The repeated message is in the journal, where the fold passes over it.
    for (kind, count) in [("message", 2), ("completion", 2), ("accepted", 1), ("result", 1)] {
        check(records[kind] == count, "the journal has not the records it should have", &report)?;
    }
    check(report["sound"] == true, "the journal is damaged", &report)?;
    time.seen("doctor: the journal is sound: the message and its repetition, 2 completions, 1 acceptance, 1 result");

    output::line(format_args!("\n{}", time.style.bold("Seen, each from outside:")));
    for proven in proven(shards.is_some()) {
        output::line(format_args!("  {} {proven}", time.style.green("\u{2713}")));
    }
    Ok(())
}

fn proven(is_cluster: bool) -> [&'static str; 6] {
    [
        "what was acknowledged survived kill -9",
        if is_cluster {
            "a waiting agent is data: no thread awake"
        } else {
            "a waiting agent is data: no thread awake, no process"
        },
        if is_cluster {
            "a call outlives the shard that made it: its callback URL stayed good"
        } else {
            "a call outlives the runtime that made it: its callback URL stayed good"
        },
        "each record once, in order, across both lives: the stream went on after its last event",
        "the same message twice is one message; the same call is one build",
        "the journal is sound",
    ]
}

async fn doctor(directory: &Path, journal: &Path) -> Result<Value, Failure> {
    let journal = journal.display().to_string();
    let (_, report) = Process::start("doctor", &["doctor", &journal, "--json"], directory).await?;
    Ok(report)
}
