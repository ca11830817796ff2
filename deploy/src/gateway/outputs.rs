//! How clients are shown what a thread does: outputs, chunks, waits and standings as JSON.
//!
//! In: outputs of the fold. Out: JSON with stable names. Always: every moment is given in milliseconds since the Unix epoch
//! (`…_ms`) and as RFC 3339 beside it; fields may be added and never change their meaning.

use serde_json::{Value, json};
use slackwater_core::effect::{Output, Shown, Wait};
use slackwater_core::history::{Answered, Event, Item};
use slackwater_core::id::{CallId, Number};
use slackwater_core::port::{Chunk, Part};
use slackwater_core::record::{Asks, Block, Content, Decision};
use slackwater_core::thread::Standing;

/// An output: the name of its kind, and what it says.
pub fn output(output: &Output) -> (&'static str, Value) {
    let (kind, mut data) = match &output.shown {
        Shown::Message(item) => ("message", said(item)),
        Shown::Turn { item, end, usage } => {
            let mut data = said(item);
            data["end"] = json!(end);
            data["usage"] = json!(usage);
            ("turn", data)
        }
        Shown::Result(item) => ("result", said(item)),
        Shown::Event(item) => ("event", said(item)),
        Shown::Failure { class, message } => ("failure", json!({"class": class, "message": message})),
        Shown::Waiting(waits) => ("waiting", json!({"waits": waits.iter().map(wait).collect::<Vec<_>>()})),
        Shown::Stopped => ("stopped", json!({})),
        Shown::Spawned { child, call, for_event } => {
            ("spawned", json!({"child": child.to_string(), "call": call.to_string(), "for_event": for_event}))
        }
        Shown::Born { ancestors } => {
            ("born", json!({"ancestors": ancestors.iter().map(ToString::to_string).collect::<Vec<_>>()}))
        }
        Shown::Report { from, item } => {
            let mut data = said(item);
            data["from"] = json!(from.to_string());
            ("report", data)
        }
        Shown::Closed { children, subscriptions, unseen } => {
            ("closed", json!({"children": children, "subscriptions": subscriptions, "unseen": unseen}))
        }
        Shown::Undelivered { to, why } => ("undelivered", json!({"to": to.to_string(), "why": why})),
        Shown::Question { question, call, name, arguments, asks } => {
            ("question", self::question(*question, *call, name, arguments, asks))
        }
        Shown::Verdict { question, call, origin, answer } => {
            let (answer, reason, choice) = match answer {
                Decision::Approve => ("approve", None, None),
                Decision::Deny { reason } => ("deny", reason.as_ref(), None),
                Decision::Choose { index } => ("choose", None, Some(index)),
            };
            let (question, call, who) = (question, call.to_string(), &origin.who);
            (
                "answer",
                json!({"question": question, "call": call, "who": who, "answer": answer, "reason": reason, "choice": choice}),
            )
        }
        Shown::View { call, view_type, content } => {
            ("view", json!({"call": call.to_string(), "view_type": view_type, "content": parsed(content)}))
        }
        Shown::Compacting { child, covers, bytes } => {
            ("compacting", json!({"child": child.to_string(), "covers": covers, "bytes": bytes}))
        }
        Shown::Compacted { covers, bytes_before, bytes_after, usage } => {
            let (before, after) = (bytes_before, bytes_after);
            ("compacted", json!({"covers": covers, "bytes_before": before, "bytes_after": after, "usage": usage}))
        }
        Shown::NotCompacted { why } => ("not_compacted", json!({"why": why})),
    };
    data["id"] = json!(output.id.to_string());
    data["at_ms"] = json!(output.at_ms);
    data["at"] = rfc3339(output.at_ms);
    (kind, data)
}

