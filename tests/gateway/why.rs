//! What a thread waits for, what its model sees, and its records: asked of the gateway.

use super::World;
use super::shard::text_result;
use serde_json::{Value, json};
use slackwater_core::id::PostId;
use slackwater_core::record::{Birth, Cause, Content, Post, PostBody, Record, SubscriptionEvent};

impl World {
    async fn why(&self, thread: &str) -> Value {
        let answer = self.get(&format!("/v1/threads/{thread}/why")).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.body
    }
}

/// Who can release the only wait, with the name of the tool.
fn released_by(why: &Value) -> Vec<(&str, Option<&str>)> {
    let [wait] = &why["waits"].as_array().unwrap()[..] else { panic!("{why:#}") };
    let by = wait["released_by"].as_array().unwrap();
    by.iter().map(|by| (by["who"].as_str().unwrap(), by["name"].as_str())).collect()
}

#[tokio::test]
async fn each_wait_says_since_when_until_when_and_who_can_release_it() {
    let world = World::new();
    let thread = world.say("demo", "build it").await;

    let why = world.why("demo").await;
    assert_eq!((&why["standing"]["state"], released_by(&why)), (&json!("thinking"), vec![("model", None)]));
    let asked_ms = why["waits"][0]["since_ms"].as_u64().unwrap();
    assert_eq!(asked_ms, world.shard.records()[0].arrival.at_ms, "since the message came");

    let call = world.shard.call(thread, "build", "{}");
    let why = world.why("demo").await;
    assert_eq!(released_by(&why), [("tool", Some("build")), ("person", None)]);
    assert_eq!(why["waits"][0]["since_ms"], 1_790_000_000_000_u64);
    assert_eq!(why["waits"][0]["since"], "2026-09-21T14:13:20Z");
    assert_eq!(why["waits"][0]["deadline_ms"], Value::Null);

    world.shard.result(thread, text_result(call, "green"));
    world.shard.call(thread, "sleep", r#"{"seconds":60}"#);
    let why = world.why("demo").await;
    assert_eq!(released_by(&why), [("timer", None), ("person", None)]);
    assert_eq!(why["waits"][0]["deadline"], "2026-09-21T14:14:20Z");

    world.say("demo", "wake up").await;
    world.shard.turn(thread, vec![]);
    let why = world.why("demo").await;
    assert_eq!((&why["standing"]["state"], released_by(&why)), (&json!("idle"), vec![("person", None)]));
}

#[tokio::test]
async fn subscriptions_children_and_the_parent_are_named_with_what_they_can_do() {
    let world = World::new();
    let thread = world.say("demo", "watch them").await;
    let subscription = world.shard.call(thread, "watch", r#"{"repository":"r"}"#);
    let mut result = text_result(subscription, "watching");
    result.subscription = true;
    world.shard.result(thread, result);
    let spawn = world.shard.call(thread, "spawn_thread", r#"{"instructions":"look at the log","child_of":[]}"#);
    let event = SubscriptionEvent {
        subscription,
        id: slackwater::gateway::Shards::fresh_id(),
        origin: slackwater_core::record::Origin::runtime(),
        content: vec![Content::Text("opened".into())],
        associative: false,
        last: false,
        deliver: None,
    };
    world.shard.happen(thread, Record::Event(event));
    world.shard.turn(thread, vec![]);
    let why = world.why("demo").await;
    let mut who = released_by(&why);
    who.sort_unstable();
    assert_eq!(who, [("child", None), ("child", None), ("person", None), ("subscription", Some("watch"))]);
    let told = &why["subscriptions"][0];
    assert_eq!((&told["name"], &told["handling"]), (&json!("watch"), &json!(1)), "{told}");
    assert_eq!(told["arguments"]["repository"], "r");
    let tasks: Vec<_> = why["children"].as_array().unwrap().iter().map(|child| child["task"].as_str()).collect();
    assert!(tasks.contains(&Some("look at the log")) && tasks.contains(&Some("handles an event of watch")), "{why}");

    // The child itself can be released by its parent, and waits for nothing once it is closed.
    let child = thread.child(spawn);
    let cause = Cause { name: "spawn_thread".into(), provider_id: "p".into(), arguments: "{}".into() };
    let birth = Birth { ancestors: vec![thread], through: 1, fresh: true, spawn: cause, event: None, terms: None };
    let post = |number, body| Record::Post(Post { id: PostId { from: thread, number, index: 0 }, body });
    world.shard.happen(child, post(spawn.number, PostBody::Birth(Box::new(birth))));
    world.shard.turn(child, vec![]);
    let why = world.why(&child.to_string()).await;
    assert_eq!(released_by(&why), [("person", None), ("parent", None)]);
    assert_eq!(why["waits"][0]["released_by"][1]["thread"], thread.to_string());
    world.shard.happen(child, post(spawn.number + 1, PostBody::Close));
    let why = world.why(&child.to_string()).await;
    assert_eq!((&why["standing"]["state"], &why["waits"]), (&json!("closed"), &json!([])));
}

#[tokio::test]
async fn a_view_and_the_records_beneath_it_come_by_page() {
    let world = World::new();
    let thread = world.say("demo", "build it").await;
    let call = world.shard.call(thread, "build", r#"{"target":"all"}"#);
    world.shard.result(thread, text_result(call, "green"));
    world.say("demo", "and now?").await;
    let whole = world.get("/v1/threads/demo/view").await.body;
    let items = whole["items"].as_array().unwrap();
    let roles: Vec<_> = items.iter().map(|item| item["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["user", "assistant", "tool", "user"]);
    assert_eq!(items[1]["calls"][0], json!({"id": "2.0", "name": "build", "arguments": {"target": "all"}}));
    assert_eq!((&items[2]["text"], &items[2]["pending"]), (&json!("green"), &json!(false)));
    assert_eq!((&items[3]["pending"], &whole["next"]), (&json!(true), &Value::Null));
    for (path, field) in [("view", "items"), ("records", "records")] {
        let whole = world.get(&format!("/v1/threads/demo/{path}")).await.body;
        let (mut after, mut seen) = (String::new(), Vec::new());
        loop {
            let page = world.get(&format!("/v1/threads/demo/{path}?limit=3{after}")).await.body;
            seen.extend(page[field].as_array().unwrap().clone());
            match page["next"].as_u64() {
                Some(next) => after = format!("&after={next}"),
                None => break,
            }
        }
        assert_eq!(&Value::Array(seen), &whole[field], "{path}");
    }
    for path in ["why", "view", "records"] {
        world.get(&format!("/v1/threads/nobody/{path}")).await.is_problem(404, "unknown-thread", "");
    }
    world.get("/v1/threads/demo/view?after=x").await.is_problem(400, "bad-field", "the `next` of a page");
    world.get("/v1/threads/demo/records?limit=0").await.is_problem(400, "bad-field", "a number from 1 to 100");
}
