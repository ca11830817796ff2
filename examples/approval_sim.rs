//! An agent that must not deploy before somebody has approved it, tried in every order and with a crash anywhere.
//!
//! `cargo run -p slackwater --example approval_sim` prints how an agent that asks in its own words takes a yes for an answer
//! that was none, and how much one withstood whose tool needs an approval.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use serde_json::{Value, json};
use slackwater::model::Reply;
use slackwater::sim::{Asked, Later, Sim};
use slackwater_core::record::Decision;

const QUESTION: &str = "Deploy 1.2? Say yes.";

/// Takes any yes for an answer, also one that was sent before it had asked.
fn careless(asked: &Asked<'_>) -> Reply {
    if asked.result_of("deploy").is_some() {
        Reply::text("Deployed.")
    } else if asked.last_message().as_deref() == Some("yes") {
        Reply::silence().call("deploy", &json!({ "version": "1.2" }))
    } else {
        Reply::text(QUESTION)
    }
}

/// The careless agent, and a yes that may come at any time.
pub(crate) fn asking_in_words() -> Sim {
    Sim::new()
        .model(careless)
        .tool_once("deploy", |_: Value| Later::after_ms(60_000, "1.2 is out"))
        .send("ops", "ship 1.2")
        .then("ops", "yes")
        .duplicates(0)
        .always(|now| {
            for run in now.runs() {
                let known = run.known();
                let asked = known.iter().position(|line| *line == format!("model: {QUESTION}"));
                let agreed = known.iter().rposition(|line| line == "user: yes");
                assert!(asked.is_some() && asked < agreed, "deployed, and nobody had agreed: {known:?}");
            }
        })
}

/// Deploys at once; whether somebody has to be asked is not the model's to say.
fn eager(asked: &Asked<'_>) -> Reply {
    match asked.lines().iter().any(|line| line.contains("deploy(")) {
        false => Reply::silence().call("deploy", &json!({ "version": "1.2" })),
        true => Reply::text(asked.news().join("; ")),
    }
}

/// The eager agent, whose tool needs an approval. A yes in words is none, and may come while the approval is pending.
pub(crate) fn asking_for_approval() -> Sim {
    Sim::new()
        .model(eager)
        .tool_once("deploy", |_: Value| Later::after_ms(60_000, "1.2 is out"))
        .needs_approval("deploy")
        .send("ops", "ship 1.2")
        .then("ops", "yes")
        .approve("ops")
        .duplicates(0)
        .together(1)
        .always(|now| {
            let approved = now.decisions("ops").iter().filter(|decision| ***decision == Decision::Approve).count();
            assert!(now.runs().len() <= approved, "deployed twice, or nobody had agreed");
        })
        .check(|end| {
            let (approved, last) = (end.decisions("ops").len(), end.prompts("ops").pop().unwrap_or_default());
            let has = |end: &str| last.iter().any(|line| line.ends_with(end));
            // A message stops a tool that works already; while it waits for its approval, a message only goes before it.
            let stopped = last.iter().any(|line| line.contains("the tool was told to cancel"));
            assert!(has("user: yes"), "{last:?}");
            assert!(stopped || end.count("deploy") == approved, "what is approved is done: {last:?}");
            assert!(stopped || approved == 0 || has("deploy: 1.2 is out"), "{last:?}");
        })
}

fn main() {
    match asking_in_words().try_exhaustive() {
        Err(failure) => println!("The careless agent: {failure}\n"),
        Ok(report) => println!("The careless agent got away with it: {report:?}\n"),
    }
    let report = asking_for_approval().exhaustive();
    println!("With an approval: {} executions, {} crashes.", report.executions, report.counts.crashes());
}
