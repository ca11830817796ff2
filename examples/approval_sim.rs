//! An agent that must not deploy before somebody has said yes to its question, tried in every order and with a crash anywhere.
//!
//! `cargo run -p slackwater --example approval_sim` prints how the careless one deploys unasked, and how much the careful
//! one withstood.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use serde_json::{Value, json};
use slackwater::model::Reply;
use slackwater::sim::{Asked, Later, Sim};

const QUESTION: &str = "Deploy 1.2? Say yes.";

/// Takes any yes for an answer, also one that was sent before it had asked.
pub(crate) fn careless(asked: &Asked<'_>) -> Reply {
    if asked.result_of("deploy").is_some() {
        Reply::text("Deployed.")
    } else if asked.last_message().as_deref() == Some("yes") {
        Reply::silence().call("deploy", &json!({ "version": "1.2" }))
    } else {
        Reply::text(QUESTION)
    }
}

/// Takes only a yes that answers its question, which it has asked in full.
pub(crate) fn careful(asked: &Asked<'_>) -> Reply {
    match &asked.lines()[..] {
        [.., question, yes] if *question == format!("model: {QUESTION}") && yes == "user: yes" => {
            Reply::silence().call("deploy", &json!({ "version": "1.2" }))
        }
        [.., result] if result.starts_with("deploy: ") => Reply::text("Deployed."),
        _ => Reply::text(QUESTION),
    }
}

pub(crate) fn simulation(agent: fn(&Asked<'_>) -> Reply) -> Sim {
    Sim::new()
        .model(agent)
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
            assert!(now.runs().len() <= 1, "deployed twice");
        })
}

fn main() {
    match simulation(careless).try_exhaustive() {
        Err(failure) => println!("The careless agent: {failure}\n"),
        Ok(report) => println!("The careless agent got away with it: {report:?}\n"),
    }
    let report = simulation(careful).exhaustive();
    println!("The careful agent: {} executions, {} crashes.", report.executions, report.counts.crashes());
}
