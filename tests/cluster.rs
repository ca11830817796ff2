//! Cells of gateways and shards as processes that hydro_deploy places.
//!
//! In: messages over HTTP, results by callback. Out: answers. Always: threads are spread over the shards; what was
//! acknowledged and what waits is there again when the cluster is, and the old callback addresses are good.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on should stop")]

#[path = "support/behaviour.rs"]
mod behaviour;
#[path = "cluster/clouds.rs"]
mod clouds;
#[path = "cluster/demo.rs"]
mod demo;
#[path = "cluster/hosts.rs"]
mod hosts;
#[path = "support/kills.rs"]
mod kills;
#[path = "cluster/moves.rs"]
mod moves;
#[path = "support/peers.rs"]
mod peers;
#[path = "cluster/providers.rs"]
mod providers;
#[path = "cluster/refused.rs"]
mod refused;
#[path = "cluster/storm.rs"]
mod storm;
#[path = "cluster/toolhosts.rs"]
mod toolhosts;

// The behaviour asks as the tests of kills do.
use kills::client::Client;
use kills::rap_server::RapServer;
use kills::server_process::{Server, Settings};
use kills::{Patience, records, within};
use kills::{client, rap_server};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const THREADS: usize = 9;
const SHARDS: u32 = 3;

/// `slackwater cluster` with its working directory.
fn cluster_command(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    command.arg("cluster").args(arguments).current_dir(place).stdin(Stdio::null());
    command
}

/// Runs it to its end; says its exit status and its words.
fn cluster(place: &Path, arguments: &[&str]) -> (i32, String) {
    let output = cluster_command(place, arguments).output().unwrap();
    let words = String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap();
    (output.status.code().unwrap(), words)
}

/// Starts it and waits until it has come so far.
async fn begin(place: &Path, arguments: &[&str], so_far: impl Fn() -> bool) -> Child {
    let mut command = cluster_command(place, arguments);
    let mut begun = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    for _ in 0..30_000 {
        if so_far() {
            return begun;
        }
        assert!(begun.try_wait().unwrap().is_none(), "it was done too soon");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("it comes so far within half a minute");
}

/// The processes of a cluster, as its supervisor names them.
fn processes(settings: &Settings) -> Vec<u32> {
    let state = slackwater::host::plan::running(&settings.directory).unwrap().unwrap();
    let locations = state.cells.iter().flat_map(|cell| &cell.processes).map(|process| process.process);
    locations.chain([state.supervisor]).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_embedded_host_behaves() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let choice = u64::from(std::process::id()) + 3_000;
    let settings = Settings::new(place.path(), choice, behaviour::SCRIPT, Some(tools.url()));
    let mut server = Server::start(&settings);
    server.ready().await;
    behaviour::check(&Client::new(settings.url("")), &tools, "embedded").await;
    assert!(server.terminate().0.success(), "{}", settings.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_runs_through_gateway_and_shards() {
    let place = tempfile::tempdir().unwrap();
    // Work is answered only when this test says so.
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), u64::from(std::process::id()), behaviour::SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let start =
        async || Server::launch(&settings, &mut settings.cells_command(1, SHARDS), std::slice::from_ref(&client)).await;
    let server = start().await;
    behaviour::check(&client, &tools, "cluster").await;
    let before = tools.work().len();

    // Every thread makes a call and waits for it; nothing of them is in memory.
    let names: Vec<String> = (0..THREADS).map(|n| format!("thread-{n}")).collect();
    for name in &names {
        assert_eq!(client.post(name, "first", &format!("look at {name}")).await, 1, "acknowledged_is_durable");
    }
    let mut work = tools.asked(before + THREADS, 1).await;
    work.retain(|_, work| work.answered.is_none());
    assert_eq!(work.len(), THREADS);
    for name in &names {
        client.waits_on(name, |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    }
    // What is asked of the journals comes through the network too.
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    for (path, says) in
        [("why", "\"who\":\"tool\""), ("view", "\"role\":\"assistant\""), ("records", "\"kind\":\"accepted\"")]
    {
        let answer = http.get(settings.url(&format!("/v1/threads/{}/{path}", names[0]))).send().await.unwrap();
        let (status, body) = (answer.status(), answer.text().await.unwrap());
        assert!(status == 200 && body.contains(says), "{path}: {body}");
    }
    within("all threads rest", async || (client.awake().await == Some(0)).then_some(())).await;
    assert_eq!(client.post(&names[0], "first", &format!("look at {}", names[0])).await, 1, "same_id_once");

    // One result comes while the cluster runs, the rest after all its processes have ended and started again.
    let ids: Vec<&String> = work.keys().collect();
    assert_eq!(tools.answer(ids[0]).await, 200);
    let processes = processes(&settings);
    assert_eq!(processes.len(), SHARDS as usize + 3, "a gateway, the shards, a toolhost and the supervisor");
    let (status, took) = server.terminate();
    assert!(status.success(), "{}", settings.log());
    assert!(took < Duration::from_secs(20), "{took:?}");
    for process in processes {
        assert!(!std::path::Path::new(&format!("/proc/{process}")).exists(), "Ctrl-C leaves nothing behind");
    }
    let server = start().await;
    for id in &ids[1..] {
        assert_eq!(tools.answer(id).await, 200, "the public callback address survives restarts");
    }
    for name in &names {
        client.idle(name).await;
        let number = client.post(name, "second", "and thanks").await;
        assert!(number > 1);
        client.idle(name).await;
    }
    let asked: usize = work.keys().map(|id| tools.work()[id].asked).sum();
    assert_eq!(asked, THREADS, "an accepted call is not repeated");
    assert!(server.terminate().0.success(), "{}", settings.log());

    // Every shard has its part, and together they have everything once.
    let placement = slackwater::placement::Placement::even(1, SHARDS, slackwater::placement::VIRTUAL_SHARDS);
    let mut found = 0;
    for shard in 0..SHARDS {
        let directory = slackwater::host::directory::shard_directory(&settings.directory, shard);
        let threads = records::read(&directory).await;
        assert!(!threads.is_empty(), "shard {shard} has no threads");
        for (id, folded) in &threads {
            assert_eq!(placement.shard_of(*id), shard);
            let said = folded.turns();
            if said.last().is_some_and(|last| last == "You said: and thanks") {
                found += 1;
                assert_eq!(said.len(), 3, "{said:?}");
                assert_eq!(said[0], "I look.");
                assert!(said[1].starts_with("The result: seen: look at thread-"), "{said:?}");
            }
        }
    }
    assert_eq!(found, THREADS);
}
