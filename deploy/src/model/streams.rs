//! The streams of both providers: what is made of them, wherever their bytes are cut and wherever they break off.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::sse::Events;
use super::*;
use bytes::Bytes;
use serde_json::{Value, json};
use slackwater_core::record::Sealed;
use std::convert::Infallible;
use std::sync::Mutex;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    OpenAi,
    Anthropic,
}

/// What is made of these pieces of a stream, and what was streamed on the way.
async fn read(kind: Kind, pieces: Vec<Bytes>, limits: &Limits) -> (Result<Answer, ModelError>, Vec<Piece>) {
    let streamed = Arc::new(Mutex::new(Vec::new()));
    let keep = streamed.clone();
    let mut sink = Sink::new(move |piece| keep.lock().unwrap().push(piece));
    let bytes = futures::stream::iter(pieces.into_iter().map(Ok::<_, Infallible>));
    let events = Events::new(bytes, limits);
    let answer = match kind {
        Kind::OpenAi => openai::read(events, &mut sink, "asked").await,
        Kind::Anthropic => anthropic::read(events, &mut sink, "asked").await,
    };
    let streamed = std::mem::take(&mut *streamed.lock().unwrap());
    (answer, streamed)
}

fn chunks(events: &[Value]) -> String {
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

fn named(events: &[Value]) -> String {
    events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", event["type"].as_str().unwrap())).collect()
}

fn delta(delta: Value) -> Value {
    json!({"model": "gpt-real", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn finish(reason: &str) -> Value {
    json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

fn call(provider_id: &str, name: &str, arguments: &str) -> Block {
    Block::Call { provider_id: provider_id.into(), name: name.into(), arguments: arguments.into() }
}

fn openai_whole() -> String {
    let piece = |index: u64, id: Value, name: Value, arguments: &str| json!({"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let more = |index: u64, arguments: &str| json!({"index": index, "function": {"arguments": arguments}});
    let events = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "Let me "})),
        delta(json!({"reasoning_content": "look."})),
        delta(json!({"content": "Grüße, "})),
        delta(json!({"content": "Welt 🌊"})),
        delta(
            json!({"tool_calls": [piece(0, json!("a"), json!("look"), ""), piece(1, json!("b"), json!("wait"), "")]}),
        ),
        delta(json!({"tool_calls": [more(1, "{\"s\"")]})),
        delta(json!({"tool_calls": [more(0, "{\"at\":"), more(1, ":1}")]})),
        delta(json!({"tool_calls": [more(0, "\"ü\"}")]})),
        delta(json!({"tool_calls": [piece(2, Value::Null, json!("rest"), "")]})),
        finish("tool_calls"),
        json!({"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 20, "prompt_tokens_details": {"cached_tokens": 64}}}),
    ];
    format!(": hello\n\n{}data: [DONE]\n\n", chunks(&events))
}

fn openai_answer() -> Answer {
    Answer {
        blocks: vec![
            Block::Reasoning { text: "Let me look.".into(), sealed: None },
            Block::Text("Grüße, Welt 🌊".into()),
            call("a", "look", r#"{"at":"ü"}"#),
            call("b", "wait", r#"{"s":1}"#),
            call("", "rest", ""),
        ],
        end: End::Finished,
        usage: Usage { input_tokens: 100, output_tokens: 20, cached_tokens: 64 },
        model: "gpt-real".into(),
    }
}

const REDACTED: &str = r#"{"type":"redacted_thinking","data":"EmwK/+=="}"#;

fn anthropic_whole() -> String {
    let start =
        |index: u64, block: Value| json!({"type": "content_block_start", "index": index, "content_block": block});
    let more = |index: u64, delta: Value| json!({"type": "content_block_delta", "index": index, "delta": delta});
    let stop = |index: u64| json!({"type": "content_block_stop", "index": index});
    let events = [
        json!({"type": "message_start", "message": {"id": "m", "model": "claude-real", "usage": {
            "input_tokens": 10, "output_tokens": 1, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5,
        }}}),
        json!({"type": "ping"}),
        start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
        more(0, json!({"type": "thinking_delta", "thinking": "Let me "})),
        more(0, json!({"type": "thinking_delta", "thinking": "look."})),
        more(0, json!({"type": "signature_delta", "signature": "Eq+/="})),
        stop(0),
    ];
    let rest = [
        stop(1),
        start(2, json!({"type": "text", "text": ""})),
        more(2, json!({"type": "text_delta", "text": "Grüße, "})),
        more(2, json!({"type": "text_delta", "text": "Welt 🌊"})),
        stop(2),
        start(3, json!({"type": "new_kind", "x": 1})),
        more(3, json!({"type": "new_delta", "x": 1})),
        stop(3),
        start(4, json!({"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}})),
        more(4, json!({"type": "input_json_delta", "partial_json": ""})),
        more(4, json!({"type": "input_json_delta", "partial_json": "{\"at\": "})),
        more(4, json!({"type": "input_json_delta", "partial_json": "\"ü\"}"})),
        stop(4),
        start(5, json!({"type": "tool_use", "id": "toolu_2", "name": "rest", "input": {}})),
        stop(5),
        start(6, json!({"type": "tool_use", "id": "toolu_3", "name": "wait", "input": {"s": 1}})),
        stop(6),
        json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 20}}),
        json!({"type": "message_stop"}),
    ];
    // Not made of a JSON value: it must come through as it is.
    let redacted = format!(
        "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":1,\"content_block\":{REDACTED}}}\n\n"
    );
    format!("{}{redacted}{}", named(&events), named(&rest))
}

fn anthropic_answer() -> Answer {
    let sealed = |json: String| Some(Sealed { provider: "anthropic".into(), json });
    let thinking = json!({"type": "thinking", "thinking": "Let me look.", "signature": "Eq+/="}).to_string();
    Answer {
        blocks: vec![
            Block::Reasoning { text: "Let me look.".into(), sealed: sealed(thinking) },
            Block::Reasoning { text: String::new(), sealed: sealed(REDACTED.into()) },
            Block::Text("Grüße, Welt 🌊".into()),
            call("toolu_1", "look", r#"{"at": "ü"}"#),
            call("toolu_2", "rest", ""),
            call("toolu_3", "wait", r#"{"s":1}"#),
        ],
        end: End::Finished,
        usage: Usage { input_tokens: 95, output_tokens: 20, cached_tokens: 80 },
        model: "claude-real".into(),
    }
}

fn wholes() -> [(Kind, String, Answer); 2] {
    [(Kind::OpenAi, openai_whole(), openai_answer()), (Kind::Anthropic, anthropic_whole(), anthropic_answer())]
}

#[tokio::test]
async fn an_answer_is_the_same_wherever_its_bytes_are_cut() {
    for (kind, whole, expected) in wholes() {
        let limits = Limits::default();
        for whole in [whole.clone(), whole.replace('\n', "\r\n")] {
            let whole = Bytes::from(whole);
            for at in 0..=whole.len() {
                let (answer, streamed) = read(kind, vec![whole.slice(..at), whole.slice(at..)], &limits).await;
                assert_eq!(answer.as_ref(), Ok(&expected), "{kind:?} cut at {at}");
                let said: String = streamed
                    .iter()
                    .filter_map(|piece| match piece {
                        Piece::Text(text) => Some(text.as_str()),
                        _ => None,
                    })
                    .collect();
                assert_eq!(said, "Grüße, Welt 🌊");
                let last = streamed.iter().rev().find(|piece| matches!(piece, Piece::Usage(_)));
                assert_eq!(last, Some(&Piece::Usage(expected.usage)));
            }
            let bytes = (0..whole.len()).map(|at| whole.slice(at..=at)).collect();
            assert_eq!(read(kind, bytes, &limits).await.0, Ok(expected.clone()), "{kind:?} byte for byte");
        }
    }
}

#[tokio::test]
async fn a_whole_answer_is_as_good_as_a_stream() {
    let openai = json!({"model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 2}, "choices": [{
        "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "Hello.", "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "x", "arguments": "{\"b\":1,\"a\":2}"}},
            {"id": "b", "type": "function", "function": {"name": "y", "arguments": ""}},
        ]},
    }]})
    .to_string();
    let anthropic = r#"{"type": "message", "model": "m", "stop_reason": "tool_use", "usage": {"input_tokens": 3, "output_tokens": 2},
        "content": [{"type": "text", "text": "Hello."},
            {"type": "tool_use", "id": "a", "name": "x", "input": {"b":1,"a":2}},
            {"type": "tool_use", "id": "b", "name": "y", "input": {}}]}"#;
    let limits = Limits::default();
    for (kind, whole) in [(Kind::OpenAi, openai), (Kind::Anthropic, anthropic.to_owned())] {
        let whole = Bytes::from(whole);
        for at in [0, 1, whole.len() / 2, whole.len()] {
            let pieces = [whole.slice(..at), whole.slice(at..)].map(Ok::<_, Infallible>);
            let events = Events::whole(futures::stream::iter(pieces), &limits);
            let mut sink = Sink::new(|_| {});
            let answer = match kind {
                Kind::OpenAi => openai::read(events, &mut sink, "asked").await,
                Kind::Anthropic => anthropic::read(events, &mut sink, "asked").await,
            };
            let blocks = vec![Block::Text("Hello.".into()), call("a", "x", r#"{"b":1,"a":2}"#), call("b", "y", "")];
            let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 0 };
            assert_eq!(answer, Ok(Answer { blocks, end: End::Finished, usage, model: "m".into() }), "{kind:?}");
        }
    }
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_no_answer() {
    for (kind, whole, expected) in wholes() {
        let whole = Bytes::from(whole);
        let ended = match kind {
            Kind::OpenAi => "\"finish_reason\":\"tool_calls\",\"index\":0}]}\n\n",
            Kind::Anthropic => "\"type\":\"message_delta\",\"usage\":{\"output_tokens\":20}}\n\n",
        };
        let text = std::str::from_utf8(&whole).unwrap();
        let ended = text.find(ended).map(|at| at + ended.len()).unwrap();
        for at in 0..whole.len() {
            let answer = read(kind, vec![whole.slice(..at)], &Limits::default()).await.0;
            if at < ended {
                assert_eq!(answer.unwrap_err().class, FailureClass::Transient, "{kind:?} cut at {at}");
            } else {
                // All was said; only the usage or the good-bye is missing.
                assert_eq!(answer.unwrap().blocks, expected.blocks, "{kind:?} cut at {at}");
            }
        }
    }
}

#[tokio::test]
async fn calls_are_told_apart_however_they_are_counted() {
    let piece = |index: Value, id: &str, name: &str, arguments: &str| json!({"index": index, "id": id, "function": {"name": name, "arguments": arguments}});
    for (what, pieces, expected) in [
        (
            "all counted as 0",
            vec![piece(json!(0), "a", "x", "{}"), piece(json!(0), "b", "y", "{}")],
            vec![call("a", "x", "{}"), call("b", "y", "{}")],
        ),
        (
            "not counted",
            vec![piece(Value::Null, "a", "x", "{"), piece(Value::Null, "", "", "}"), piece(Value::Null, "b", "y", "")],
            vec![call("a", "x", "{}"), call("b", "y", "")],
        ),
        (
            "id and name repeated with each piece",
            vec![piece(json!(0), "a", "x", "{"), piece(json!(0), "a", "x", "}")],
            vec![call("a", "x", "{}")],
        ),
        (
            "the id comes late, the second call first",
            vec![piece(json!(1), "", "y", ""), piece(json!(0), "", "x", ""), piece(json!(1), "b", "", "{}")],
            vec![call("", "x", ""), call("b", "y", "{}")],
        ),
    ] {
        let mut events: Vec<Value> = pieces.into_iter().map(|piece| delta(json!({"tool_calls": [piece]}))).collect();
        events.push(finish("tool_calls"));
        let answer = read(Kind::OpenAi, vec![chunks(&events).into()], &Limits::default()).await.0.unwrap();
        assert_eq!(answer.blocks, expected, "{what}");
    }
}

#[tokio::test]
async fn an_answer_ends_as_its_provider_says() {
    let openai = |reason: &str| (Kind::OpenAi, chunks(&[delta(json!({"content": "x"})), finish(reason)]));
    let anthropic = |reason: &str| {
        let events = [
            json!({"type": "message_start", "message": {}}),
            json!({"type": "message_delta", "delta": {"stop_reason": reason}}),
        ];
        (Kind::Anthropic, named(&events))
    };
    let refused = chunks(&[delta(json!({"refusal": "No."})), finish("stop")]);
    for ((kind, stream), end) in [
        (openai("stop"), End::Finished),
        (openai("tool_calls"), End::Finished),
        (openai("length"), End::Length),
        (openai("content_filter"), End::Declined),
        ((Kind::OpenAi, refused), End::Declined),
        (anthropic("end_turn"), End::Finished),
        (anthropic("tool_use"), End::Finished),
        (anthropic("max_tokens"), End::Length),
        (anthropic("refusal"), End::Declined),
    ] {
        let answer = read(kind, vec![stream.clone().into()], &Limits::default()).await.0.unwrap();
        assert_eq!(answer.end, end, "{stream}");
    }
}

#[tokio::test]
async fn what_is_no_answer_has_its_class() {
    use FailureClass::{Fatal, Overflow, Throttled, Transient};
    let limits = Limits { answer_bytes_max: 2000, ..Limits::default() };
    let error = |kind: &str, message: &str| json!({"type": "error", "error": {"type": kind, "message": message}});
    let text = |n| (0..n).map(|_| delta(json!({"content": "x"}))).collect::<Vec<_>>();
    let unbegun = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}});
    let unnamed = [delta(json!({"tool_calls": [{"index": 0, "id": "a"}]})), finish("tool_calls")];
    for (kind, stream, class) in [
        (Kind::Anthropic, named(&[error("overloaded_error", "Overloaded")]), Throttled),
        (Kind::Anthropic, named(&[error("api_error", "Internal")]), Transient),
        (Kind::Anthropic, named(&[error("invalid_request_error", "prompt is too long: 9 > 8")]), Overflow),
        (Kind::Anthropic, named(&[unbegun]), Transient),
        (Kind::OpenAi, chunks(&[error("rate_limit_error", "slow down")]), Throttled),
        (Kind::OpenAi, chunks(&[json!({"error": {"message": "boom", "code": 500}})]), Transient),
        (Kind::OpenAi, chunks(&[finish("error")]), Transient),
        (Kind::OpenAi, chunks(&unnamed), Transient),
        (Kind::OpenAi, chunks(&text(100)), Fatal),
        (Kind::OpenAi, "data: {garbage\n\n".to_owned(), Transient),
        (Kind::OpenAi, "data: [DONE]\n\n".to_owned(), Transient),
        (Kind::OpenAi, "no events at all".to_owned(), Transient),
        (Kind::Anthropic, "data: \u{0}\n\n".to_owned(), Transient),
        (Kind::Anthropic, String::new(), Transient),
    ] {
        let answer = read(kind, vec![stream.clone().into()], &limits).await.0;
        assert_eq!(answer.unwrap_err().class, class, "{stream}");
    }
    let binary = vec![Bytes::from_static(b"data: \xff\xfe\n\n")];
    assert_eq!(read(Kind::OpenAi, binary, &limits).await.0.unwrap_err().class, Transient);
}
