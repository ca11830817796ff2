//! A gateway and two shards as processes that hydro_deploy places: the conversation of the demo runs there, too.
//!
//! In: messages over HTTP, results by callback. Out: answers. Always: threads are spread over the shards; what was
//! acknowledged and what waits is there again when the cluster is, and the old callback addresses are good.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/kills.rs"]
mod kills;

use kills::client::Client;
use kills::rap_server::RapServer;
use kills::server_process::{Server, Settings};
use kills::{Patience, records, within};
use std::time::Duration;

const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "look" }
say = "I look."
call = [{ tool = "look", arguments = { about = "{message}" } }]

[[rule]]
when = { result_of = "look" }
say = "The result: {result}"

[[rule]]
say = "You said: {message}"
"#;

const THREADS: usize = 8;

/// A first launch compiles the locations; that is not what is tested.
const LAUNCHES_MAX: usize = 20;

async fn launch(settings: &Settings, client: &Client) -> Server {
    let mut server = Server::start_command(settings, &mut settings.cluster_command(2));
    for _ in 0..LAUNCHES_MAX {
        let patience = Patience::until("a part of the launch is over");
        for _ in 0..1_000 {
            if client.readiness().await.is_some_and(|(status, _)| status == 200) {
                return server;
            }
            assert!(server.is_running(), "the cluster has ended:\n{}", settings.log());
            patience.again().await;
        }
    }
    panic!("the cluster is not ready:\n{}", settings.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_runs_through_gateway_and_shards() {
    let place = tempfile::tempdir().unwrap();
    // Work is answered only when this test says so.
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), u64::from(std::process::id()), SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let server = launch(&settings, &client).await;

    // Every thread makes a call and waits for it; nothing of them is in memory.
    let names: Vec<String> = (0..THREADS).map(|n| format!("thread-{n}")).collect();
    for name in &names {
        assert_eq!(client.post(name, "first", &format!("look at {name}")).await, 1, "acknowledged_is_durable");
    }
    let work = tools.asked(THREADS, 1).await;
    assert_eq!(work.len(), THREADS);
    for name in &names {
        client.waits_on(name, |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    }
    within("all threads rest", async || (client.awake().await == Some(0)).then_some(())).await;
    assert_eq!(client.post(&names[0], "first", &format!("look at {}", names[0])).await, 1, "same_id_once");

    // One result comes while the cluster runs, the rest after all its processes have ended and started again.
    let ids: Vec<&String> = work.keys().collect();
    assert_eq!(tools.answer(ids[0]).await, 200);
    let (status, _) = server.terminate();
    assert!(status.success(), "{}", settings.log());
    assert!(client.readiness().await.is_none(), "Ctrl-C leaves nothing behind");
    let server = launch(&settings, &client).await;
    for id in &ids[1..] {
        assert_eq!(tools.answer(id).await, 200, "the public callback address survives restarts");
    }
    for name in &names {
        client.idle(name).await;
        let number = client.post(name, "second", "and thanks").await;
        assert!(number > 1);
        client.idle(name).await;
    }
    assert_eq!(
        tools.work().values().map(|work| work.asked).sum::<usize>(),
        THREADS,
        "an accepted call is not repeated"
    );

    let (status, took) = server.terminate();
    assert!(status.success(), "{}", settings.log());
    assert!(took < Duration::from_secs(10), "{took:?}");

    // Both shards have their part, and together they have everything once.
    let placement = slackwater::placement::Placement::even(1, 2, slackwater::placement::VIRTUAL_SHARDS);
    let mut found = 0;
    for shard in 0..2 {
        let threads = records::read(&slackwater::host::directory::shard_directory(&settings.directory, shard)).await;
        assert!(!threads.is_empty(), "shard {shard} has no threads");
        for (id, folded) in &threads {
            assert_eq!(placement.shard_of(*id), shard);
            let said = folded.turns();
            assert_eq!(said.len(), 3, "{said:?}");
            assert_eq!(said[0], "I look.");
            assert!(said[1].starts_with("The result: seen: look at thread-"), "{said:?}");
            assert_eq!(said[2], "You said: and thanks");
        }
        found += threads.len();
    }
    assert_eq!(found, THREADS);
}
