//! Disks that are full, that may not be written, that fail to sync.
//!
//! The full disk and the read-only one are real: a small file system in memory, mounted for the server's process alone.
//! That needs `unshare` (util-linux) and the right to make namespaces; where it is missing the tests fail and say so, unless
//! `SLACKWATER_NO_MOUNT=1` leaves them out.

use crate::kills::client::Client;
use crate::kills::server_process::{Server, Settings};
use crate::kills::within;
use slackwater::capability::CapabilityKey;
use slackwater::catalog::Catalog;
use slackwater::gateway::{self, Config, SubmitError};
use slackwater::host::embedded::{self, Adapters};
use slackwater::journal::{Disk, Journal, MemoryDisk, Options};
use slackwater::model::{self, Scripted};
use slackwater::{timer, tool};
use slackwater_core::effect::Outcome;
use slackwater_core::id::{InputId, ThreadId};
use slackwater_core::record::{Bounds, Content, Message, Origin, Proof, Record};
use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SCRIPT: &str = "[[rule]]\nsay = \"Good day.\"\n";

/// The small file system's size, and the length of the messages that fill it.
const DISK_BYTES: usize = 4 << 20;
const MESSAGE_LENGTH: usize = 100 << 10;

/// A command that runs where the data directory is a file system of its own, mounted like this.
fn mounted(settings: &Settings, options: &str) -> Option<Command> {
    if std::env::var_os("SLACKWATER_NO_MOUNT").is_some() {
        eprintln!("left out, because SLACKWATER_NO_MOUNT is set");
        return None;
    }
    std::fs::create_dir_all(&settings.directory).unwrap();
    let serve = settings.command();
    let mut command = Command::new("unshare");
    command.args(["--mount", "--map-root-user", "sh", "-c"]);
    command.arg("mount -t tmpfs -o \"$1\" tmpfs \"$2\" || exit 99; shift 2; exec \"$@\"");
    command.args(["sh", options]).arg(&settings.directory).arg(serve.get_program()).args(serve.get_args());
    command.current_dir(serve.get_current_dir().unwrap()).stdin(std::process::Stdio::null());
    Some(command)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_named_and_the_runtime_goes_on_when_there_is_space() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), 505, SCRIPT, None);
    let Some(mut command) = mounted(&settings, &format!("size={DISK_BYTES}")) else { return };
    let mut server = Server::start_command(&settings, &mut command);
    server.ready().await;
    let client = Client::new(settings.url(""));
    let text = |count: usize| format!("{count} {}", "x".repeat(MESSAGE_LENGTH));

    let mut taken = BTreeSet::new();
    let (refused, problem) = loop {
        let count = taken.len();
        assert!(count * MESSAGE_LENGTH < DISK_BYTES, "what does not fit was acknowledged");
        let answer = client.try_post("thread", &count.to_string(), &text(count)).await.expect("the gateway answers");
        match answer.status().as_u16() {
            201 => assert!(taken.insert(count)),
            503 => {
                assert!(answer.headers().contains_key("retry-after"));
                break (count, answer.json::<serde_json::Value>().await.unwrap());
            }
            other => panic!("a full disk is answered with {other}: {}", answer.text().await.unwrap()),
        }
    };
    let names_the_path = |problem: &serde_json::Value| {
        let detail = problem["detail"].as_str().unwrap();
        detail.contains(settings.directory.to_str().unwrap()) && detail.contains("space")
    };
    assert!(names_the_path(&problem), "the sender is told where: {problem}");
    let said = within("the disk's failure is told", async || {
        client.readiness().await.filter(|(status, problem)| *status == 503 && names_the_path(problem))
    })
    .await;
    eprintln!("after {refused} messages: {}", said.1["detail"]);
    // Nothing is acknowledged while there is no space, however often it is tried.
    for _ in 0..5 {
        let answer =
            client.try_post("thread", &refused.to_string(), &text(refused)).await.expect("the gateway answers");
        assert_eq!(answer.status().as_u16(), 503);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let words = settings.log();
    assert!(words.contains(settings.directory.to_str().unwrap()), "the log names the path: {words}");

    // Space is made from outside, in the process's own view of its file systems.
    let inside = format!("/proc/{}/root{}", server.process(), settings.directory.display());
    let grown = Command::new("nsenter")
        .args(["--mount", "--user", "--preserve-credentials", "--target", &server.process().to_string()])
        .args(["mount", "-o", &format!("remount,size={}", 4 * DISK_BYTES)])
        .arg(&settings.directory)
        .status()
        .unwrap();
    assert!(grown.success(), "cannot make the file system at {inside} larger");
    client.post("thread", &refused.to_string(), &text(refused)).await;
    taken.insert(refused);
    client.idle("thread").await;
    let seen: Arc<Mutex<Vec<_>>> = Arc::default();
    let reader = tokio::spawn(client.clone().follow("thread".to_owned(), seen.clone()));
    let messages = within("the thread has been read", async || {
        let seen = seen.lock().unwrap();
        let messages = seen.iter().filter(|(_, kind, _)| kind == "message");
        let texts: Vec<_> = messages.map(|(_, _, data)| data["text"].as_str().unwrap().to_owned()).collect();
        (texts.len() >= taken.len()).then_some(texts)
    })
    .await;
    reader.abort();
    let numbers: Vec<usize> = messages.iter().map(|text| text.split(' ').next().unwrap().parse().unwrap()).collect();
    assert_eq!(numbers, taken.into_iter().collect::<Vec<_>>(), "each acknowledged message once, in order");
    let (status, _) = server.terminate();
    assert!(status.success(), "{}", settings.log());
}

