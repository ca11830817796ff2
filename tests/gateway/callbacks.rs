//! Callbacks: only the holder of a call's capability answers it, and once.

use super::{Answer, World};
use serde_json::{Value, json};
use slackwater::capability::CapabilityKey;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::{Content, Proof, Record};

const LATER_MS: u64 = 4_000_000_000_000;

fn result(thread: ThreadId, call: CallId, text: &str) -> Value {
    json!({"type": "tool_result", "group_id": thread.to_string(), "id": call.effect_id(thread), "text": text})
}

fn choice(thread: ThreadId, call: CallId) -> Value {
    json!({
        "type": "user_choice", "group_id": thread.to_string(), "id": call.effect_id(thread), "prompt": "?", "choices": ["a"],
        "response_url": "http://127.0.0.1:9/answer",
    })
}

async fn world_with_call() -> (World, ThreadId, CallId) {
    let world = World::new();
    let thread = world.say("demo", "build it").await;
    let call = world.shard.call(thread, "build", "{}");
    (world, thread, call)
}

impl World {
    async fn call_back(&self, token: &str, body: &Value) -> Answer {
        self.post(&format!("/v1/callbacks/{token}"), body.to_string()).await
    }
}

#[tokio::test]
async fn a_result_answers_its_call_once() {
    let (world, thread, call) = world_with_call().await;
    let url = format!("{}/v1/callbacks/{}", world.gateway.base_url(), world.key.token(thread, call, LATER_MS));
    assert!(url.starts_with(&world.url));
    let body = result(thread, call, "green");
    let taken = Answer::of(world.client.post(&url).json(&body)).await;
    let number = world.shard.last(thread);
    assert_eq!(taken.status, 200, "{}", taken.body);
    assert_eq!(
        taken.body,
        json!({"thread": thread.to_string(), "call": call.to_string(), "number": number, "duplicate": false})
    );
    let again = Answer::of(world.client.post(&url).json(&body)).await;
    assert_eq!((again.status, &again.body["number"], &again.body["duplicate"]), (200, &json!(number), &json!(true)));
    let records = world.shard.records();
    let Record::Result(taken) = &records[2].arrival.record else { panic!("{records:?}") };
    assert_eq!(taken.content, [Content::Text("green".into())]);
    assert_eq!(taken.origin.proof, Proof::Capability);
}

#[tokio::test]
async fn origin_is_proven() {
    let (world, thread, call) = world_with_call().await;
    let body = result(thread, call, "evil");
    let other = CallId { number: call.number, index: 1 };
    let stranger = CapabilityKey::random().unwrap();
    let mut altered = world.key.token(thread, call, LATER_MS);
    let flipped = if altered.pop() == Some('A') { 'B' } else { 'A' };
    altered.push(flipped);
    world.call_back("abc", &body).await.is_problem(401, "malformed-token", "callback_url");
    world.call_back("%ff", &body).await.is_problem(401, "malformed-token", "callback_url");
    world.call_back(&stranger.token(thread, call, LATER_MS), &body).await.is_problem(403, "forged-token", "made by");
    let answer = world.call_back(&altered, &body).await;
    assert!(matches!(answer.status, 401 | 403), "{}", answer.body);
    world.call_back(&world.key.token(thread, call, 1), &body).await.is_problem(403, "expired-token", "expired");
    // A token of one call does not speak for another, nor for another thread.
    let token = world.key.token(thread, other, LATER_MS);
    world.call_back(&token, &body).await.is_problem(403, "other-call", "the call");
    let token = world.key.token(ThreadId::from_bytes([7; 16]), call, LATER_MS);
    world.call_back(&token, &body).await.is_problem(403, "other-thread", "group_id");
    assert_eq!(world.shard.records().len(), 2, "nothing unproven is journaled");
}

