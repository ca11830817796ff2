//! An agent that deploys, and must not do so before somebody has approved it: tried in every order, with a message that comes
//! while the approval is pending, and with a crash anywhere.
//!
//! `cargo run -p slackwater --example approval_sim` prints how it deploys unasked when nothing says that its tool needs an
//! approval, and how much it withstood when something does.
#![allow(clippy::print_stdout, reason = "it is what the example is for")]

use serde_json::{Value, json};
use slackwater::model::Reply;
use slackwater::sim::{Asked, Later, Sim};
use slackwater_core::record::Decision;

/// Deploys once when it is told to, and says what is new.
fn agent(asked: &Asked<'_>) -> Reply {
    match asked.lines().iter().any(|line| line.contains("deploy(")) {
        false => Reply::silence().call("deploy", &json!({ "version": "1.2" })),
        true => Reply::text(asked.news().join("; ")),
    }
}

/// Whether somebody has to be asked is not the model's to say, and no text that it is sent changes it.
pub(crate) fn simulation(needs_approval: bool) -> Sim {
    let sim = Sim::new()
        .model(agent)
        .tool_once("deploy", |_: Value| Later::after_ms(60_000, "1.2 is out"))
        .send("ops", "ship 1.2")
        .then("ops", "yes, do it")
        .approve("ops")
        .duplicates(0)
        .together(1)
        .always(|now| {
            let approved = now.decisions("ops").iter().filter(|decision| ***decision == Decision::Approve).count();
            assert!(now.runs().len() <= approved, "deployed, and nobody had agreed");
        })
        .check(|end| {
            let (approved, last) = (end.decisions("ops").len(), end.prompts("ops").pop().unwrap_or_default());
            assert_eq!(end.count("deploy"), approved, "what was approved is done, and once");
            assert!(last.iter().any(|line| line == "user: yes, do it"), "{last:?}");
            assert!(approved == 0 || last.iter().any(|line| line.ends_with("deploy: 1.2 is out")), "{last:?}");
        });
    if needs_approval { sim.needs_approval("deploy") } else { sim }
}

fn main() {
    match simulation(false).try_exhaustive() {
        Err(failure) => println!("Without an approval: {failure}\n"),
        Ok(report) => println!("Without an approval it got away with it: {report:?}\n"),
    }
    let report = simulation(true).exhaustive();
    println!("With one: {} executions, {} crashes.", report.executions, report.counts.crashes());
}
