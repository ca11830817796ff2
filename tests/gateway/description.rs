//! The description: `openapi.json` says what there is, and what is answered is as it says.

use super::shard::text_result;
use super::{Answer, World};
use futures::StreamExt;
use serde_json::{Value, json};
use slackwater::gateway::openapi::OPENAPI;
use slackwater_core::id::{CallId, PostId, ThreadId};
use slackwater_core::port::Part;
use slackwater_core::record::{
    Asks, Birth, Block, Cause, Content, Origin, Post, PostBody, Question, Receipt, Record, Undelivered, Usage,
    ViewUpdate,
};
use sse_stream::SseStream;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

fn description() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Checks a value against a schema of the description.
#[track_caller]
fn check(schema: &Value, value: &Value) {
    let mut root = schema.clone();
    root["components"] = description()["components"].clone();
    let validator = jsonschema::draft202012::new(&root).unwrap();
    let errors: Vec<String> =
        validator.iter_errors(value).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{value:#}");
}

/// What an operation says it answers with a status.
fn response_schema(operation: &Value, status: u16) -> Value {
    let responses = &operation["responses"];
    let response = responses.get(status.to_string()).unwrap_or(&responses["default"]);
    let response = match response.get("$ref") {
        Some(_) => description()["components"]["responses"]["Problem"].clone(),
        None => response.clone(),
    };
    let (_, content) = response["content"].as_object().unwrap().iter().next().unwrap();
    content["schema"].clone()
}

/// A thread to which everything has happened that clients can see, but for its last prompt and call, which are open.
async fn eventful(world: &World, name: &str) -> (ThreadId, CallId, ThreadId) {
    let shard = &world.shard;
    let thread = world.say(name, "build it").await;
    let call = |name: &str, arguments: &str| Block::Call {
        provider_id: "p".into(),
        name: name.into(),
        arguments: arguments.into(),
    };
    let reasoning = Block::Reasoning { text: "Two of them.".into(), sealed: None };
    let sleep = call("sleep", r#"{"seconds":60}"#);
    shard.turn(
        thread,
        vec![reasoning, Block::Text("Yes.".into()), call("build", "{}"), call("test", "not json"), sleep],
    );
    let first = CallId { number: shard.last(thread), index: 0 };
    let mut result = text_result(first, "green");
    result.content.push(Content::Image { media_type: "image/png".into(), data: "iVBORw0KGgo=".into() });
    result.display = Some(r#"[{"type":"text","content":"ok"}]"#.into());
    shard.result(thread, result);
    // A message interrupts the second call, whose result then comes as an event.
    world.say(name, "never mind").await;
    shard.result(thread, text_result(CallId { index: 1, ..first }, "passed"));
    shard.fail(thread, "The provider refuses the key.");
    world.say(name, "again").await;
    shard.turn(thread, vec![call("sleep_until_event_or_input", "{}")]);
    let stopped = world.post(&format!("/v1/threads/{name}/stop"), "{}").await;
    assert_eq!(stopped.status, 201, "{}", stopped.body);
    world.say(name, "and again").await;
    // A child reports, and then there is nobody to take a message.
    let spawn = shard.call(thread, "spawn_thread", r#"{"instructions":"look","child_of":[]}"#);
    let child = thread.child(spawn);
    let post = |from, number, body| Record::Post(Post { id: PostId { from, number, index: 0 }, body });
    shard.happen(thread, post(child, 3, PostBody::Report { branch: child, text: "found".into() }));
    shard.call(thread, "send_message_to_child", &format!(r#"{{"thread_id":"{child}","message":"more"}}"#));
    let sent = PostId { from: thread, number: shard.last(thread), index: 0 };
    shard.happen(thread, Record::Delivered(Receipt { post: sent, refused: Some(Undelivered::Closed) }));
    // The child itself: born and closed.
    let cause = Cause { name: "spawn_thread".into(), provider_id: "p".into(), arguments: "{}".into() };
    let birth = Birth { ancestors: vec![thread], through: 1, fresh: true, spawn: cause, event: None, terms: None };
    shard.happen(child, post(thread, spawn.number, PostBody::Birth(Box::new(birth))));
    shard.happen(child, post(thread, spawn.number + 1, PostBody::Close));
    // A person is asked twice; the second question, below, stays open.
    let asked = |call| {
        let asks = Asks::Approval { reason: "it is destructive".into() };
        Record::Asked(Question { call, origin: Origin::runtime(), asks })
    };
    let denied = shard.call(thread, "deploy", "{}");
    shard.happen(thread, asked(denied));
    let no = json!({"question": shard.last(thread), "approve": false, "reason": "not now"});
    assert_eq!(world.post(&format!("/v1/threads/{name}/answers"), no.to_string()).await.status, 201);
    shard.turn(thread, vec![Block::Text("I see.".into())]);
    // A summary is made, and the next one is not.
    world.say(name, &"long ".repeat(200)).await;
    shard.turn(thread, vec![Block::Text("I see.".into())]);
    for failed in [false, true] {
        let answer = world.post(&format!("/v1/threads/{name}/compact"), "{}").await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        let number = shard.last(thread);
        let child = thread.child(CallId { number, index: u16::MAX });
        let (covers, text, why) = (number, "They talked.".to_owned(), "no".to_owned());
        let body = match failed {
            false => PostBody::Summary { covers, text, usage: Usage::default() },
            true => PostBody::SummaryFailed { why, overflow: false },
        };
        shard.happen(thread, post(child, number, body));
        world.say(name, &format!("and more {failed}")).await;
        shard.turn(thread, vec![Block::Text("I see.".into())]);
    }
    world.say(name, "last").await;
    shard.turn(thread, vec![call("build", ""), call("deploy", r#"{"version":"1.2"}"#)]);
    let open = CallId { number: shard.last(thread), index: 0 };
    shard.happen(thread, Record::Accepted(open));
    shard.happen(thread, Record::Deadline { call: open, due_ms: 1_900_000_000_000 });
    let (view_type, content) = ("diff".into(), r#"{"path":"a"}"#.into());
    shard.happen(thread, Record::View(ViewUpdate { call: open, origin: Origin::runtime(), view_type, content }));
    shard.happen(thread, asked(CallId { index: 1, ..open }));
    (thread, open, child)
}

#[tokio::test]
async fn every_route_is_described_and_everything_described_is_a_route() {
    let world = World::new();
    let index = world.get("/").await.body;
    let routes: BTreeMap<(String, String), String> = index["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| {
            let text = |field: &str| route[field].as_str().unwrap().to_owned();
            ((text("method").to_lowercase(), text("path")), text("summary"))
        })
        .collect();
    let mut described = BTreeMap::new();
    for (path, methods) in description()["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            described.insert((method.clone(), path.clone()), operation["summary"].as_str().unwrap().to_owned());
        }
    }
    assert_eq!(routes, described);
    let served = world.get("/openapi.json").await;
    assert_eq!((served.status, served.body), (200, description()));
    assert_eq!(description()["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[tokio::test]
async fn what_is_answered_is_as_described() {
    let world = World::new();
    let description = description();
    let mut called = 0;
    for (path, methods) in description["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap().iter().filter(|(name, _)| *name != "parameters") {
            if path.ends_with("/events") {
                continue;
            }
            let examples = operation.pointer("/requestBody/content/application~1json/examples");
            let examples = match examples.and_then(Value::as_object) {
                Some(examples) => examples.values().map(|example| Some(example["value"].clone())).collect(),
                None => vec![None],
            };
            for example in examples {
                called += 1;
                let (thread, call, _) = eventful(&world, &format!("thread-{called}")).await;
                let token = world.key.token(thread, call, u64::MAX);
                let url = path.replace("{thread}", &thread.to_string()).replace("{token}", &token);
                let request = match example {
                    None => world.client.get(format!("{}{url}", world.url)),
                    Some(body) => {
                        check(&operation["requestBody"]["content"]["application/json"]["schema"], &body);
                        let body = body.to_string();
                        let question = format!(r#""question":{}"#, world.shard.last(thread));
                        let body = body.replace(r#""question":1"#, &question);
                        let body =
                            body.replace("{thread}", &thread.to_string()).replace("{call}", &call.effect_id(thread));
                        world.post_request(&url, body)
                    }
                };
                assert_eq!(
                    method,
                    if request.try_clone().unwrap().build().unwrap().method() == "GET" { "get" } else { "post" }
                );
                let again = request.try_clone().unwrap();
                for answer in [Answer::of(request).await, Answer::of(again).await] {
                    assert!(matches!(answer.status, 200 | 201), "{method} {path}: {}", answer.body);
                    assert_eq!(answer.media_type, "application/json", "{method} {path}");
                    assert!(operation["responses"].get(answer.status.to_string()).is_some(), "{method} {path}");
                    check(&response_schema(operation, answer.status), &answer.body);
                }
            }
        }
    }
    assert_eq!(called, 21, "every operation with every example, but for the stream");
}

#[tokio::test]
async fn problems_are_as_described() {
    let world = World::new();
    let thread = world.say("demo", "hello").await;
    let token = world.key.token(thread, CallId { number: 2, index: 0 }, u64::MAX);
    for (method, path, body) in [
        ("post", "/v1/threads/{thread}/messages", r#"{"text":""}"#),
        ("post", "/v1/threads/{thread}/stop", "["),
        ("post", "/v1/threads/{thread}/answers", r#"{"question":1,"approve":true}"#),
        ("post", "/v1/threads/{thread}/compact", r#"{"why":"x"}"#),
        ("post", "/v1/callbacks/{token}", "{}"),
        ("get", "/v1/threads/{thread}/events", "?after=x"),
        ("get", "/v1/threads", "?limit=0"),
        ("get", "/v1/threads/{thread}", "-"),
    ] {
        let url = path.replace("{thread}", "demo").replace("{token}", &token);
        let answer = match method {
            "get" => world.get(&format!("{url}{body}")).await,
            _ => world.post(&url, body).await,
        };
        assert!(answer.status >= 400, "{path}: {}", answer.body);
        assert_eq!(answer.media_type, "application/problem+json");
        check(&response_schema(&description()["paths"][path][method], answer.status), &answer.body);
    }
    world.gateway.set_ready(false);
    let answer = world.get("/ready").await;
    assert_eq!(answer.status, 503);
    check(&response_schema(&description()["paths"]["/ready"]["get"], 503), &answer.body);
}

#[tokio::test]
async fn events_are_as_described() {
    let world = World::new();
    let (thread, _, child) = eventful(&world, "demo").await;
    let schemas = description()["components"]["schemas"]["Event"]["properties"].clone();
    let mut kinds: BTreeSet<&str> = schemas.as_object().unwrap().keys().map(String::as_str).collect();
    let follow = async |name: &str| {
        let response = world.client.get(format!("{}/v1/threads/{name}/events", world.url)).send().await.unwrap();
        SseStream::from_bytes_stream(response.bytes_stream())
    };
    let mut stream = futures::stream::select(follow("demo").await, follow(&child.to_string()).await);
    let last = world.shard.last(thread);
    for part in [Part::Started, Part::Text("a\nb".into()), Part::Reasoning("r".into()), Part::Void] {
        world.shard.chunk(thread, last, part);
    }
    let mut seen = Vec::new();
    while !kinds.is_empty() {
        let event = tokio::time::timeout(Duration::from_secs(10), stream.next()).await;
        let event = event.unwrap_or_else(|_| panic!("no event of the kinds {kinds:?}")).unwrap().unwrap();
        let (Some(kind), Some(data)) = (event.event, event.data) else { continue };
        let data: Value = serde_json::from_str(&data).unwrap();
        check(&schemas[&kind], &data);
        let numbered = !matches!(kind.as_str(), "started" | "chunk" | "void");
        assert_eq!(event.id.is_some(), numbered, "{kind}");
        if numbered {
            assert_eq!(data["id"], event.id.unwrap());
        }
        kinds.remove(kind.as_str());
        seen.push((kind, data));
    }
    let first = |kind: &str| &seen.iter().find(|(found, _)| found == kind).unwrap().1;
    let turn = first("turn");
    assert_eq!((&turn["text"], &turn["reasoning"]), (&json!("Yes."), &json!("Two of them.")));
    assert_eq!(turn["calls"][0], json!({"id": "2.0", "name": "build", "arguments": {}}));
    assert_eq!(turn["calls"][1]["arguments"], "not json");
    assert_eq!(first("result")["display"][0]["type"], "text");
    assert_eq!((&first("event")["name"], &first("event")["text"]), (&json!("test"), &json!("passed")));
    assert_eq!(first("chunk")["text"], "a\nb");
    assert_eq!((&first("question")["kind"], &first("question")["name"]), (&json!("approval"), &json!("deploy")));
    assert_eq!((&first("answer")["answer"], &first("answer")["reason"]), (&json!("deny"), &json!("not now")));
    assert_eq!(first("view")["content"], json!({"path": "a"}));
}