#[tokio::test]
async fn a_result_that_answers_nothing_is_refused_with_its_reason() {
    let (world, thread, call) = world_with_call().await;
    let other = CallId { number: call.number, index: 1 };
    let token = world.key.token(thread, other, LATER_MS);
    world.call_back(&token, &result(thread, other, "x")).await.is_problem(409, "no-such-call", "no call");
    let unknown = ThreadId::from_bytes([7; 16]);
    let token = world.key.token(unknown, call, LATER_MS);
    world.call_back(&token, &result(unknown, call, "x")).await.is_problem(404, "unknown-thread", "");
}

#[tokio::test]
async fn what_is_no_callback_is_refused() {
    let (world, thread, call) = world_with_call().await;
    let token = world.key.token(thread, call, LATER_MS);
    let path = format!("/v1/callbacks/{token}");
    for (body, said) in [
        ("", "EOF"),
        ("{}", "type"),
        (r#"{"type":"greeting"}"#, "tool_result"),
        (r#"{"type":"tool_result"}"#, "group_id"),
    ] {
        world.post(&path, body).await.is_problem(400, "bad-callback", said);
    }
    let mut empty = result(thread, call, "");
    empty.as_object_mut().unwrap().remove("text");
    world.call_back(&token, &empty).await.is_problem(400, "bad-callback", "text");
    for (field, value, said) in [
        ("choices", json!([]), "1 to 100 choices"),
        ("choices", json!(vec!["a"; 101]), "1 to 100 choices"),
        ("default", json!(1), "one of 1 choices"),
        ("response_url", json!("ftp://x"), "http or https URL"),
        ("response_url", json!("here"), "http or https URL"),
    ] {
        let mut body = choice(thread, call);
        body[field] = value;
        let answer = world.call_back(&token, &body).await;
        answer.is_problem(400, "bad-field", said);
        assert_eq!(answer.body["field"], field);
    }
    for (kind, missing) in [("user_choice", "prompt"), ("oauth", "auth_url"), ("view_update", "view_type")] {
        let body = json!({"type": kind, "group_id": thread.to_string(), "id": call.effect_id(thread)});
        world.call_back(&token, &body).await.is_problem(400, "bad-callback", missing);
    }
    let mut oauth = json!({"type": "oauth", "group_id": thread.to_string(), "id": call.effect_id(thread)});
    oauth["auth_url"] = json!("javascript:alert(1)");
    world.call_back(&token, &oauth).await.is_problem(400, "bad-field", "auth_url");
    let large = result(thread, call, &"x".repeat(17 << 20));
    world.call_back(&token, &large).await.is_problem(413, "too-large", "16777216");
    // What a message may not be, a result may.
    let large = result(thread, call, &"x".repeat(2 << 20));
    assert_eq!(world.call_back(&token, &large).await.status, 200);
}

#[tokio::test]
async fn a_server_built_on_the_reference_types_answers_unchanged() {
    let (world, thread, call) = world_with_call().await;
    let token = world.key.token(thread, call, LATER_MS);
    let invocation: rap_protocol::RapInvocation = serde_json::from_value(json!({
        "operation": "build",
        "arguments": {},
        "id": call.effect_id(thread),
        "callback_url": format!("{}/v1/callbacks/{token}", world.gateway.base_url()),
        "group_id": thread.to_string(),
    }))
    .unwrap();
    let client = rap_protocol::PlainCallbackClient::new();
    let display = vec![rap_protocol::DisplaySegment::Text("done".into())];
    rap_protocol::send_tool_result(&client, &invocation, "green", Some(display), true).await;
    let records = world.shard.records();
    let Record::Result(taken) = &records[2].arrival.record else { panic!("{records:?}") };
    assert_eq!((taken.call, &taken.content[..]), (call, &[Content::Text("green".into())][..]));
    assert!(taken.subscription && taken.display.as_ref().is_some_and(|display| display.contains("done")));
}

#[tokio::test]
async fn what_a_person_is_asked_and_shown_is_taken_while_the_call_is_open() {
    let (world, thread, call) = world_with_call().await;
    let token = world.key.token(thread, call, LATER_MS);
    let view =
        json!({"type": "view_update", "group_id": thread.to_string(), "view_type": "diff", "content": {"n":  1}});
    assert_eq!(world.call_back(&token, &view).await.status, 200);
    let asked = world.call_back(&token, &choice(thread, call)).await;
    assert_eq!((asked.status, &asked.body["duplicate"]), (200, &json!(false)), "{}", asked.body);
    let again = world.call_back(&token, &choice(thread, call)).await;
    assert_eq!((&again.body["number"], &again.body["duplicate"]), (&asked.body["number"], &json!(true)));
    let oauth = json!({"type": "oauth", "group_id": thread.to_string(), "id": call.effect_id(thread), "auth_url": "https://x/"});
    assert_eq!(world.call_back(&token, &oauth).await.status, 200);
    let waits = world.get("/v1/threads/demo").await.body["waits"].clone();
    assert_eq!(waits.as_array().unwrap().len(), 1, "a tool asks one thing at a time for a call: {waits}");
    assert_eq!((&waits[0]["kind"], &waits[0]["url"]), (&json!("authorization"), &json!("https://x/")));
    assert_eq!(world.call_back(&token, &result(thread, call, "done")).await.status, 200);
    world.call_back(&token, &choice(thread, call)).await.is_problem(410, "question-withdrawn", "result");
    assert_eq!(world.call_back(&token, &view).await.status, 200, "a view may come after the result");
    let records = world.shard.records();
    let Record::View(shown) = &records[2].arrival.record else { panic!("{records:?}") };
    assert_eq!((shown.content.as_str(), shown.origin.proof), (r#"{"n":1}"#, Proof::Capability));
}

#[tokio::test]
async fn an_event_is_taken_once_while_its_subscription_lasts() {
    let (world, thread, call) = world_with_call().await;
    let token = world.key.token(thread, call, LATER_MS);
    let event = |id: &str, fields: Value| {
        let mut body = json!({"type": "subscription_event", "group_id": thread.to_string(), "tool_call_id": call.effect_id(thread), "text": "it changed", "event_id": id});
        body.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        body
    };
    // Before the result nothing is subscribed.
    world.call_back(&token, &event("a", json!({}))).await.is_problem(409, "no-such-subscription", "subscription");
    let mut subscribed = result(thread, call, "watching");
    subscribed["subscription"] = json!(true);
    assert_eq!(world.call_back(&token, &subscribed).await.status, 200);
    let taken = world.call_back(&token, &event("a", json!({"associative": true}))).await;
    assert_eq!((taken.status, &taken.body["duplicate"]), (200, &json!(false)), "{}", taken.body);
    let again = world.call_back(&token, &event("a", json!({"associative": true}))).await;
    assert_eq!((again.status, &again.body["duplicate"]), (200, &json!(true)), "{}", again.body);
    assert_eq!(again.body["number"], taken.body["number"], "same_id_once");
    let digest = json!({"deliver": {"digest": {"count": 2, "wait_ms": 1000}}});
    assert_eq!(world.call_back(&token, &event("b", digest)).await.status, 200);
    let bad = world.call_back(&token, &event(&"x".repeat(129), json!({}))).await;
    assert_eq!((bad.status, &bad.body["field"]), (400, &json!("event_id")), "{}", bad.body);
    assert_eq!(world.call_back(&token, &event("c", json!({"final": true}))).await.status, 200);
    world.call_back(&token, &event("d", json!({}))).await.is_problem(410, "subscription-ended", "last event");
    let other = CallId { number: call.number, index: 1 };
    let token = world.key.token(thread, other, LATER_MS);
    world.call_back(&token, &event("e", json!({}))).await.is_problem(403, "other-call", "the call");
    let records = world.shard.records();
    let proofs = records.iter().filter_map(|record| match &record.arrival.record {
        Record::Event(event) => Some(event.origin.proof),
        _ => None,
    });
    assert!(
        proofs.clone().count() >= 4 && proofs.into_iter().all(|proof| proof == Proof::Capability),
        "origin_is_proven"
    );
}