/// An output as one line for people.
pub fn line(shown: &Output) -> String {
    let (kind, data) = output(shown);
    let word = |field: &str| data[field].as_str().unwrap_or_default().trim_end().replace('\n', " ");
    match kind {
        "message" => format!("user: {}", word("text")),
        "turn" => {
            let calls = data["calls"].as_array().into_iter().flatten();
            let calls =
                calls.map(|call| format!("{}({})", call["name"].as_str().unwrap_or_default(), call["arguments"]));
            let said = [word("text")].into_iter().chain(calls).filter(|said| !said.is_empty());
            format!("model: {}", said.collect::<Vec<_>>().join(" "))
        }
        "result" => format!("{}: {}", word("name"), word("text")),
        "event" | "report" => format!("event of {}: {}", word("name"), word("text")),
        "spawned" => format!("made the child {}", word("child")),
        "question" => {
            let asks = ["reason", "prompt", "url"].iter().find_map(|field| data[*field].as_str()).unwrap_or_default();
            format!("question {}, {}: {}({})? {asks}", data["question"], word("kind"), word("name"), data["arguments"])
        }
        "answer" => format!("{} answers question {}: {}", word("who"), data["question"], word("answer")),
        "failure" => format!("the model could not answer: {}", word("message")),
        "waiting" => {
            let waits = data["waits"].as_array().into_iter().flatten().map(|wait| match wait["on"].as_str() {
                Some("call") => format!("the tool {}", wait["name"].as_str().unwrap_or_default()),
                Some("timer") => {
                    format!("its timer, {}", wait["due"].as_str().unwrap_or("whose time is not known yet"))
                }
                Some("input") => "any input".to_owned(),
                Some("question") => format!("a person's answer to question {}", wait["question"]),
                on => on.unwrap_or_default().to_owned(),
            });
            format!("waits for {}", waits.collect::<Vec<_>>().join(", "))
        }
        other => other.to_owned(),
    }
}

/// A chunk: the name of its kind, and what it says.
pub fn chunk(chunk: &Chunk) -> (&'static str, Value) {
    let seen = chunk.seen;
    match &chunk.part {
        Part::Started => ("started", json!({"seen": seen})),
        Part::Text(text) => ("chunk", json!({"seen": seen, "text": text})),
        Part::Reasoning(text) => ("chunk", json!({"seen": seen, "reasoning": text})),
        Part::Void => ("void", json!({"seen": seen})),
    }
}

/// Where a thread stands.
pub fn standing(standing: &Standing) -> Value {
    json!({
        "thread": standing.thread.to_string(),
        "name": standing.name,
        "state": standing.state,
        "waits": standing.waits.iter().map(wait).collect::<Vec<_>>(),
        "last": standing.last,
        "last_at_ms": standing.last_at_ms,
        "last_at": rfc3339(standing.last_at_ms),
        "items": standing.items,
        "pending": standing.pending,
        "parent": standing.parent.map(|parent| parent.to_string()),
        "children": standing.children,
        "subscriptions": standing.subscriptions,
        "bytes": standing.bytes,
    })
}

/// What a thread waits for.
pub fn wait(wait: &Wait) -> Value {
    let since = |since_ms: &u64| (json!(since_ms), rfc3339(*since_ms));
    match wait {
        Wait::Model { seen } => json!({"on": "model", "seen": seen}),
        Wait::Call { call, name, since_ms, accepted, due_ms } => {
            let (since_ms, since) = since(since_ms);
            let due = due_ms.map_or(Value::Null, rfc3339);
            json!({"on": "call", "call": call.to_string(), "name": name, "accepted": accepted, "since_ms": since_ms, "since": since, "due_ms": due_ms, "due": due})
        }
        Wait::Question { question, call, name, arguments, asks, since_ms } => {
            let (since_ms, since) = since(since_ms);
            let mut data = self::question(*question, *call, name, arguments, asks);
            data["on"] = json!("question");
            data["since_ms"] = since_ms;
            data["since"] = since;
            data
        }
        Wait::Timer { call, since_ms, due_ms } => {
            let (since_ms, since) = since(since_ms);
            let due = due_ms.map_or(Value::Null, rfc3339);
            json!({"on": "timer", "call": call.to_string(), "since_ms": since_ms, "since": since, "due_ms": due_ms, "due": due})
        }
        Wait::Input { call, since_ms } => {
            let (since_ms, since) = since(since_ms);
            let call = call.map(|call| call.to_string());
            json!({"on": "input", "call": call, "since_ms": since_ms, "since": since})
        }
        Wait::Summary { child, since_ms } => {
            let (since_ms, since) = since(since_ms);
            json!({"on": "summary", "child": child.to_string(), "since_ms": since_ms, "since": since})
        }
    }
}

