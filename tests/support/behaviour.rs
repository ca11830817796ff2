//! What every host does: the same questions, asked over HTTP.
//!
//! In: a runtime that is ready, with the script and the tool server of this file. Out: nothing, or the first thing that is not as it
//! should be. Always: a thread's name begins with the given word, so that it can be asked again and of several gateways.

use crate::client::{Client, Seen};
use crate::rap_server::RapServer;
use crate::within;
use serde_json::Value;
use std::sync::{Arc, Mutex};

pub const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "look" }
say = "I look."
call = [{ tool = "look", arguments = { about = "{message}" } }]

[[rule]]
when = { result_of = "look" }
say = "The result: {result}"

[[rule]]
when = { message_contains = "sleep" }
call = [{ tool = "sleep", arguments = { seconds = 1 } }]

[[rule]]
when = { result_of = "sleep" }
say = "I slept."

[[rule]]
when = { message_contains = "delegate" }
call = [{ tool = "spawn_thread", arguments = { instructions = "a part", child_of = [] } }]

[[rule]]
when = { result_of = "spawn_thread" }
say = "Somebody works on it."

[[rule]]
say = "You said: {message}"
"#;

/// All of it. Work of the tool server is answered only when this says so.
pub async fn check(client: &Client, tools: &RapServer, word: &str) {
    a_message_is_answered_once(client, &format!("{word}-once")).await;
    a_call_waits_for_its_result(client, tools, &format!("{word}-call")).await;
    a_timer_wakes_its_thread(client, &format!("{word}-timer")).await;
    a_child_is_born(client, &format!("{word}-tree")).await;
    a_stop_is_heard(client, tools, &format!("{word}-stop")).await;
    what_is_not_there_is_told(client, word).await;
}

async fn a_message_is_answered_once(client: &Client, name: &str) {
    let number = client.post(name, "one", "hello").await;
    client.idle(name).await;
    assert_eq!(client.post(name, "one", "hello").await, number, "same_id_once");
    let seen = follow(client, name, "You said: hello").await;
    let turns = seen.iter().filter(|(_, kind, _)| kind == "turn").count();
    assert_eq!(turns, 1, "{seen:?}");
}

async fn a_call_waits_for_its_result(client: &Client, tools: &RapServer, name: &str) {
    let text = format!("look at {name}");
    client.post(name, "one", &text).await;
    client.waits_on(name, |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    let id = work_about(tools, &text).await;
    assert_eq!(tools.answer(&id).await, 200);
    assert_eq!(tools.answer(&id).await, 200, "a result that comes twice is taken once");
    follow(client, name, &format!("The result: seen: {text}")).await;
    client.idle(name).await;
}

async fn a_timer_wakes_its_thread(client: &Client, name: &str) {
    client.post(name, "one", "sleep a little").await;
    follow(client, name, "I slept.").await;
    client.idle(name).await;
}

async fn a_child_is_born(client: &Client, name: &str) {
    client.post(name, "one", "delegate this").await;
    follow(client, name, "Somebody works on it.").await;
    client.idle(name).await;
    let parent = client.standing(name).await.unwrap();
    let parent = parent["thread"].as_str().unwrap();
    // The first half of a thread's name is its tree's.
    within("the child is listed", async || {
        let all = client.list().await?;
        let trees = all.iter().filter_map(|thread| thread["thread"].as_str());
        let children = trees.filter(|thread| thread[..18] == parent[..18] && *thread != parent).count();
        (children == 1).then_some(())
    })
    .await;
}

async fn a_stop_is_heard(client: &Client, tools: &RapServer, name: &str) {
    let text = format!("look at {name}");
    client.post(name, "one", &text).await;
    client.waits_on(name, |wait| wait["on"] == "call").await;
    assert_eq!(client.stop(name).await, 201);
    within("the thread has stopped", async || {
        let standing = client.standing(name).await?;
        (standing["state"] == "idle").then_some(())
    })
    .await;
    let id = work_about(tools, &text).await;
    assert_eq!(tools.answer(&id).await, 200, "nothing_is_dropped_silently: a late result is an event");
    client.post(name, "two", "hello").await;
    follow(client, name, "The result: Cancelled").await;
    client.idle(name).await;
}

async fn what_is_not_there_is_told(client: &Client, word: &str) {
    let (status, problem) = client.get(&format!("/v1/threads/{word}-nobody")).await;
    assert_eq!((status, &problem["type"]), (404, &Value::from("urn:slackwater:problem:unknown-thread")));
    let (status, _) = client.get("/v1/nothing").await;
    assert_eq!(status, 404);
}

/// The work that was asked for with this argument.
async fn work_about(tools: &RapServer, text: &str) -> String {
    within("the tool server is asked", async || {
        tools.work().into_iter().find(|(_, work)| work.arguments["about"] == text).map(|(id, _)| id)
    })
    .await
}

/// Follows a thread from its beginning until a turn says this.
async fn follow(client: &Client, name: &str, said: &str) -> Vec<Seen> {
    let seen = Arc::<Mutex<Vec<Seen>>>::default();
    let follower = tokio::spawn(client.clone().follow(name.to_owned(), seen.clone()));
    within(said, async || {
        let seen = seen.lock().unwrap();
        seen.iter().any(|(_, _, data)| data.to_string().contains(said)).then_some(())
    })
    .await;
    follower.abort();
    let seen = seen.lock().unwrap().clone();
    let places: Vec<_> = seen.iter().map(|(id, ..)| id).collect();
    assert!(places.iter().enumerate().all(|(at, id)| !places[..at].contains(id)), "no repeat: {places:?}");
    seen
}
