//! The promises that every simulated life is held to, whatever its agent does.
//!
//! In: what is durable, and what leaves. Out: the promise that is broken, by the name it has in the design, and how. Always:
//! what leaves is compared with the fold of the durable records, which the world keeps beside the join's own.

use super::journal::Journal;
use super::log::{Broken, broken};
use super::view::{Seen, View};
use super::world::{Delivery, World};
use slackwater_core::effect::{Dispatch, Effect, Outcome, Output, Prompt, Shown};
use slackwater_core::history::{History, Item};
use slackwater_core::id::Number;
use slackwater_core::record::{Block, Decision, Record};
use slackwater_core::thread::invariant;
use std::collections::BTreeSet;

/// An invariant of the fold, which says its own name.
pub(super) fn keep(held: Result<(), String>) -> Result<(), Broken> {
    held.or_else(|how| {
        let (name, how) = how.split_once(": ").unwrap_or(("invariant", &how));
        broken(name, how)
    })
}

/// A prompt is what the durable records ask for, holds every message that was taken, and has every call answered.
pub(super) fn prompt(view: &View, prompt: &Prompt) -> Result<(), Broken> {
    let Some(seen) = view.threads.get(&prompt.thread) else {
        return broken("durable_before_act", "a model is asked for a thread of which nothing is durable");
    };
    if seen.thread.prompt().as_ref() != Some(prompt) {
        return broken("durable_before_act", format!("a prompt is not what the durable records ask for: {prompt:?}"));
    }
    match invariant::check_view(&prompt.history) {
        Ok(unanswered) if unanswered.is_empty() => {}
        Ok(unanswered) => return broken("every_call_has_one_result", format!("{unanswered:?} have none in a prompt")),
        Err(how) => return keep(Err(how)),
    }
    let users: BTreeSet<Number> = users(&prompt.history).collect();
    // A summary stands for what it covers.
    let covered = seen.thread.covered();
    match seen.messages.iter().find(|number| **number > covered && !users.contains(number)) {
        Some(number) => broken("nothing_is_dropped_silently", format!("message {number} is not in the next prompt")),
        None => Ok(()),
    }
}

/// What clients are told is what the durable records say.
pub(super) fn output(view: &View, output: &Output) -> Result<(), Broken> {
    let durable = view.threads.get(&output.thread).map_or(&[][..], |seen| &seen.outputs);
    match durable.binary_search_by_key(&output.id, |durable| durable.id) {
        Ok(at) if durable[at] == *output => Ok(()),
        _ => broken("durable_before_act", format!("clients are told what no durable record says: {output:?}")),
    }
}

/// A call was made by a durable record, and its name in the world is that call's alone. Returns what the thread knows.
pub(super) fn dispatch(view: &View, dispatch: &Dispatch, arguments: &serde_json::Value) -> Result<History, Broken> {
    let id = dispatch.call.effect_id(dispatch.thread);
    let made = |item: &Item| match item {
        Item::Assistant { number, blocks, .. } if *number == dispatch.call.number => {
            let mut calls = blocks.iter().filter_map(|block| match block {
                Block::Call { name, arguments, .. } => Some((name, arguments)),
                _ => None,
            });
            calls.nth(dispatch.call.index.into()) == Some((&dispatch.name, &dispatch.arguments))
        }
        _ => false,
    };
    let seen = view.threads.get(&dispatch.thread);
    let Some(seen) = seen.filter(|seen| seen.thread.history().newest_first().any(|item| made(item))) else {
        return broken("durable_before_act", format!("call {id} is done and no durable record makes it"));
    };
    let approved = |output: &Output| matches!(&output.shown, Shown::Verdict { call, answer: Decision::Approve, .. } if *call == dispatch.call);
    if dispatch.approved && !seen.outputs.iter().any(approved) {
        return broken("durable_before_act", format!("call {id} is done as if somebody had approved it"));
    }
    match view.runs.iter().find(|run| run.id == id && (run.tool != dispatch.name || run.arguments != *arguments)) {
        Some(run) => {
            broken("effects_have_names", format!("{id} is the name of a {} and of a {}", run.tool, dispatch.name))
        }
        None => Ok(seen.thread.history().clone()),
    }
}

