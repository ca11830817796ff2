//! Messages, stops and lists: what good requests get, and what bad ones get.

use super::{Answer, World};
use serde_json::json;
use slackwater::gateway::name::address;
use slackwater_core::record::{Content, Proof, Record};
use std::time::Duration;

#[tokio::test]
async fn acknowledged_is_durable() {
    let world = World::new();
    world.shard.hold();
    let request = world.post_request("/v1/threads/demo/messages", r#"{"text":"hello"}"#);
    let pending = tokio::spawn(Answer::of(request));
    while world.shard.held() == 0 {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!pending.is_finished(), "answered before the record was durable");
    assert!(world.shard.records().is_empty());
    world.shard.release();
    let answer = pending.await.unwrap();
    assert_eq!(answer.status, 201, "{}", answer.body);
    assert_eq!(answer.body["number"], 1);
    assert_eq!(answer.body["duplicate"], false);
    assert_eq!(answer.body["thread"], address("demo").unwrap().thread.to_string());
}

#[tokio::test]
async fn what_is_journaled_is_what_was_sent() {
    let world = World::new();
    let body = json!({
        "id": "mail 1",
        "content": [
            {"text": "What is this?"},
            {"image": {"media_type": "image/png", "data": "iVBORw0KGgo="}},
            {"file": {"name": "a.pdf", "media_type": "application/pdf", "data": "JVBERg=="}}
        ],
        "metadata": {"channel": "mail"}
    });
    let answer = world.post("/v1/threads/demo/messages", body.to_string()).await;
    assert_eq!((answer.status, &answer.body["id"]), (201, &json!("mail 1")), "{}", answer.body);
    let records = world.shard.records();
    let Record::Message(message) = &records[0].arrival.record else { panic!("{records:?}") };
    assert_eq!(message.id.0, "mail 1");
    assert_eq!(message.origin.proof, Proof::Loopback);
    assert_eq!(message.thread_name.as_deref(), Some("demo"));
    assert_eq!(message.metadata.as_deref(), Some(r#"{"channel":"mail"}"#));
    assert_eq!(message.content[0], Content::Text("What is this?".into()));
    assert_eq!(message.content.len(), 3);
    assert!(records[0].arrival.at_ms > 1_600_000_000_000);
}

#[tokio::test]
async fn same_id_once() {
    let world = World::new();
    let first = world.post("/v1/threads/demo/messages", r#"{"text":"hello","id":"a"}"#).await;
    assert_eq!(first.status, 201);
    let again = world.post("/v1/threads/demo/messages", r#"{"text":"hello","id":"a"}"#).await;
    assert_eq!((again.status, &again.body["number"], &again.body["duplicate"]), (200, &json!(1), &json!(true)));
    // The header is the same id, quoted or not.
    for key in ["a", "\"a\""] {
        let request = world.post_request("/v1/threads/demo/messages", r#"{"text":"hello"}"#);
        let again = Answer::of(request.header("idempotency-key", key)).await;
        assert_eq!((again.status, &again.body["duplicate"]), (200, &json!(true)), "{key}");
    }
    // Without an id, two messages are two.
    let one = world.post("/v1/threads/demo/messages", r#"{"text":"hello"}"#).await;
    let two = world.post("/v1/threads/demo/messages", r#"{"text":"hello"}"#).await;
    assert_eq!((one.status, two.status), (201, 201));
    assert_ne!(one.body["id"], two.body["id"]);
    assert_eq!(world.shard.outputs(address("demo").unwrap().thread).len(), 3);
}

#[tokio::test]
async fn a_bad_message_is_refused_by_field_and_not_journaled() {
    let world = World::new();
    let long = format!(r#"{{"text":"x","id":"{}"}}"#, "i".repeat(129));
    for (body, kind, said) in [
        ("", "malformed-json", "EOF"),
        ("{", "malformed-json", "line 1"),
        (r#"{"text":"a"} x"#, "malformed-json", "trailing"),
        ("[]", "bad-field", "body has to be an object; it is a list"),
        ("{}", "bad-field", "text or content"),
        (r#"{"text":5}"#, "bad-field", "text has to be a string; it is a number"),
        (r#"{"text":""}"#, "bad-field", "text is empty"),
        (r#"{"text":" \n "}"#, "bad-field", "text is empty"),
        (r#"{"text":"a","content":[{"text":"b"}]}"#, "bad-field", "not both"),
        (r#"{"text":"a","txet":"b"}"#, "bad-field", r#"\"txet\" is no field"#),
        (r#"{"content":"a"}"#, "bad-field", "content has to be a list; it is a string"),
        (r#"{"content":[]}"#, "bad-field", "content is empty"),
        (r#"{"content":["a"]}"#, "bad-field", "content[0] has to be an object"),
        (r#"{"content":[{"text":"a"},{}]}"#, "bad-field", "content[1]"),
        (r#"{"content":[{"text":"a","image":{}}]}"#, "bad-field", "exactly one of"),
        (r#"{"content":[{"video":"a"}]}"#, "bad-field", "content[0].video"),
        (r#"{"content":[{"image":{"data":"QQ=="}}]}"#, "bad-field", "content[0].image.media_type is missing"),
        (r#"{"content":[{"image":{"media_type":"text/html","data":"QQ=="}}]}"#, "bad-field", "begins with image/"),
        (r#"{"content":[{"image":{"media_type":"image/","data":"QQ=="}}]}"#, "bad-field", "image/png"),
        (r#"{"content":[{"image":{"media_type":"image/png","data":"?"}}]}"#, "bad-field", "not base64"),
        (r#"{"content":[{"image":{"media_type":"image/png","data":""}}]}"#, "bad-field", "data is empty"),
        (r#"{"content":[{"file":{"media_type":"a/b","data":"QQ=="}}]}"#, "bad-field", "content[0].file.name"),
        (r#"{"text":"a","id":7}"#, "bad-field", "id has to be a string"),
        (r#"{"text":"a","id":""}"#, "bad-field", "1 to 128"),
        (r#"{"text":"a","id":"x\ny"}"#, "bad-field", "control"),
        (&long, "bad-field", "1 to 128"),
        (r#"{"text":"a","metadata":"m"}"#, "bad-field", "metadata has to be an object"),
    ] {
        let answer = world.post("/v1/threads/demo/messages", body.to_owned()).await;
        answer.is_problem(400, kind, said);
        assert_eq!(answer.body.get("field").is_some(), kind == "bad-field", "{body}");
    }
    let request = world.post_request("/v1/threads/demo/messages", r#"{"text":"a","id":"x"}"#);
    Answer::of(request.header("idempotency-key", "y")).await.is_problem(400, "bad-field", "differ");
    assert!(world.shard.records().is_empty());
    // And the gateway goes on.
    world.say("demo", "hello").await;
}

#[tokio::test]
async fn bad_addresses_and_methods_and_types_are_problems() {
    let world = World::new();
    for thread in ["a%20b", "a:b", &"x".repeat(65), "%C3%A4", "%ff", "..."] {
        let answer = world.post(&format!("/v1/threads/{thread}/messages"), r#"{"text":"a"}"#).await;
        answer.is_problem(400, "bad-field", "thread");
        assert_eq!(answer.body["field"], "thread");
    }
    world.get("/v2").await.is_problem(404, "not-found", "/v2");
    world.get("/v1/threads/a/b/c").await.is_problem(404, "not-found", "GET /");
    let deleted = world.client.delete(format!("{}/v1/threads/demo", world.url));
    let answer = deleted.send().await.unwrap();
    assert!(answer.headers()["allow"].to_str().unwrap().contains("GET"));
    Answer::of(world.client.delete(format!("{}/v1/threads/demo", world.url))).await.is_problem(
        405,
        "method-not-allowed",
        "DELETE",
    );
    for media_type in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        let request = world.client.post(format!("{}/v1/threads/demo/messages", world.url));
        let request = request.header("content-type", media_type).body(r#"{"text":"a"}"#);
        Answer::of(request).await.is_problem(415, "unsupported-media-type", "application/json");
    }
    let request = world.client.post(format!("{}/v1/threads/demo/messages", world.url)).body(r#"{"text":"a"}"#);
    Answer::of(request).await.is_problem(415, "unsupported-media-type", "application/json");
    assert!(world.shard.records().is_empty());
}

#[tokio::test]
async fn a_thread_says_what_it_waits_for() {
    let world = World::new();
    world.get("/v1/threads/demo").await.is_problem(404, "unknown-thread", "first message");
    let thread = world.say("demo", "hello").await;
    let standing = world.get("/v1/threads/demo").await.body;
    assert_eq!(standing["state"], "thinking");
    assert_eq!(standing["waits"], json!([{"on": "model", "seen": 1}]));
    assert_eq!(standing["name"], "demo");
    let call = world.shard.call(thread, "build", r#"{"target":"all"}"#);
    let by_id = world.get(&format!("/v1/threads/{thread}")).await.body;
    let since = json!(1_790_000_000_000_u64);
    assert_eq!(
        by_id["waits"],
        json!([{"on": "call", "call": call.to_string(), "name": "build", "accepted": false, "since_ms": since, "since": "2026-09-21T14:13:20Z", "due_ms": null, "due": null}])
    );
    assert_eq!(by_id["state"], "working");
}

#[tokio::test]
async fn a_stop_is_durable_and_once() {
    let world = World::new();
    world.post("/v1/threads/demo/stop", "").await.is_problem(404, "unknown-thread", "");
    let thread = world.say("demo", "hello").await;
    let call = world.shard.call(thread, "build", "{}");
    let stopped = world.post("/v1/threads/demo/stop", r#"{"id":"s"}"#).await;
    assert_eq!((stopped.status, &stopped.body["id"]), (201, &json!("s")), "{}", stopped.body);
    let again = world.post("/v1/threads/demo/stop", r#"{"id":"s"}"#).await;
    assert_eq!((again.status, &again.body["number"]), (200, &stopped.body["number"]));
    // Without a body, and then without its type.
    let bare = Answer::of(world.client.post(format!("{}/v1/threads/demo/stop", world.url))).await;
    assert_eq!(bare.status, 201, "{}", bare.body);
    world.post("/v1/threads/demo/stop", r#"{"reason":"x"}"#).await.is_problem(400, "bad-field", "reason");
    let untyped = world.client.post(format!("{}/v1/threads/demo/stop", world.url)).body("{}");
    Answer::of(untyped).await.is_problem(415, "unsupported-media-type", "");
    assert!(world.get("/v1/threads/demo").await.body["waits"][0]["on"] == "input", "{call} was cancelled");
}

#[tokio::test]
async fn threads_are_listed_by_page_without_gap_or_repeat() {
    let world = World::new();
    let mut made = Vec::new();
    for index in 0..25 {
        made.push(world.say(&format!("thread-{index}"), "hello").await.to_string());
    }
    made.sort();
    for limit in [1, 7, 24, 25, 26, 100] {
        let (mut found, mut after) = (Vec::new(), String::new());
        loop {
            let page = world.get(&format!("/v1/threads?limit={limit}{after}")).await.body;
            let threads = page["threads"].as_array().unwrap();
            assert!(threads.len() <= limit && !threads.is_empty());
            found.extend(threads.iter().map(|standing| standing["thread"].as_str().unwrap().to_owned()));
            let Some(next) = page["next"].as_str() else { break };
            after = format!("&after={next}");
        }
        assert_eq!(found, made, "limit {limit}");
    }
    assert_eq!(world.get("/v1/threads").await.body["threads"].as_array().unwrap().len(), 25);
    for (query, said) in [
        ("limit=0", "1 to 100"),
        ("limit=101", "1 to 100"),
        ("limit=x", "1 to 100"),
        ("after=demo", "UUID"),
        ("page=2", "page"),
        ("limit=1&limit=2", "twice"),
    ] {
        world.get(&format!("/v1/threads?{query}")).await.is_problem(400, "bad-field", said);
    }
}
