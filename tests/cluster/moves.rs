//! Threads are moved between shards while they talk.
//!
//! In: a cluster of one cell, people who write, `slackwater cluster rebalance`. Out: two cells, one again though the command was told
//! to end meanwhile, and two after the supervisor was killed in the middle of it. Always: what was acknowledged is there once, under
//! its number, and answered; the `up` that the cluster was started with lives on.

use super::kills::client::Client;
use super::kills::rap_server::RapServer;
use super::kills::records::{self, Folded};
use super::kills::server_process::{Server, Settings};
use super::storm::{Chances, SCRIPT, Told, check, talk};
use super::{begin, cluster, within};
use slackwater::host::directory::{Manifest, shard_directory};
use slackwater::host::plan::{Phase, State, running};
use slackwater::placement::Placement;
use slackwater_core::id::ThreadId;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const THREADS: usize = 24;
const SHARDS: u32 = 2;

/// How long people talk between two moves.
const CALM: Duration = Duration::from_secs(3);

fn state(settings: &Settings) -> State {
    running(&settings.directory).unwrap().unwrap()
}

/// Begins a move and waits until it is under way.
async fn begin_move(settings: &Settings, cells: u32) -> Child {
    let is_moving = || state(settings).cells.iter().any(|cell| cell.phase == Phase::Moving);
    begin(&settings.directory, &["rebalance", "--directory", ".", "--cells", &cells.to_string()], is_moving).await
}

/// Moves the threads of a cluster that runs, and looks whether it is as it was said.
fn rebalance(settings: &Settings, server: &mut Server, cells: u32) {
    let (code, words) = cluster(
        &settings.directory,
        &["rebalance", "--directory", ".", "--cells", &cells.to_string(), "--shards", "2"],
    );
    assert!(code == 0 && words.contains("the threads are being moved"), "{words}\n{}", settings.log());
    assert!(words.contains("of 2 shards now; all gateways were ready again"), "{words}");
    eprintln!("{}", words.lines().last().unwrap());
    assert!(server.is_running(), "the command that started the cluster lives on:\n{}", settings.log());
    let (code, words) = cluster(&settings.directory, &["status", "--directory", "."]);
    let said = words.lines().filter(|line| line.contains(": ready;")).count();
    assert!(code == 0 && said == cells as usize && words.contains("its threads were moved: "), "{words}");
    let shards = words.lines().filter(|line| line.starts_with("  shard ")).count();
    assert_eq!(shards as u32, cells * SHARDS, "{words}");
}

