//! The house's agents in one process: what passes is in the audit trail, and who sends too much is told so.
//!
//! `cargo run --example embedded -- AUDIT_LOG` (in this package's directory).

use operator::embedded;
use serde_json::Value;
use slackwater::conversation::ConversationError;
use slackwater::model::Scripted;
use slackwater::{LocalTool, Slackwater};
use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::mpsc;

const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "add" }
call = [{ tool = "add", arguments = { a = 2, b = 3 } }]

[[rule]]
when = { message_contains = "wipe" }
call = [{ tool = "wipe" }]

[[rule]]
when = { result_of = "add" }
say = "That makes {result}."

[[rule]]
when = { result_of = "wipe" }
say = "I was told: {result}"

[[rule]]
say = "You said: {message}"
"#;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Add {
    a: i64,
    b: i64,
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Wipe {}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = PathBuf::from(std::env::args().nth(1).ok_or("give the file that the audit trail is written to")?);
    let mut file = std::fs::File::create(&path)?;
    // The flow must not wait for a disk: the lines go to a thread of their own.
    let (note, notes) = mpsc::channel::<String>();
    let writer = std::thread::spawn(move || notes.into_iter().try_for_each(|line| writeln!(file, "{line}")));

    let add = LocalTool::new("add", "Adds two numbers.", |add: Add, _| async move {
        Ok::<_, String>((add.a + add.b).to_string())
    });
    let wipe = LocalTool::new("wipe", "Wipes everything.", |_: Wipe, _| async { Err::<String, _>("wiped".to_owned()) });
    let runtime = Slackwater::builder()
        .model(Scripted::from_toml(SCRIPT)?)
        .tool(add)
        .tool(wipe)
        .shard(move |adapters, stopped| {
            let note = note.clone();
            // Nobody writes any more: then the program ends.
            embedded::run(adapters, move |line| drop(note.send(line)), stopped);
        })
        .start()
        .await?;

    let mut acme = runtime.conversation("acme.orders")?;
    acme.send("add them up").await?;
    println!("acme: {}", acme.receive().await?);
    for text in ["wipe it", "two"] {
        acme.send(text).await?;
        println!("acme: {}", acme.receive().await?);
    }
    match acme.send("three").await {
        Err(ConversationError::Declined(why)) => println!("acme is refused: {why}"),
        other => return Err(format!("the fourth message of a minute was not refused: {other:?}").into()),
    }
    let mut globex = runtime.conversation("globex.orders")?;
    globex.send("one").await?;
    println!("globex: {}", globex.receive().await?);

    runtime.stop().await?;
    writer.join().map_err(|_| "the writer of the audit trail has ended")??;
    for (what, count) in counted(&std::fs::read_to_string(&path)?)? {
        println!("audit: {count} {what}");
    }
    Ok(())
}

/// How often each thing was noted: by seam, and apart if it was refused.
fn counted(log: &str) -> Result<BTreeMap<String, u32>, serde_json::Error> {
    let mut counts = BTreeMap::new();
    for line in log.lines() {
        let line: Value = serde_json::from_str(line)?;
        let refused = if line["refused"].is_string() { ", refused" } else { "" };
        let (seam, what) = (line["seam"].as_str().unwrap_or_default(), line["what"].as_str().unwrap_or_default());
        *counts.entry(format!("{seam} {what}{refused}").replace(" ,", ",").trim_end().to_owned()).or_default() += 1;
    }
    Ok(counts)
}
