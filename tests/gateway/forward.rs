//! A client enters at any gateway of a cluster: the thread's own one answers.

use super::*;
use slackwater::placement::{Cell, Placement};
use std::time::Duration;

/// Two gateways that know each other, each before a shard of its own, and a name of a thread at each.
struct Cells {
    worlds: [World; 2],
    names: [String; 2],
    key: CapabilityKey,
}

impl Cells {
    fn new(keys: &[&str]) -> Self {
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = [0, 1].map(|at: usize| listeners[at].local_addr().unwrap());
        drop(listeners);
        let placement = Placement::even(2, 1, 256);
        let key = CapabilityKey::random().unwrap();
        let cell = |cell: usize| Cell {
            cluster: "c".to_owned(),
            cell: cell as u32,
            placement: placement.clone(),
            gateways: addresses.iter().map(|address| format!("http://{address}")).collect(),
            listen: addresses[cell],
            toolhosts: 1,
        };
        let worlds = [0, 1].map(|number| {
            let keys = keys.iter().map(|key| (*key).to_owned()).collect();
            let config = Config { cell: Some(cell(number)), keys, ..Config::default() };
            World::again(config, FakeShard::default(), key.clone(), addresses[number])
        });
        let name_at = |cell: u32| {
            let names = (0..).map(|n| format!("thread-{n}"));
            let at = |name: &String| placement.cell_of(gateway::name::address(name).unwrap().thread) == cell;
            names.clone().find(at).unwrap()
        };
        Self { worlds, names: [0, 1].map(name_at), key }
    }
}

#[tokio::test]
async fn a_thread_is_reached_through_any_gateway() {
    let cells = Cells::new(&[]);
    for (entry, world) in cells.worlds.iter().enumerate() {
        for (owner, name) in cells.names.iter().enumerate() {
            let path = format!("/v1/threads/{name}/messages");
            let body = format!(r#"{{"text": "hello", "id": "from-{entry}"}}"#);
            let answer = world.post(&path, body.clone()).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            let again = world.post(&path, body).await;
            assert_eq!((again.status, &again.body["number"]), (200, &answer.body["number"]), "same_id_once");
            let thread: ThreadId = answer.body["thread"].as_str().unwrap().parse().unwrap();
            let is_at =
                |cell: usize| cells.worlds[cell].shard.records().iter().any(|record| record.arrival.thread == thread);
            assert!(is_at(owner) && !is_at(1 - owner), "it is where it belongs, and nowhere else");
            assert_eq!(world.get(&format!("/v1/threads/{name}")).await.status, 200);
        }
        // A path that is encoded is the same thread.
        let encoded = cells.names[1 - entry].replace('t', "%74");
        assert_eq!(world.get(&format!("/v1/threads/{encoded}")).await.status, 200);
        let all = world.get("/v1/threads").await;
        assert_eq!(all.body["threads"].as_array().unwrap().len(), 2, "{}", all.body);
        assert!(all.body["next"].is_null());
        let first = world.get("/v1/threads?limit=1").await;
        let next = first.body["next"].as_str().unwrap();
        let second = world.get(&format!("/v1/threads?limit=1&after={next}")).await;
        assert_ne!(first.body["threads"][0]["thread"], second.body["threads"][0]["thread"]);
        world.get("/v1/threads?limit=x").await.is_problem(400, "bad-field", "limit");
    }
    // A capability that proves nothing proves nothing anywhere.
    let forged = CapabilityKey::random().unwrap().token(
        gateway::name::address(&cells.names[1]).unwrap().thread,
        slackwater_core::id::CallId { number: 2, index: 0 },
        u64::MAX,
    );
    cells.worlds[0].post(&format!("/v1/callbacks/{forged}"), "{}").await.is_problem(403, "forged-token", "");
    let thread = gateway::name::address(&cells.names[1]).unwrap().thread;
    let token = cells.key.token(thread, slackwater_core::id::CallId { number: 9, index: 0 }, u64::MAX);
    let body = format!(r#"{{"type": "tool_result", "group_id": "{thread}", "id": "{thread}.9.0", "text": "x"}}"#);
    cells.worlds[0].post(&format!("/v1/callbacks/{token}"), body).await.is_problem(409, "no-such-call", "");
}

#[tokio::test]
async fn a_stream_passes_through_as_it_comes() {
    let cells = Cells::new(&[]);
    let name = &cells.names[1];
    cells.worlds[0].say(name, "first").await;
    let url = format!("{}/v1/threads/{name}/events", cells.worlds[0].url);
    let mut stream = cells.worlds[0].client.get(url).send().await.unwrap();
    assert_eq!(stream.headers()["content-type"], "text/event-stream");
    let mut text = String::new();
    let mut until = async |said: &str| {
        while !text.contains(said) {
            let piece = tokio::time::timeout(Duration::from_secs(20), stream.chunk()).await.unwrap();
            text.push_str(std::str::from_utf8(&piece.unwrap().unwrap()).unwrap());
        }
    };
    until("first").await;
    cells.worlds[1].say(name, "second").await;
    until("second").await;
}

#[tokio::test]
async fn the_owner_checks_who_sends_and_a_cell_that_is_away_is_told() {
    let cells = Cells::new(&["ann:0123456789abcdef"]);
    let path = format!("/v1/threads/{}/messages", cells.names[1]);
    let send = |key: &str| cells.worlds[0].post_request(&path, r#"{"text": "hello"}"#).bearer_auth(key);
    Answer::of(send("another")).await.is_problem(401, "unauthenticated", "");
    assert_eq!(Answer::of(send("0123456789abcdef")).await.status, 201);
    // A request is passed on once.
    let looped = send("0123456789abcdef").header("x-slackwater-from-cell", "1");
    Answer::of(looped).await.is_problem(503, "unavailable", "the thread is at cell 1");

    cells.worlds[1].gateway.shutdown().await;
    Answer::of(send("0123456789abcdef")).await.is_problem(503, "unavailable", "Cell 1");
    let own = format!("/v1/threads/{}/messages", cells.names[0]);
    let own = cells.worlds[0].post_request(&own, r#"{"text": "hello"}"#).bearer_auth("0123456789abcdef");
    assert_eq!(Answer::of(own).await.status, 201, "nothing of the other cell is needed");
}