/// All threads on this machine, each where the placement says.
async fn read_all(directory: &Path, placement: &Placement) -> BTreeMap<ThreadId, Folded> {
    let mut found = BTreeMap::new();
    for shard in 0..placement.shard_count() {
        for (id, folded) in records::read(&shard_directory(directory, shard)).await {
            assert_eq!(placement.shard_of(id), shard, "a thread is at its shard");
            assert!(found.insert(id, folded).is_none(), "a thread is at one place");
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn threads_are_moved_while_they_talk() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(Some(100)).await;
    let settings = Settings::new(place.path(), u64::from(std::process::id()) + 9_000, SCRIPT, Some(tools.url()));
    let [first, second] = [0, 1].map(|cell| Client::new(settings.cell_url(cell)));
    let ready = std::slice::from_ref(&first);
    let mut server = Server::launch(&settings, &mut settings.cells_command(1, SHARDS), ready).await;
    let names: Vec<String> = (0..THREADS).map(|n| format!("thread-{n}")).collect();
    let told = Arc::new(Told::default());
    let gateways = [first.clone(), first.clone()];
    let people: Vec<_> = (0..)
        .zip(&names)
        .map(|(n, name)| tokio::spawn(talk(gateways.clone(), name.clone(), Chances(n), told.clone())))
        .collect();
    tokio::time::sleep(CALM).await;

    // A port that somebody has is told before a cell is ended.
    let taken = std::net::TcpListener::bind(("127.0.0.1", settings.port + 1)).unwrap();
    let before = state(&settings);
    let (code, words) = cluster(&settings.directory, &["rebalance", "--directory", ".", "--cells", "2"]);
    assert!(
        code == 1 && words.contains("nothing was moved") && words.contains("is something there already?"),
        "{words}"
    );
    assert_eq!(state(&settings).cells, before.cells, "no process was ended");
    drop(taken);

    tokio::task::block_in_place(|| rebalance(&settings, &mut server, 2));
    for name in &names {
        let answer = second.try_post(name, &format!("{name}-second"), &format!("hello ({name}-second)")).await.unwrap();
        assert!(answer.status().is_success(), "the new gateway takes all threads");
        let number = answer.json::<serde_json::Value>().await.unwrap()["number"].as_u64().unwrap();
        told.acknowledged.lock().unwrap().insert((name.clone(), format!("{name}-second")), number);
    }
    tokio::time::sleep(CALM).await;
    // The command is told to end in the middle; the supervisor goes on.
    let mover = begin_move(&settings, 1).await;
    rustix::process::kill_process(rustix::process::Pid::from_child(&mover), rustix::process::Signal::INT).unwrap();
    let output = mover.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && words.contains("the move goes on without this command"), "{words}");
    within("all is moved", async || {
        let state = state(&settings);
        let is_ready = state.cells.len() == 1 && state.cells[0].phase == Phase::Ready;
        state.last_move.filter(|last| is_ready && last.error.is_none() && last.pause_ms.is_some())
    })
    .await;
    assert!(second.readiness().await.is_none(), "a cell that is gone has no gateway");
    tokio::time::sleep(CALM).await;

    // The supervisor is killed in the middle of a move.
    let supervisor = rustix::process::Pid::from_raw(state(&settings).supervisor as i32).unwrap();
    let mover = begin_move(&settings, 2).await;
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    let output = mover.wait_with_output().unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && words.contains("the move was broken off; nothing is lost"), "{words}");
    assert!(!server.wait().success(), "{}", settings.log());
    let manifest = Manifest::load(&settings.directory).unwrap().unwrap();
    assert_eq!(manifest.moving_to.map(|to| (to.cells, to.shards)), Some((2, 2)));
    let refused = settings.cells_command(1, SHARDS).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("`slackwater cluster rebalance` goes on with it"), "{words}");
    let (code, words) = cluster(&settings.directory, &["rebalance", "--directory", "."]);
    assert!(code == 0 && words.contains("The cluster has 2 cells of 2 shards now; `slackwater cluster up"), "{words}");

    let both = [first.clone(), second.clone()];
    let server = Server::launch(&settings, &mut settings.cells_command(2, SHARDS), &both).await;
    tokio::time::sleep(CALM).await;
    told.over.store(true, Ordering::SeqCst);
    for person in people {
        person.await.unwrap();
    }
    within("every tool is done", async || tools.work().values().all(|work| work.answered.is_some()).then_some(()))
        .await;
    for name in &names {
        first.idle(name).await;
    }
    assert!(server.terminate().0.success(), "{}", settings.log());
    let placement = Manifest::load(&settings.directory).unwrap().unwrap().placement;
    let found = read_all(&settings.directory, &placement).await;
    assert_eq!(found.len(), THREADS);
    let acknowledged = std::mem::take(&mut *told.acknowledged.lock().unwrap());
    let mut messages = 0;
    for name in &names {
        messages += check(name, &found[&slackwater::gateway::name::address(name).unwrap().thread], &acknowledged);
    }
    assert_eq!(messages, acknowledged.len());
    let left: Vec<_> =
        std::fs::read_dir(&settings.directory).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        !left.iter().any(|name| name.to_string_lossy().contains("shard-") && name.to_string_lossy().contains('.')),
        "{left:?}"
    );
    eprintln!(
        "{messages} messages of {THREADS} threads over three moves, one broken off: all there once, and answered"
    );
}
