//! What a thread costs that waits: a thread is data.

use crate::kills::client::Client;
use crate::kills::server_process::{Server, Settings};
use crate::kills::within;
use std::time::Duration;

/// How many conversations bring the process to its working size, and how many more are then weighed.
const FIRST: usize = 1_000;
const MORE: usize = 4_000;

/// How many are under way at a time.
const AT_A_TIME: usize = 32;

/// Longer than a shard needs to be silent, when those that rest leave memory, and the allocator to give that back.
const SETTLES: Duration = Duration::from_secs(13);

/// The bound on memory, in bytes a thread: generous, for an index entry is below 80.
const BYTES_MAX: usize = 1024;

/// What a process holds: threads of the system, sockets, memory of its own in bytes.
#[derive(Debug)]
struct Held {
    threads: usize,
    sockets: usize,
    bytes: usize,
}

fn held(process: u32) -> Held {
    let number = |file: &str, field: &str| {
        let text = std::fs::read_to_string(format!("/proc/{process}/{file}")).unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        line.split_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let is_socket = |file: std::path::PathBuf| {
        std::fs::read_link(file).is_ok_and(|target| target.to_string_lossy().starts_with("socket:"))
    };
    Held {
        threads: number("status", "Threads:"),
        sockets: files.filter(|file| is_socket(file.as_ref().unwrap().path())).count(),
        bytes: number("smaps_rollup", "Anonymous:") * 1024,
    }
}

async fn at_rest(server: &Server, alone: &Held) -> Held {
    within("the clients' connections have ended", async || {
        (held(server.process()).sockets <= alone.sockets).then_some(())
    })
    .await;
    within("the memory shrinks no further", async || {
        let before = held(server.process());
        tokio::time::sleep(SETTLES).await;
        let after = held(server.process());
        (after.bytes + after.bytes / 100 >= before.bytes).then_some(after)
    })
    .await
}

async fn talk(settings: &Settings, from: usize, to: usize) {
    let client = Client::new(settings.url(""));
    let conversations = (from..to).map(|count| {
        let client = client.clone();
        async move { client.post(&format!("thread-{count}"), "1", "hello").await }
    });
    let mut conversations = futures::StreamExt::buffer_unordered(futures::stream::iter(conversations), AT_A_TIME);
    while futures::StreamExt::next(&mut conversations).await.is_some() {}
    within("all rest", async || (client.awake().await? == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_thread_is_data() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), 202, "[[rule]]\nsay = \"Good day to you.\"\n", None);
    let mut server = Server::start(&settings);
    server.ready().await;
    // The clients are gone when they have talked, and their connections end with them.
    let alone = within("nobody is connected", async || {
        let held = held(server.process());
        tokio::time::sleep(Duration::from_millis(200)).await;
        (held.sockets == self::held(server.process()).sockets).then_some(held)
    })
    .await;
    talk(&settings, 0, FIRST).await;
    let before = at_rest(&server, &alone).await;
    talk(&settings, FIRST, FIRST + MORE).await;
    let after = at_rest(&server, &alone).await;
    eprintln!("{FIRST} threads at rest: {before:?}; {MORE} more: {after:?}");
    assert_eq!(after.threads, before.threads, "threads of the system");
    let bytes = after.bytes.saturating_sub(before.bytes) / MORE;
    assert!(bytes < BYTES_MAX, "an idle thread costs {bytes} bytes");
    let (status, _) = server.terminate();
    assert!(status.success(), "{}", settings.log());
}
