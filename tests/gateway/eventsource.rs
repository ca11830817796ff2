//! A client that was not written here: the stock EventSource of npm reads a stream and resumes it by itself.

use super::World;
use super::peers::peer;
use serde_json::Value;
use slackwater::gateway::Config;
use slackwater_core::port::Part;
use slackwater_core::record::Block;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Where `tests/peers/eventsource.sh` has installed the client.
fn installed() -> PathBuf {
    let client = peer("eventsource/node_modules/eventsource", "eventsource.sh").canonicalize().unwrap();
    client.ancestors().nth(2).unwrap().to_owned()
}

struct Client {
    _process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Client {
    fn start(url: &str) -> Self {
        let mut process = Command::new("node")
            .arg(repository().join("tests/peers/eventsource.mjs"))
            .args([installed().as_os_str(), url.as_ref()])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("node is missing; install node 20");
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { _process: process, lines }
    }

    async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await;
        let line = line.expect("the client says nothing").unwrap().expect("the client has ended");
        serde_json::from_str(&line).unwrap()
    }

    /// Reads until a line is as wanted, and gathers the ids of the numbered events before it.
    async fn until(&mut self, ids: &mut Vec<String>, wanted: impl Fn(&Value, &[String]) -> bool) {
        loop {
            let line = self.line().await;
            assert_ne!(line["closed"], true, "the client has given up: {line}");
            // What has no id of its own is told with the last one.
            let ephemeral = matches!(line["kind"].as_str(), Some("started" | "chunk" | "void"));
            if let (Some(id), false) = (line["id"].as_str(), ephemeral) {
                assert_eq!(line["data"]["id"], id);
                ids.push(id.to_owned());
            }
            if wanted(&line, ids) {
                return;
            }
        }
    }
}

#[tokio::test]
async fn a_stock_client_reads_a_stream_and_resumes_it_after_a_restart() {
    let mut world = World::new();
    let thread = world.say("demo", "hello").await;
    let mut client = Client::start(&format!("{}/v1/threads/demo/events", world.url));
    let mut ids = Vec::new();
    client.until(&mut ids, |line, _| line["kind"] == "message").await;
    world.shard.chunk(thread, 1, Part::Started);
    world.shard.chunk(thread, 1, Part::Text("two\nlines".into()));
    client.until(&mut ids, |line, _| line["kind"] == "chunk" && line["data"]["text"] == "two\nlines").await;
    world.shard.turn(thread, vec![Block::Text("two\nlines".into())]);
    client.until(&mut ids, |line, _| line["kind"] == "waiting").await;
    for restart in 0..3 {
        let address = world.gateway.address();
        world.gateway.shutdown().await;
        client.until(&mut ids, |line, _| line.get("error").is_some()).await;
        // It goes on while nobody can listen.
        let call = world.shard.call(thread, "build", "{}");
        world.shard.result(thread, super::shard::text_result(call, &format!("result {restart}")));
        world.shard.turn(thread, vec![Block::Text(format!("turn {restart}"))]);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let World { shard, key, .. } = world;
        world = World::again(Config::default(), shard, key, address);
        client.until(&mut ids, |line, _| line["open"] == true).await;
        world.say("demo", "hello again").await;
        world.shard.turn(thread, vec![Block::Text(format!("live {restart}"))]);
        let all: Vec<String> = world.shard.outputs(thread).iter().map(|output| output.id.to_string()).collect();
        client.until(&mut ids, |_, ids| ids.len() >= all.len()).await;
        assert_eq!(ids, all, "restart {restart}");
    }
}
