//! The operators: what the house puts between the steps of the loop.
//!
//! In: the streams at the four seams. Out: the same, without the messages that are more than a tenant may send, and a line
//! for the audit trail for everything that passes. Always: who is refused is told why and when to come again; what decides
//! is each message's own time, so the same arrivals are judged the same however they were batched.

use hydro_lang::prelude::*;
use serde_json::{Value, json};
use slackwater_core::effect::Declined;
use slackwater_core::flow::Port;
use slackwater_core::flow::operator::{Operators, Place, Seam, Verdict};
use slackwater_core::port::{ToGateway, ToModel, ToTool};
use slackwater_core::record::{Arrival, Record};
use std::collections::BTreeMap;

/// How long a window is, in milliseconds.
pub const WINDOW_MS: u64 = 60_000;

/// The house's operators.
pub struct House {
    /// How many messages a tenant may send in a window.
    pub messages_max: u32,
}

impl Default for House {
    fn default() -> Self {
        Self { messages_max: 3 }
    }
}

impl Operators for House {
    fn on_arrival<'a, L: Place<'a>>(&self, arrivals: Port<Arrival, L>) -> Seam<Verdict, L> {
        let judged = rate_limit(arrivals, self.messages_max);
        let notes = judged.clone().map(q!(|verdict| self::of_arrival(&verdict)));
        Seam::of(judged).noting(notes)
    }

    fn on_prompt<'a, L: Place<'a>>(&self, prompts: Port<ToModel, L>) -> Seam<ToModel, L> {
        let notes = prompts.clone().filter_map(q!(|asked| self::of_prompt(&asked)));
        Seam::of(prompts).noting(notes)
    }

    fn on_call<'a, L: Place<'a>>(&self, calls: Port<ToTool, L>) -> Seam<ToTool, L> {
        let judged = calls.map(q!(|asked| self::forbid(asked)));
        let notes = judged.clone().filter_map(q!(|asked| self::of_call(&asked)));
        Seam::of(judged).noting(notes)
    }

    fn on_output<'a, L: Place<'a>>(&self, told: Port<ToGateway, L>) -> Seam<ToGateway, L> {
        let notes = told.clone().filter_map(q!(|told| self::of_output(&told)));
        Seam::of(told).noting(notes)
    }
}

/// Lets so many messages of each tenant pass in a window, and refuses the rest.
pub fn rate_limit<'a, L: Place<'a>>(arrivals: Port<Arrival, L>, messages_max: u32) -> Port<Verdict, L> {
    sliced! {
        let tick = use::batch(arrivals, nondet!(/** each arrival is judged by its own time and by those before it, whatever the tick */));
        let mut windows = use::state(|l| l.singleton(q!(Windows::default())));
        let windows = windows.by_mut();
        tick.map(q!(move |arrival| windows.judge(arrival, messages_max)))
    }
}

/// What each tenant has sent in its window. It is lost when the process ends; then a tenant begins anew.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    tenants: BTreeMap<String, Window>,
}

#[derive(Clone, Debug)]
struct Window {
    began_ms: u64,
    messages: u32,
}

impl Windows {
    /// Whether the arrival may pass.
    pub fn judge(&mut self, arrival: Arrival, messages_max: u32) -> Verdict {
        let Some(tenant) = tenant(&arrival) else { return Verdict::Take(arrival) };
        let now_ms = arrival.at_ms;
        // A window that is over is nobody's: memory is that of the tenants of one window.
        self.tenants.retain(|_, window| now_ms < window.began_ms + WINDOW_MS);
        let window = self.tenants.entry(tenant.clone()).or_insert(Window { began_ms: now_ms, messages: 0 });
        if window.messages < messages_max {
            window.messages += 1;
            return Verdict::Take(arrival);
        }
        let retry_after_ms = (window.began_ms + WINDOW_MS).saturating_sub(now_ms);
        let reason =
            format!("{tenant} has sent its {messages_max} messages of this minute; wait, or ask the house for more");
        Verdict::Refuse(arrival, Declined { reason, retry_after_ms: Some(retry_after_ms) })
    }
}

/// Whose message it is: `acme` of the thread `acme.orders`. Nobody's, if it is no message or its thread has no name.
pub fn tenant(arrival: &Arrival) -> Option<String> {
    let Record::Message(message) = &arrival.record else { return None };
    let name = message.thread_name.as_deref()?;
    Some(name.split_once('.').map_or(name, |(tenant, _)| tenant).to_owned())
}

/// This house's agents wipe nothing, whatever their models think.
pub fn forbid(asked: ToTool) -> ToTool {
    match asked {
        ToTool::Dispatch(dispatch) if dispatch.name == "wipe" => {
            ToTool::Refuse(dispatch, "This house does not wipe. Do without it, or tell the user.".to_owned())
        }
        asked => asked,
    }
}

/// The audit trail's line of an arrival.
pub fn of_arrival(verdict: &Verdict) -> String {
    let (Verdict::Take(arrival) | Verdict::Refuse(arrival, _)) = verdict;
    let refused = match verdict {
        Verdict::Refuse(_, declined) => json!(declined.reason),
        Verdict::Take(_) => Value::Null,
    };
    let thread = arrival.thread.to_string();
    let (tenant, what) = (tenant(arrival), kind(&arrival.record));
    json!({"seam": "arrival", "at_ms": arrival.at_ms, "thread": thread, "tenant": tenant, "what": what, "refused": refused})
        .to_string()
}

/// The audit trail's line of a prompt.
pub fn of_prompt(asked: &ToModel) -> Option<String> {
    let ToModel::Prompt(prompt) = asked else { return None };
    let items = prompt.history.len();
    Some(
        json!({"seam": "prompt", "thread": prompt.thread.to_string(), "seen": prompt.seen, "items": items}).to_string(),
    )
}

/// The audit trail's line of a call.
pub fn of_call(asked: &ToTool) -> Option<String> {
    let (dispatch, refused) = match asked {
        ToTool::Dispatch(dispatch) => (dispatch, None),
        ToTool::Refuse(dispatch, why) => (dispatch, Some(why)),
        // What else is said of a call has no line of its own.
        _ => return None,
    };
    let id = dispatch.call.effect_id(dispatch.thread);
    Some(json!({"seam": "call", "call": id, "tool": dispatch.name, "refused": refused}).to_string())
}

/// The audit trail's line of an output.
pub fn of_output(told: &ToGateway) -> Option<String> {
    let ToGateway::Output(output) = told else { return None };
    Some(json!({"seam": "output", "thread": output.thread.to_string(), "id": output.id.to_string()}).to_string())
}

fn kind(record: &Record) -> &'static str {
    match record {
        Record::Message(_) => "message",
        Record::Completion(_) => "completion",
        Record::Failure(_) => "failure",
        Record::Result(_) => "result",
        Record::Event(_) => "event",
        Record::Stop(_) => "stop",
        Record::Post(_) | Record::Delivered(_) => "post",
        _ => "other",
    }
}