/// Who is told that an input was taken can find it on stable storage, under the number it is told.
pub(super) fn acknowledged(
    view: &View,
    journal: &Journal,
    delivery: &Delivery,
    outcome: &Outcome,
) -> Result<(), Broken> {
    let (Outcome::Taken(number) | Outcome::Duplicate(number)) = outcome else { return Ok(()) };
    let place = usize::try_from(*number).unwrap_or(usize::MAX).wrapping_sub(1);
    let is_same = |record: &Record| match (record, &delivery.record) {
        (Record::Message(one), Record::Message(other)) => one.id == other.id,
        (Record::Stop(one), Record::Stop(other)) | (Record::StopAll(one), Record::StopAll(other)) => one.id == other.id,
        (Record::Answered(one), Record::Answered(other)) => one.id == other.id,
        (Record::Result(one), Record::Result(other)) => one.call == other.call,
        _ => false,
    };
    let durable = journal.records(delivery.thread).get(place);
    if !durable.is_some_and(|committed| is_same(&committed.arrival.record)) {
        return broken(
            "acknowledged_is_durable",
            format!("{} is acknowledged as {number} and is not there", delivery.name),
        );
    }
    match view.threads.get(&delivery.thread) {
        Some(seen) if seen.thread.last() >= *number => Ok(()),
        _ => broken("acknowledged_is_durable", format!("{} is acknowledged and not applied", delivery.name)),
    }
}

/// When nothing moves any more, everybody has been answered and nothing is owed.
pub(super) fn at_the_end(world: &World<'_>) -> Result<(), Broken> {
    for delivery in &world.deliveries {
        if delivery.outcome.is_none() && !delivery.withdrawn {
            return broken("nothing_is_dropped_silently", format!("{} was never answered", delivery.name));
        }
    }
    world.view.threads.values().try_for_each(rests)
}

fn rests(seen: &Seen) -> Result<(), Broken> {
    if let Some(prompt) = seen.thread.prompt() {
        let how = format!("the thread wants an answer to what it has seen ({}) and nobody is asked", prompt.seen);
        return broken("it_always_continues", how);
    }
    if let Some(owed) = seen.thread.owed().first() {
        let what = match owed {
            Effect::Dispatch(dispatch) => format!("call {} of {}", dispatch.call, dispatch.name),
            other => format!("{other:?}"),
        };
        return broken("it_always_continues", format!("the thread waits for {what} and nobody was asked"));
    }
    // What the model has not seen yet is not in the history; it is in the next prompt.
    let history = seen.thread.history();
    let pending = seen.thread.standing().pending;
    let users: Vec<Number> = users(history).collect();
    let distinct: BTreeSet<&Number> = users.iter().collect();
    // A child's inherited messages have the numbers of its ancestors' records.
    if seen.thread.standing().parent.is_none() && distinct.len() < users.len() {
        return broken("same_id_once", "a message stands in the history twice");
    }
    // A summary stands for what it covers.
    let covered = seen.thread.covered();
    let messages = seen.messages.iter().filter(|number| **number > covered && !distinct.contains(number)).count();
    let answers = |(number, call): &&(Number, slackwater_core::id::CallId)| {
        let found = history.newest_first().filter(|item| match &***item {
            Item::Result(answer) => answer.call == *call && !answer.by.is_substitute(),
            Item::Event(event) => event.id.number == *number,
            _ => false,
        });
        *number > covered && found.count() != 1
    };
    let results = seen.results.iter().filter(answers).count();
    if messages + results > pending {
        let how =
            format!("{messages} messages and {results} results are neither in the history nor for the next prompt");
        return broken("nothing_is_dropped_silently", how);
    }
    Ok(())
}

fn users(history: &History) -> impl Iterator<Item = Number> {
    history.newest_first().filter_map(|item| if let Item::User { number, .. } = &**item { Some(*number) } else { None })
}
