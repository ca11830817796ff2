//! `slackwater why`: what a thread waits for, since when, until when, and who can release it.
//!
//! In: a thread. Out: words for people, or JSON. Always: changes nothing and wakes nobody.

use super::Failure;
use super::ask::{About, Where};
use super::words::{self, called, count, moment, size, word};
use crate::output::{self, Style};
use serde_json::Value;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater why demo
  slackwater why demo --url http://127.0.0.1:7070
  slackwater why 018f3c2e-5b1a-7c3d-9e4f-0123456789ab --json | jq '.waits[].released_by'

It asks the runtime that runs on the data directory, or reads the directory when none does. It changes nothing and wakes
nobody.")]
pub(crate) struct Arguments {
    /// The thread, by name or id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async {
        let source = arguments.place.open().await?;
        let why = source.about(&arguments.thread, About::Why).await?;
        match arguments.json {
            true => output::line(why),
            false => output::text(told(&why, words::now_ms(), Style::stdout())),
        }
        Ok(())
    })
}

/// Why a thread does not go on, in words.
fn told(why: &Value, now_ms: u64, style: Style) -> String {
    let standing = &why["standing"];
    let state = match word(standing, "state") {
        "thinking" => "its model is asked",
        "working" => "a tool works for it",
        "sleeping" => "it sleeps",
        "idle" => "it has said all it wanted",
        "closed" => "it is closed, and nothing more happens to it",
        other => other,
    };
    let mut lines = vec![format!("{}  {state}", style.bold(called(standing)))];
    let mut put = |name: &str, said: String| lines.push(format!("  {}  {said}", style.dim(format!("{name:<13}"))));
    if standing["name"].is_string() {
        put("id", word(standing, "thread").to_owned());
    }
    if let Some(parent) = standing["parent"].as_str() {
        put("child of", parent.to_owned());
    }
    let records = standing["last"].as_u64().unwrap_or_default();
    let last = standing["last_at_ms"].as_u64().unwrap_or_default();
    let bytes = size(standing["bytes"].as_u64().unwrap_or_default());
    put("holds", format!("{}, {bytes}; the last {}", count(records, "record"), moment(last, now_ms)));
    if let Some(pending) = standing["pending"].as_u64().filter(|pending| *pending > 0) {
        put("unread", format!("{} for its next turn", count(pending, "input")));
    }
    for wait in list(why, "waits") {
        put("waits for", on(&wait["wait"]));
        if let Some(since_ms) = wait["since_ms"].as_u64() {
            put("  since", moment(since_ms, now_ms));
        }
        if let Some(deadline_ms) = wait["deadline_ms"].as_u64() {
            put("  until", format!("{} at the latest", moment(deadline_ms, now_ms)));
        }
        for by in list(wait, "released_by") {
            put("  released by", format!("{}: {}", releaser(by), word(by, "how")));
        }
    }
    for subscription in list(why, "subscriptions") {
        put(
            "subscribed",
            format!(
                "{}({}), call {}",
                word(subscription, "name"),
                subscription["arguments"],
                word(subscription, "call")
            ),
        );
        let held = [("handling", "in a child"), ("queued", "waiting for one"), ("gathered", "gathered for a digest")];
        let held = held.iter().filter_map(|(field, place)| {
            let events = subscription[*field].as_u64().filter(|events| *events > 0)?;
            Some(format!("{} {place}", count(events, "event")))
        });
        let held = held.collect::<Vec<_>>();
        if !held.is_empty() {
            put("", held.join(", "));
        }
        if let Some(due_ms) = subscription["due_ms"].as_u64() {
            put("", format!("the digest comes {} at the latest", moment(due_ms, now_ms)));
        }
    }
    for child in list(why, "children") {
        let since_ms = child["since_ms"].as_u64().unwrap_or_default();
        put(
            "child",
            format!(
                "{}  {}, made {}",
                word(child, "thread"),
                one_line(word(child, "task")),
                words::distance(since_ms, now_ms)
            ),
        );
    }
    let living = standing["children"].as_u64().unwrap_or_default();
    let named = list(why, "children").len() as u64;
    if living > named {
        put("", format!("and {} more", living - named));
    }
    lines.join("\n") + "\n"
}

/// What is waited for, in a few words.
pub(super) fn on(wait: &Value) -> String {
    match word(wait, "on") {
        "model" => "the model's answer".to_owned(),
        "call" => {
            let state = if wait["accepted"] == true { "which has taken it over" } else { "which has not answered yet" };
            format!("the tool {}, {state} (call {})", word(wait, "name"), word(wait, "call"))
        }
        "timer" => format!("its timer (call {})", word(wait, "call")),
        "input" => "any input".to_owned(),
        "summary" => format!("a summary of its history, which {} makes", word(wait, "child")),
        "question" => {
            let asked = match word(wait, "kind") {
                "approval" => format!("approval: {}", word(wait, "reason")),
                "choice" => format!("a choice: {}", word(wait, "prompt")),
                _ => format!("authorization at {}", word(wait, "url")),
            };
            format!(
                "a person's answer to question {}, {asked} (call {} of {})",
                wait["question"],
                word(wait, "call"),
                word(wait, "name")
            )
        }
        other => other.to_owned(),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn releaser(by: &Value) -> String {
    match word(by, "who") {
        "model" => "the model's provider".to_owned(),
        "tool" => format!("the tool {}", word(by, "name")),
        "timer" => "the timer".to_owned(),
        "person" => "a person".to_owned(),
        "subscription" => format!("the subscription {} {}", word(by, "name"), word(by, "call")),
        who => format!("the {who} {}", word(by, "thread")).trim_end().to_owned(),
    }
}

fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map(Vec::as_slice).unwrap_or_default()
}
