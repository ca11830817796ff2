//! Why a thread does not go on, as JSON: on what it waits, since when, until when, and who can release it.
//!
//! In: what the shard says of the thread. Out: JSON with stable names. Always: each wait has its own arm in [`on`]; who is
//! named as a releaser is there: a subscription that is active, a child that lives, a parent that the thread has.

use super::outputs::{moment, standing, wait};
use serde_json::{Value, json};
use slackwater_core::effect::Wait;
use slackwater_core::record::Asks;
use slackwater_core::thread::Why;

/// Why a thread does not go on.
pub fn why(why: &Why) -> Value {
    let subscriptions = why.subscriptions.iter().map(|subscription| {
        json!({
            "call": subscription.call.to_string(),
            "name": subscription.name,
            "arguments": super::outputs::arguments(&subscription.arguments),
            "handling": subscription.handling,
            "queued": subscription.queued,
            "gathered": subscription.gathered,
            "due_ms": subscription.due_ms,
            "due": moment(subscription.due_ms),
        })
    });
    let children = why.children.iter().map(|child| {
        json!({
            "thread": child.thread.to_string(),
            "task": child.task,
            "subscription": child.subscription.map(|call| call.to_string()),
            "since_ms": child.since_ms,
            "since": moment(Some(child.since_ms)),
        })
    });
    json!({
        "standing": standing(&why.standing),
        "waits": why.standing.waits.iter().map(|wait| on(wait, why)).collect::<Vec<_>>(),
        "subscriptions": subscriptions.collect::<Vec<_>>(),
        "children": children.collect::<Vec<_>>(),
    })
}

/// One wait: since when, until when at the latest, and who can release it.
fn on(on: &Wait, why: &Why) -> Value {
    let (since_ms, deadline_ms, released_by) = match on {
        Wait::Model { .. } => (why.asked_ms, None, vec![by("model", "its answer, or its failure after all retries")]),
        Wait::Call { name, since_ms, due_ms, .. } => {
            let mut tool = by("tool", "its result");
            tool["name"] = json!(name);
            let mut releasers = vec![tool, by("person", "a message interrupts the call, a stop cancels it")];
            releasers.extend(due_ms.map(|_| by("timer", "the call times out")));
            (Some(*since_ms), *due_ms, releasers)
        }
        Wait::Timer { since_ms, due_ms, .. } => {
            let timer = by("timer", "its time comes");
            (Some(*since_ms), *due_ms, [timer].into_iter().chain(anybody(why)).collect())
        }
        Wait::Question { name, asks, since_ms, .. } => {
            let mut releasers = vec![by(
                "person",
                match asks {
                    Asks::Approval { .. } => {
                        "the question is approved or denied; a message leaves it open, a stop withdraws it"
                    }
                    Asks::Choice { .. } => "one of the choices is made; a message or a stop withdraws the question",
                    Asks::Authorization { .. } => "the tool is authorized at the question's URL",
                },
            )];
            if let Asks::Authorization { .. } = asks {
                let mut tool = by("tool", "its result, once it is authorized");
                tool["name"] = json!(name);
                releasers.push(tool);
            }
            (Some(*since_ms), None, releasers)
        }
        Wait::Summary { child, since_ms } => {
            let mut releaser = by("child", "its summary, or that there is none");
            releaser["thread"] = json!(child.to_string());
            (Some(*since_ms), None, vec![releaser])
        }
        Wait::Input { since_ms, .. } => (Some(*since_ms), None, anybody(why).collect()),
    };
    json!({
        "wait": wait(on),
        "since_ms": since_ms,
        "since": moment(since_ms),
        "deadline_ms": deadline_ms,
        "deadline": moment(deadline_ms),
        "released_by": released_by,
    })
}

/// Everybody who can wake a thread that only waits for an input.
fn anybody(why: &Why) -> impl Iterator<Item = Value> {
    let subscriptions = why.subscriptions.iter().map(|subscription| {
        let mut releaser = by("subscription", "an event");
        releaser["name"] = json!(subscription.name);
        releaser["call"] = json!(subscription.call.to_string());
        releaser
    });
    let children = why.children.iter().map(|child| {
        let mut releaser = by("child", "a report");
        releaser["thread"] = json!(child.thread.to_string());
        releaser
    });
    let parent = why.standing.parent.map(|parent| {
        let mut releaser = by("parent", "a message, or that it closes this thread");
        releaser["thread"] = json!(parent.to_string());
        releaser
    });
    [by("person", "a message")].into_iter().chain(subscriptions).chain(children).chain(parent)
}

fn by(who: &str, how: &str) -> Value {
    json!({"who": who, "how": how, "name": null, "call": null, "thread": null})
}
