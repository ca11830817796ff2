//! What the model sees of a thread, and the records beneath it, as JSON.
//!
//! In: a page of items or of records. Out: JSON with stable names, and where the next page begins. Always: the items are those
//! of the thread's next prompt, in order; the system text and the tools, which are the same for every thread, are left out.

use super::outputs::{self, arguments, moment, said};
use super::why;
use serde_json::{Value, json};
use slackwater_core::history::{EVENT_TOOL, Item};
use slackwater_core::id::ThreadId;
use slackwater_core::port::{Kept, Reply, View};

/// A reply about a thread as JSON; nothing if it says that there is none, or that it is damaged.
pub fn reply(thread: Option<ThreadId>, reply: &Reply) -> Option<Value> {
    match (thread, reply) {
        (_, Reply::Thread(standing)) => Some(outputs::standing(standing)),
        (_, Reply::Why(why)) => Some(why::why(why)),
        (Some(thread), Reply::View(seen)) => Some(view(thread, seen)),
        (Some(thread), Reply::Records(kept, all)) => Some(records(thread, kept, *all)),
        _ => None,
    }
}

/// A page of what the model sees.
pub fn view(thread: ThreadId, view: &View) -> Value {
    let end = view.first + view.items.len();
    let items = view.items.iter().zip(view.first..).map(|(item, place)| {
        let mut shown = said(item);
        shown["role"] = json!(role(item));
        if let Item::Event(event) = &**item {
            // As the model reads it: a call that it did not make, and its result.
            shown["call"] = json!({"name": EVENT_TOOL, "arguments": {
                "original_tool_name": event.original_tool_name,
                "original_tool_call_id": event.original_tool_call_id,
                "original_args": arguments(&event.original_args),
            }});
        }
        shown["place"] = json!(place);
        shown["inherited"] = json!(place < view.inherited);
        shown["pending"] = json!(place + view.pending >= view.total);
        shown
    });
    json!({
        "thread": thread.to_string(),
        "items": items.collect::<Vec<_>>(),
        "total": view.total,
        "next": (end < view.total).then_some(end),
    })
}

/// A page of records; `all` says whether it is the last.
pub fn records(thread: ThreadId, records: &[Kept], all: bool) -> Value {
    let shown = records.iter().map(|record| {
        json!({
            "number": record.number,
            "at_ms": record.at_ms,
            "at": moment(Some(record.at_ms)),
            "kind": record.kind,
            "bytes": record.bytes,
            "origin": record.origin,
            "gist": record.gist,
        })
    });
    let next = records.last().filter(|_| !all).map(|record| record.number);
    json!({"thread": thread.to_string(), "records": shown.collect::<Vec<_>>(), "next": next})
}

fn role(item: &Item) -> &'static str {
    match item {
        Item::User { .. } => "user",
        Item::Assistant { .. } => "assistant",
        Item::Result(_) => "tool",
        Item::Event(_) => "event",
        Item::Summary(_) => "summary",
    }
}