#[tokio::test]
async fn a_read_only_directory_is_named() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), 606, SCRIPT, None);
    let Some(mut command) = mounted(&settings, "ro") else { return };
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && output.status.code() != Some(99), "{words}");
    assert!(words.contains(settings.directory.to_str().unwrap()), "the message names the path: {words}");
    assert!(words.to_lowercase().contains("read-only"), "and says what is wrong: {words}");
}

/// A disk in memory that can be told to fail its syncs. As on a real one, what a failed sync was to save is gone, and the
/// next sync may well succeed.
#[derive(Clone, Default)]
struct FailingDisk(Arc<Failing>);

#[derive(Default)]
struct Failing {
    disk: MemoryDisk,
    /// The length of what is on stable storage. There is one segment in this test.
    durable: Mutex<u64>,
    fail: AtomicBool,
}

impl Disk for FailingDisk {
    fn segments(&self) -> io::Result<Vec<(u32, u64)>> {
        self.0.disk.segments()
    }
    fn create(&self, segment: u32) -> io::Result<()> {
        self.0.disk.create(segment)
    }
    fn write_at(&self, segment: u32, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.0.disk.write_at(segment, offset, bytes)
    }
    fn sync(&self, segment: u32) -> io::Result<()> {
        let mut durable = self.0.durable.lock().unwrap();
        if self.0.fail.swap(false, Ordering::SeqCst) {
            self.0.disk.truncate(segment, *durable)?;
            return Err(io::Error::other("the disk has lost what it was given"));
        }
        *durable = self.0.disk.segments()?.last().map_or(0, |(_, length)| *length);
        Ok(())
    }
    fn read_at(&self, segment: u32, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.disk.read_at(segment, offset, buffer)
    }
    fn truncate(&self, segment: u32, length: u64) -> io::Result<()> {
        self.0.disk.truncate(segment, length)
    }
    fn remove(&self, segment: u32) -> io::Result<()> {
        self.0.disk.remove(segment)
    }
    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }
    fn directory(&self) -> String {
        PathBuf::from("a failing disk").display().to_string()
    }
}

fn message(count: usize) -> Record {
    Record::Message(Message {
        id: InputId(count.to_string()),
        origin: Origin { who: "test".to_owned(), proof: Proof::Process },
        content: vec![Content::Text(count.to_string())],
        thread_name: None,
        metadata: None,
    })
}

/// A whole runtime, put together by hand because its disk is one of a test's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_stops_the_shard() {
    let disk = FailingDisk::default();
    let config = Config { listen: ([127, 0, 0, 1], 0).into(), ..Config::default() };
    let key = CapabilityKey::random().unwrap();
    let (from_gateway, to_gateway, gateway) = gateway::start(config, key.clone()).unwrap();
    let mut ends = (from_gateway, to_gateway);
    let shards = gateway.shards();
    let mut taken = BTreeSet::new();
    for life in 0..3_u8 {
        let (from_journal, to_journal, journal) =
            Journal::open(disk.clone(), Options::default()).unwrap().start().unwrap();
        let catalog = Catalog::default();
        let (from_tool, to_tool, tools) =
            tool::start(tool::Config::default(), Vec::new(), catalog.clone(), key.clone(), String::new()).unwrap();
        let model = Arc::new(Scripted::from_toml(SCRIPT).unwrap());
        let shard = embedded::start(Adapters {
            gateway: ends,
            journal: (from_journal, to_journal),
            model: model::start(model, "".into(), catalog, model::Limits::default(), Bounds::DEFAULT),
            tool: (from_tool, to_tool),
            timer: timer::start(&slackwater::clock::Clock::system()),
            warm_max_bytes: 0,
        })
        .unwrap();
        gateway.set_ready(true);
        // What was acknowledged in the lives before is known in this one.
        for &count in &taken {
            let thread = ThreadId::from_bytes([count as u8; 16]);
            let outcome = shards.submit(thread, message(count)).await.unwrap();
            assert_eq!(outcome, Outcome::Duplicate(1), "acknowledged_is_durable");
        }
        for count in (1..=10).map(|count| usize::from(life) * 20 + count) {
            let outcome = shards.submit(ThreadId::from_bytes([count as u8; 16]), message(count)).await.unwrap();
            assert_eq!(outcome, Outcome::Taken(1));
            taken.insert(count);
        }
        disk.0.fail.store(true, Ordering::SeqCst);
        // Of these, the first meets the failed sync. The disk would take the others; the journal does not.
        let after: Vec<_> = (11..=15)
            .map(|count| usize::from(life) * 20 + count)
            .map(|count| {
                let shards = shards.clone();
                tokio::spawn(
                    async move { shards.submit(ThreadId::from_bytes([count as u8; 16]), message(count)).await },
                )
            })
            .collect();
        let failed = tokio::time::timeout(Duration::from_secs(30), journal.failed()).await;
        let failure = failed.expect("a_failed_sync_stops_the_shard: the journal says that it failed").to_string();
        assert!(failure.contains("sync") && failure.contains("a failing disk"), "{failure}");
        gateway.fail(&failure);
        shard.stop().await.unwrap();
        tools.stop().await;
        assert!(journal.close().await.is_err());
        for submit in after {
            match submit.await.unwrap() {
                Err(SubmitError::Interrupted(_) | SubmitError::Unavailable(_)) => {}
                other => panic!("a_failed_sync_stops_the_shard: {other:?}"),
            }
        }
        ends = shards.reconnect(&failure);
    }
    gateway.shutdown().await;
}
