//! A provider that misbehaves: each prompt still has exactly one answer of the right class, and the next one is answered.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::tests::{answer, completion, failure, prompt, quick, streamed_parts, user};
use super::*;
use crate::catalog::Catalog;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::StreamExt;
use serde_json::{Map, Value, json};
use slackwater_core::port::{Chunk, FromModel, Part, ToModel};
use slackwater_core::record::{Bounds, Record};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Mutex;
use std::time::Instant;

/// What the provider does with one request.
#[derive(Clone)]
enum Act {
    /// Answers well.
    Answer,
    /// Refuses.
    Refuse(u16, &'static [(&'static str, &'static str)], Value),
    /// Sends this as a stream, and then ends it, or holds it open.
    Stream(String, bool),
    /// Sends this as JSON.
    Json(&'static str),
    /// Never answers.
    Silence,
}

type Seen = Arc<Mutex<Vec<(String, HeaderMap, Value)>>>;

struct Provider {
    url: String,
    seen: Seen,
    acts: Arc<Mutex<VecDeque<Act>>>,
}

/// A provider on loopback that does these things, one a request, and then answers well for ever.
async fn provider(acts: Vec<Act>) -> Provider {
    let seen = Seen::default();
    let acts = Arc::new(Mutex::new(VecDeque::from(acts)));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(act).with_state((acts.clone(), seen.clone()));
    tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
    Provider { url, seen, acts }
}

async fn act(
    State((acts, seen)): State<(Arc<Mutex<VecDeque<Act>>>, Seen)>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    seen.lock().unwrap().push((uri.path().to_owned(), headers, serde_json::from_slice(&body).unwrap()));
    let act = acts.lock().unwrap().pop_front().unwrap_or(Act::Answer);
    let anthropic = uri.path() == "/v1/messages";
    match act {
        Act::Answer => stream(good(anthropic), false),
        Act::Refuse(status, headers, body) => {
            let mut response = (StatusCode::from_u16(status).unwrap(), body.to_string()).into_response();
            for (name, value) in headers {
                response.headers_mut().insert(*name, value.parse().unwrap());
            }
            response
        }
        Act::Stream(text, held) => stream(text, held),
        Act::Json(text) => ([("content-type", "application/json")], text).into_response(),
        Act::Silence => std::future::pending().await,
    }
}

fn stream(text: String, held: bool) -> Response {
    let text = futures::stream::iter([Ok::<_, Infallible>(text)]);
    let body = if held { Body::from_stream(text.chain(futures::stream::pending())) } else { Body::from_stream(text) };
    ([("content-type", "text/event-stream")], body).into_response()
}

fn good(anthropic: bool) -> String {
    let events = if anthropic {
        vec![
            json!({"type": "message_start", "message": {"model": "m", "usage": {"input_tokens": 3}}}),
            json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
            json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello."}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}}),
            json!({"type": "message_stop"}),
        ]
    } else {
        vec![
            json!({"model": "m", "choices": [{"delta": {"content": "Hello."}}]}),
            json!({"choices": [{"delta": {}, "finish_reason": "stop"}]}),
            json!({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}),
        ]
    };
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// The first half of a good answer, with its text.
fn half(anthropic: bool) -> String {
    let good = good(anthropic);
    let events: Vec<&str> = good.split_inclusive("\n\n").collect();
    events[..events.len() - 2].concat().trim_end_matches("\n\n").to_owned() + "\n\n"
}

fn limits() -> Limits {
    Limits { chunk_timeout_ms: 150, connect_timeout_ms: 1000, attempts_max: 2, ..quick() }
}

fn models(url: &str) -> [(bool, Arc<dyn Model>); 2] {
    let key = || Some("sk-secret".to_owned());
    [
        (false, Arc::new(OpenAi::new(&format!("{url}/v1"), key(), "m".into(), Map::new(), limits()).unwrap())),
        (true, Arc::new(Anthropic::new(url, key(), "m".into(), 100, Map::new(), limits()).unwrap())),
    ]
}

/// Has both kinds of providers do these things in turn, and gives the record each time.
async fn play(acts: impl Fn(bool) -> Vec<Act>) -> Vec<(Record, Vec<Part>, Provider)> {
    let mut told = Vec::new();
    for anthropic in [false, true] {
        let provider = provider(acts(anthropic)).await;
        let [openai_model, anthropic_model] = models(&provider.url);
        let model = if anthropic { anthropic_model } else { openai_model }.1;
        let (mut from, to) = start(model, "".into(), Catalog::default(), limits(), Bounds::DEFAULT);
        to.put(ToModel::Prompt(prompt([user(1, "hello")])));
        let (record, parts) = answer(&mut from).await;
        // The runtime goes on: the next prompt's answer is the next thing that comes.
        provider.acts.lock().unwrap().clear();
        to.put(ToModel::Prompt(Prompt { seen: 2, ..prompt([user(1, "hello")]) }));
        assert!(matches!(
            from.next().await,
            Some(FromModel::Chunks(chunks)) if matches!(&chunks[..], [Chunk { seen: 2, part: Part::Started, .. }])
        ));
        let next = completion(answer(&mut from).await.0);
        assert_eq!((next.seen, &next.blocks[..]), (2, &[Block::Text("Hello.".into())][..]));
        told.push((record, parts, provider));
    }
    told
}

#[tokio::test]
async fn a_good_answer_is_a_completion() {
    for (record, parts, provider) in play(|_| vec![]).await {
        let completion = completion(record);
        assert_eq!(completion.usage, Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 0 });
        assert_eq!((completion.model.as_str(), completion.end), ("m", End::Finished));
        assert_eq!(parts, [Part::Started, Part::Text("Hello.".into())]);
        let (path, headers, body) = provider.seen.lock().unwrap()[0].clone();
        let header = |name: &str| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
        match path.as_str() {
            "/v1/chat/completions" => {
                assert_eq!(header("authorization"), Some("Bearer sk-secret".into()));
                super::conformance::openai(&body).unwrap();
            }
            "/v1/messages" => {
                assert_eq!(header("x-api-key"), Some("sk-secret".into()));
                assert_eq!(header("anthropic-version"), Some("2023-06-01".into()));
                super::conformance::anthropic(&body).unwrap();
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn a_wrong_key_is_fatal_at_once_and_shown_to_nobody() {
    let refusal = json!({"error": {"message": "Incorrect key sk-secret", "type": "authentication_error"}});
    for (record, parts, provider) in play(|_| vec![Act::Refuse(401, &[], refusal.clone())]).await {
        let failure = failure(record);
        assert_eq!((failure.class, failure.attempts, parts), (FailureClass::Fatal, 1, vec![Part::Started]));
        assert!(
            failure.message.contains("answered 401: Incorrect key [key] (check the key in "),
            "{}",
            failure.message
        );
        assert_eq!(provider.seen.lock().unwrap().len(), 2);
    }
}

#[tokio::test]
async fn too_much_is_tried_again_when_the_provider_says() {
    let busy = Act::Refuse(429, &[("retry-after", "0.4")], json!({"error": {"message": "Slow down"}}));
    let begun = Instant::now();
    for (record, ..) in play(|_| vec![busy.clone()]).await {
        assert_eq!(completion(record).blocks, [Block::Text("Hello.".into())]);
    }
    assert!(begun.elapsed() >= Duration::from_millis(800), "it did not wait as long as it was asked to");
    for (record, ..) in play(|_| vec![busy.clone(), busy.clone()]).await {
        let failure = failure(record);
        assert_eq!((failure.class, failure.attempts), (FailureClass::Throttled, 2));
    }
}

#[tokio::test]
async fn what_does_not_fit_is_an_overflow() {
    let refusal = json!({"error": {"message": "too long", "code": "context_length_exceeded"}});
    for (record, ..) in play(|_| vec![Act::Refuse(400, &[], refusal.clone())]).await {
        assert_eq!((failure(record).class), FailureClass::Overflow);
    }
}

#[tokio::test]
async fn an_error_that_passes_is_tried_again() {
    for act in [
        |_| Act::Refuse(500, &[], json!("oops")),
        |_| Act::Json("{\"what\": \"is this\"}"),
        |_| Act::Stream("garbage without end".into(), false),
        |_| Act::Stream("data: {\"garbage\n\n".into(), false),
        |_| Act::Silence,
    ] {
        for (record, parts, _) in play(|anthropic| vec![act(anthropic)]).await {
            assert_eq!(completion(record).blocks, [Block::Text("Hello.".into())]);
            assert_eq!(parts, [Part::Started, Part::Text("Hello.".into())]);
        }
        for (record, ..) in play(|anthropic| vec![act(anthropic), act(anthropic)]).await {
            let failure = failure(record);
            assert_eq!((failure.class, failure.attempts), (FailureClass::Transient, 2), "{}", failure.message);
        }
    }
}

#[tokio::test]
async fn half_a_stream_is_void_and_tried_again() {
    for held in [false, true] {
        for (record, parts, _) in play(|anthropic| vec![Act::Stream(half(anthropic), held)]).await {
            assert_eq!(completion(record).blocks, [Block::Text("Hello.".into())]);
            let text = Part::Text("Hello.".into());
            assert_eq!(parts, [Part::Started, text.clone(), Part::Void, text]);
        }
        for (record, parts, _) in play(|anthropic| vec![Act::Stream(half(anthropic), held); 2]).await {
            assert_eq!(failure(record).class, FailureClass::Transient);
            assert_eq!(parts.last(), Some(&Part::Void));
        }
    }
}

#[tokio::test]
async fn nobody_there_may_pass() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for (_, model) in models(&url) {
        let (mut from, to) = start(model, "".into(), Catalog::default(), limits(), Bounds::DEFAULT);
        to.put(ToModel::Prompt(prompt([user(1, "hello")])));
        let failure = failure(answer(&mut from).await.0);
        assert_eq!((failure.class, failure.attempts), (FailureClass::Transient, 2));
        assert!(failure.message.contains("cannot be reached"), "{}", failure.message);
    }
}

#[tokio::test]
async fn a_cut_ends_the_request() {
    for anthropic in [false, true] {
        let provider = provider(vec![Act::Stream(half(anthropic), true)]).await;
        let [openai_model, anthropic_model] = models(&provider.url);
        let model = if anthropic { anthropic_model } else { openai_model }.1;
        let (mut from, to) = start(model, "".into(), Catalog::default(), limits(), Bounds::DEFAULT);
        let asked = prompt([user(1, "hello")]);
        to.put(ToModel::Prompt(asked.clone()));
        let text = Part::Text("Hello.".into());
        for part in [Part::Started, text] {
            assert_eq!(streamed_parts(&mut from).await, [part]);
        }
        to.put(ToModel::Cut { thread: asked.thread, seen: asked.seen });
        let completion = completion(answer(&mut from).await.0);
        assert_eq!((completion.end, &completion.blocks[..]), (End::Cut, &[Block::Text("Hello.".into())][..]));
        let told = if anthropic { 3 } else { 0 };
        assert_eq!(completion.usage.input_tokens, told, "what the provider had told of the cost by then");
        assert_eq!(provider.seen.lock().unwrap().len(), 1, "a cut is not tried again");
    }
}
