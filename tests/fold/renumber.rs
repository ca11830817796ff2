//! A life in which each record comes twice: the n-th record is there as 2n-1 and again as 2n.
//!
//! In: records, items and waits of a life in which each came once. Out: the same with the numbers of the other. Always: what
//! has no number stays as it is.

use slackwater_core::effect::Wait;
use slackwater_core::history::{History, Item};
use slackwater_core::id::{CallId, Number};
use slackwater_core::record::{Compact, CompactWhy, Question, Record, ViewUpdate};
use std::sync::Arc;

/// Whether the fold cannot know the record again.
pub(crate) fn is_unnamed(record: &Record) -> bool {
    matches!(
        record,
        Record::Accepted(_)
            | Record::Armed { .. }
            | Record::Fired(_)
            | Record::Delivered(_)
            | Record::Responded(_)
            | Record::Bounds(_)
            | Record::Deadline { .. }
            | Record::Lost(_)
    )
}

/// The number under which the n-th record is delivered first.
fn first(number: Number) -> Number {
    (2 * number).saturating_sub(1)
}

fn recall(call: CallId) -> CallId {
    CallId { number: first(call.number), ..call }
}

pub(crate) fn renumbered(mut record: Record) -> Record {
    match &mut record {
        // A prompt of the n-th record has seen both its deliveries.
        Record::Completion(completion) => completion.seen *= 2,
        Record::Failure(failure) => failure.seen *= 2,
        Record::Accepted(call)
        | Record::Fired(call)
        | Record::Armed { call, .. }
        | Record::Deadline { call, .. }
        | Record::Lost(call)
        | Record::View(ViewUpdate { call, .. })
        | Record::Asked(Question { call, .. }) => *call = recall(*call),
        Record::Answered(verdict) => verdict.question = first(verdict.question),
        Record::Responded(question) => *question = first(*question),
        Record::Result(result) => result.call = recall(result.call),
        Record::Event(event) => event.subscription = recall(event.subscription),
        Record::Delivered(receipt) => receipt.post.number = first(receipt.post.number),
        Record::Compact(Compact { why: CompactWhy::Crossed { seen, .. }, .. }) => *seen *= 2,
        Record::Message(_) | Record::Stop(_) | Record::StopAll(_) | Record::Post(_) => {}
        Record::Bounds(_) | Record::Compact(_) => {}
    }
    record
}

pub(crate) fn items(history: &History, renumber: bool) -> Vec<Item> {
    let rename = |item: &Arc<Item>| {
        let mut item = Item::clone(item);
        if renumber {
            match &mut item {
                Item::User { number, .. } | Item::Assistant { number, .. } => *number = first(*number),
                Item::Result(answer) => answer.call = recall(answer.call),
                Item::Event(event) => event.id = recall(event.id),
                Item::Summary(summary) => {
                    summary.number = first(summary.number);
                    summary.covers *= 2;
                }
            }
        }
        item
    };
    history.to_vec().into_iter().map(rename).collect()
}

pub(crate) fn rewait(wait: Wait) -> Wait {
    match wait {
        Wait::Model { seen } => Wait::Model { seen: 2 * seen },
        Wait::Call { call, name, since_ms, accepted, due_ms } => {
            Wait::Call { call: recall(call), name, since_ms, accepted, due_ms }
        }
        Wait::Question { question, call, name, arguments, asks, since_ms } => {
            Wait::Question { question: first(question), call: recall(call), name, arguments, asks, since_ms }
        }
        Wait::Timer { call, since_ms, due_ms } => Wait::Timer { call: recall(call), since_ms, due_ms },
        Wait::Input { call, since_ms } => Wait::Input { call: call.map(recall), since_ms },
        Wait::Summary { .. } => wait,
    }
}
