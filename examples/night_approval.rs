//! An assistant that needs an approval at night and waits for it until morning, on a clock that is set by hand.
//!
//! `cargo run -p slackwater --example night_approval` needs no key and no network, and is over in a moment: the night is a few
//! steps of the clock. Look at the times in front: all of them are the clock's. The tool is destructive, so the runtime asks a
//! person before it is called. A message in between is answered at once and is no approval. From 23:40 to 08:00 the model is not
//! asked once and no thread is in memory; what is approved then is done once, and its result arrives.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;
use slackwater::clock::Clock;
use slackwater::gateway::{Event, Subscription, outputs};
use slackwater::model::{Reply, Scripted};
use slackwater::sim::Asked;
use slackwater::{LocalTool, Slackwater};
use slackwater_core::effect::Shown;
use slackwater_core::id::OutputId;
use slackwater_core::record::Decision;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ZONE: &str = "Europe/Berlin";
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Deploy {
    version: String,
}

fn agent(asked: &Asked<'_>) -> Reply {
    match asked.lines().last().map(String::as_str) {
        Some("user: Is it out?") => Reply::text("Not yet: it waits for an approval."),
        Some(done) if done.starts_with("event of deploy: ") => Reply::text("1.2 is out."),
        _ => Reply::silence().call("deploy", &json!({"version": "1.2"})),
    }
}

/// Tells what happens until the model has said its part and the thread waits as is said. Returns the question that is asked.
async fn tell(events: &mut Subscription, say: &impl Fn(String), until: &str) -> Outcome<Option<u64>> {
    let mut question = None;
    while let Some(event) = events.next().await {
        let Event::Output(output) = event else { continue };
        let at = Timestamp::from_millisecond(output.at_ms as i64)?.to_zoned(TimeZone::get(ZONE)?);
        let line = outputs::line(&output);
        say(format!("{}  {line}", at.strftime("%H:%M")));
        match output.shown {
            Shown::Question { question: number, .. } => question = Some(number),
            Shown::Waiting(_) if line.starts_with(until) => return Ok(question),
            _ => {}
        }
    }
    Err("the stream has ended".into())
}

pub(crate) async fn story(say: impl Fn(String)) -> Outcome<()> {
    let evening = "2030-03-14T22:30:00Z".parse::<Timestamp>()?;
    let clock = Clock::manual(evening.as_millisecond() as u64);
    let prompts = Arc::new(AtomicUsize::new(0));
    let counted = prompts.clone();
    let model = Scripted::from_fn(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        agent(&Asked { request })
    });
    let deploy = LocalTool::new("deploy", "Deploys a version.", async |deploy: Deploy, _| {
        Ok::<_, String>(format!("{} deployed", deploy.version))
    })
    .destructive();
    let runtime = Slackwater::builder().model(model).tool(deploy).clock(clock.clone()).start().await?;
    let mut conversation = runtime.conversation("release")?;
    let mut events = runtime.shards().subscribe(conversation.thread(), OutputId::default())?;
    conversation.send("Release 1.2 tonight.").await?;
    let question = tell(&mut events, &say, "waits for a person").await?;
    clock.advance(600_000);
    conversation.send("Is it out?").await?;
    tell(&mut events, &say, "waits for ").await?;
    while runtime.shards().awake() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }

    let before = prompts.load(Ordering::SeqCst);
    for hour in 0..8 {
        clock.advance(3_600_000);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!((prompts.load(Ordering::SeqCst), runtime.shards().awake()), (before, 0), "hour {hour}");
    }
    say(format!(
        "THE NIGHT: {} prompts, {} threads in memory",
        prompts.load(Ordering::SeqCst) - before,
        runtime.shards().awake()
    ));
    clock.advance(1_200_000);
    conversation.answer(question.ok_or("nobody was asked")?, Decision::Approve).await?;
    tell(&mut events, &say, "waits for any input").await?;
    Ok(runtime.stop().await?)
}

#[tokio::main]
async fn main() -> Outcome<()> {
    story(|line| println!("{line}")).await
}