/// A question: what all have, and what those of its kind have.
fn question(question: Number, call: CallId, name: &str, arguments: &str, asks: &Asks) -> Value {
    let mut data = match asks {
        Asks::Approval { reason } => json!({"kind": "approval", "reason": reason}),
        Asks::Choice { prompt, choices, default, respond_to: _ } => {
            json!({"kind": "choice", "prompt": prompt, "choices": choices, "default": default})
        }
        Asks::Authorization { url } => json!({"kind": "authorization", "url": url}),
    };
    data["question"] = json!(question);
    data["call"] = json!(call.to_string());
    data["name"] = json!(name);
    data["arguments"] = self::arguments(arguments);
    data
}

/// What an item says.
pub(super) fn said(item: &Item) -> Value {
    match item {
        Item::User { number, content } => json!({"number": number, "text": text(content), "content": content}),
        Item::Assistant { number, blocks, cut } => {
            let mut texts = Vec::new();
            let mut reasoning = Vec::new();
            let mut calls = Vec::new();
            for block in blocks {
                match block {
                    Block::Text(text) => texts.push(text.as_str()),
                    Block::Reasoning { text, .. } => reasoning.push(text.as_str()),
                    Block::Call { name, arguments: written, .. } => {
                        let id = CallId { number: *number, index: u16::try_from(calls.len()).unwrap_or(u16::MAX) };
                        calls.push(json!({"id": id.to_string(), "name": name, "arguments": arguments(written)}));
                    }
                }
            }
            json!({"number": number, "text": texts.concat(), "reasoning": reasoning.concat(), "calls": calls, "cut": cut})
        }
        Item::Result(answer) => result(answer),
        Item::Event(event) => self::event(event),
        Item::Summary(summary) => json!({"number": summary.number, "text": summary.text()}),
    }
}

fn result(answer: &Answered) -> Value {
    let display = answer.display.as_deref().map(parsed);
    json!({
        "call": answer.call.to_string(),
        "name": answer.name,
        "by": answer.by,
        "is_error": answer.by.is_error(),
        "text": text(&answer.content),
        "content": answer.content,
        "display": display,
    })
}

fn event(event: &Event) -> Value {
    json!({
        "event": event.id.to_string(),
        "name": event.original_tool_name,
        "arguments": arguments(&event.original_args),
        "text": text(&event.content),
        "content": event.content,
    })
}

/// Arguments as the object that the model wrote, or as its text if that is no JSON.
pub(super) fn arguments(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    parsed(text)
}

/// JSON as it is, or a text that is none as a text.
fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| json!(text))
}

fn text(content: &[Content]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|piece| match piece {
            Content::Text(text) => Some(text.as_str()),
            Content::Image { .. } | Content::File { .. } => None,
        })
        .collect();
    texts.join("\n")
}

/// A moment that may not be known, as RFC 3339 in UTC.
pub(super) fn moment(ms: Option<u64>) -> Value {
    ms.map_or(Value::Null, rfc3339)
}

/// A moment as RFC 3339 in UTC; null if it lies beyond what that can say.
fn rfc3339(ms: u64) -> Value {
    let moment = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    moment.map_or(Value::Null, |moment| json!(moment.to_string()))
}
