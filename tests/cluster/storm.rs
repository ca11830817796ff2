//! A storm of kills over all locations of two cells, while many threads converse.
//!
//! In: how many kills (`SLACKWATER_CLUSTER_KILLS`), how many threads (`SLACKWATER_CLUSTER_THREADS`) and a seed (`SLACKWATER_SEED`;
//! printed). Out: what must be true when it is over. Always: real processes, SIGKILL; people enter at either gateway.

use super::kills::client::Client;
use super::kills::rap_server::RapServer;
use super::kills::records::{self, Folded};
use super::kills::server_process::{Server, Settings};
use super::{Patience, within};
use slackwater::host::plan::{Phase, State};
use slackwater::placement::{Placement, VIRTUAL_SHARDS};
use slackwater_core::history::Item;
use slackwater_core::id::ThreadId;
use slackwater_core::record::Content;
use slackwater_core::thread::State as Standing;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const KILLS: u64 = 12;
const THREADS: u64 = 40;
const CELLS: u32 = 2;
const SHARDS: u32 = 2;

/// The longest pause between two kills, and between two messages of one person.
const CALM_MS_MAX: u64 = 1_200;
const PAUSE_MS_MAX: u64 = 4_000;

pub(crate) const SCRIPT: &str = r#"
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

/// Chances that follow from a seed.
pub(crate) struct Chances(pub(crate) u64);

impl Chances {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % end
    }
}

#[derive(Default)]
pub(crate) struct Told {
    /// The number under which each message was acknowledged, by thread and id.
    pub(crate) acknowledged: Mutex<BTreeMap<(String, String), u64>>,
    /// How often somebody of a quiet cell was not answered as he should be.
    errors: AtomicUsize,
    pub(crate) over: AtomicBool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_in_a_storm_over_two_cells() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("SLACKWATER_SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 % 1_000_000_007);
    let kills = number("SLACKWATER_CLUSTER_KILLS").unwrap_or(KILLS);
    let threads = number("SLACKWATER_CLUSTER_THREADS").unwrap_or(THREADS);
    eprintln!(
        "storm of {kills} kills over two cells with {threads} threads; to have it again: SLACKWATER_SEED={seed} SLACKWATER_CLUSTER_KILLS={kills} SLACKWATER_CLUSTER_THREADS={threads}"
    );
    let mut chances = Chances(seed);
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(Some(200)).await;
    let settings = Settings::new(place.path(), seed ^ u64::from(std::process::id()), SCRIPT, Some(tools.url()));
    let gateways = [0, 1].map(|cell| Client::new(settings.cell_url(cell)));
    let server = Server::launch(&settings, &mut settings.cells_command(CELLS, SHARDS), &gateways).await;
    let placement = Placement::even(CELLS, SHARDS, VIRTUAL_SHARDS);
    let names: Vec<String> = (0..threads).map(|n| format!("thread-{n}")).collect();

    let told = Arc::new(Told::default());
    let people: Vec<_> = names
        .iter()
        .enumerate()
        .map(|(n, name)| {
            let chances = Chances(seed ^ (n as u64) << 20);
            tokio::spawn(talk(gateways.clone(), name.clone(), chances, told.clone()))
        })
        .collect();
    // First only the first cell is struck: nobody who is at the other one and enters there notices.
    let quiet = named_at(&placement, |placement, thread| placement.cell_of(thread) == 1);
    let watcher = tokio::spawn(watch_quiet(gateways[1].clone(), quiet, told.clone()));
    let mut took_ms = Vec::new();
    for _ in 0..kills / 4 {
        strike(&settings, &placement, &mut chances, &[0], &mut took_ms).await;
    }
    told.over.store(true, Ordering::SeqCst);
    watcher.await.unwrap();
    assert_eq!(told.errors.load(Ordering::SeqCst), 0, "other cells' clients see no error");
    told.over.store(false, Ordering::SeqCst);
    for _ in kills / 4..kills {
        strike(&settings, &placement, &mut chances, &[0, 1], &mut took_ms).await;
    }
    told.over.store(true, Ordering::SeqCst);
    for person in people {
        person.await.unwrap();
    }
    for name in &names {
        gateways[0].idle(name).await;
    }
    within("every tool is done", async || tools.work().values().all(|work| work.answered.is_some()).then_some(()))
        .await;
    for name in &names {
        gateways[1].idle(name).await;
    }
    let restarts: u64 = state(&settings).cells.iter().map(|cell| cell.restarts).sum();
    let (status, _) = server.terminate();
    assert!(status.success(), "{}", settings.log());

    let acknowledged = std::mem::take(&mut *told.acknowledged.lock().unwrap());
    let mut found = BTreeMap::new();
    for shard in 0..CELLS * SHARDS {
        for (id, folded) in
            records::read(&slackwater::host::directory::shard_directory(&settings.directory, shard)).await
        {
            assert_eq!(placement.shard_of(id), shard, "a thread is at its shard");
            assert!(found.insert(id, folded).is_none());
        }
    }
    let mut messages = 0;
    for name in &names {
        let folded = &found[&slackwater::gateway::name::address(name).unwrap().thread];
        messages += check(name, folded, &acknowledged);
    }
    let (work, asked) = (tools.work().len(), tools.work().values().map(|work| work.asked).sum::<usize>());
    took_ms.sort_unstable();
    let at = |share: usize| took_ms.get((took_ms.len() * share / 100).min(took_ms.len().saturating_sub(1)));
    eprintln!(
        "{kills} kills, {restarts} restarts of a cell; {} messages acknowledged, {messages} found, 0 lost, 0 doubled; {work} pieces of work asked for {asked} times; from SIGKILL to the next acknowledged message at that shard: p50 {:?} ms, p99 {:?} ms, most {:?} ms",
        acknowledged.len(),
        at(50),
        at(99),
        took_ms.last(),
    );
}

/// Kills one location and measures until its shard (any of its cell, for a gateway) acknowledges again.
async fn strike(
    settings: &Settings,
    placement: &Placement,
    chances: &mut Chances,
    cells: &[usize],
    took_ms: &mut Vec<u64>,
) {
    let cell = cells[chances.below(cells.len() as u64) as usize];
    let patience = Patience::until("there is a process to be killed");
    let victim = loop {
        let processes = &state(settings).cells[cell].processes;
        if !processes.is_empty() {
            let victim = processes[chances.below(processes.len() as u64) as usize].clone();
            // Only a location, never a process that has its number by now.
            let program = std::fs::read_link(format!("/proc/{}/exe", victim.process)).unwrap_or_default();
            if program.to_string_lossy().contains("slackwater__host__cluster") {
                break victim;
            }
        }
        patience.again().await;
    };
    let process = rustix::process::Pid::from_raw(victim.process as i32).unwrap();
    let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
    let begun = Instant::now();
    // Every fifth strike does not wait for the cell to be back: the next one may hit its start.
    if chances.below(5) > 0 {
        let shard = victim.name.strip_prefix("shard ").map_or(cell as u32 * SHARDS, |shard| shard.parse().unwrap());
        let name = named_at(placement, |placement, thread| placement.shard_of(thread) == shard);
        // Somebody who waits for nobody else's connections.
        let client = Client::new(settings.cell_url(cell as u16));
        let id = format!("strike-{}", took_ms.len());
        while !client.try_post(&name, &id, "hello").await.is_some_and(|answer| answer.status().is_success()) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        took_ms.push(begun.elapsed().as_millis() as u64);
    }
    tokio::time::sleep(Duration::from_millis(chances.below(CALM_MS_MAX))).await;
}

/// A name of a thread that is there.
fn named_at(placement: &Placement, is_there: impl Fn(&Placement, ThreadId) -> bool) -> String {
    let names = (0..).map(|n| format!("probe-{n}"));
    let is_there = |name: &String| is_there(placement, slackwater::gateway::name::address(name).unwrap().thread);
    names.into_iter().find(is_there).unwrap()
}

/// Somebody who is at a cell that is not struck: the first try of every message is taken.
async fn watch_quiet(client: Client, name: String, told: Arc<Told>) {
    for count in 0.. {
        let answer = client.try_post(&name, &format!("quiet-{count}"), "hello").await;
        if answer.is_none_or(|answer| !answer.status().is_success()) {
            told.errors.fetch_add(1, Ordering::SeqCst);
        }
        if told.over.load(Ordering::SeqCst) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
}

/// Somebody who writes until the storm is over, through either gateway, and sends each message until it is acknowledged.
pub(crate) async fn talk(gateways: [Client; 2], name: String, mut chances: Chances, told: Arc<Told>) {
    let mut count = 0;
    let mut over_seen = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(chances.below(PAUSE_MS_MAX))).await;
        let id = format!("{name}-{count}");
        let text = if chances.below(4) == 0 { format!("look at ({id})") } else { format!("hello ({id})") };
        let number = gateways[chances.below(2) as usize].post(&name, &id, &text).await;
        told.acknowledged.lock().unwrap().insert((name.clone(), id), number);
        count += 1;
        // The first time it is over only for those who are watched.
        over_seen = if told.over.load(Ordering::SeqCst) { over_seen + 1 } else { 0 };
        if over_seen > 1 {
            return;
        }
    }
}

/// Nothing acknowledged is lost, under the number that was acknowledged; nothing is there twice; the thread has come to rest.
pub(crate) fn check(name: &str, folded: &Folded, acknowledged: &BTreeMap<(String, String), u64>) -> usize {
    let mut there = BTreeMap::new();
    for item in folded.items() {
        if let Item::User { number, content } = &*item {
            let Content::Text(text) = &content[0] else { panic!("only text was sent") };
            let id = text.split(['(', ')']).nth(1).unwrap_or(text).to_owned();
            assert_eq!(there.insert(id, *number), None, "{name}: a message is there twice: {text}");
        }
    }
    let mine = acknowledged.iter().filter(|((thread, _), _)| thread == name);
    let mut count = 0;
    for ((_, id), number) in mine {
        assert_eq!(there.get(id), Some(number), "{name}: acknowledged_is_durable: {id}");
        count += 1;
    }
    assert_eq!(there.len(), count, "{name}: everything that is there was acknowledged in the end");
    assert_eq!(folded.thread.standing().state, Standing::Idle, "{name}");
    assert!(matches!(folded.items().last().map(|item| &**item), Some(Item::Assistant { cut: false, .. })), "{name}");
    for (call, answers) in folded.answers() {
        assert_eq!(answers.len(), 1, "{name}: every_call_has_one_result: {call}");
    }
    count
}

/// What the supervisor says.
fn state(settings: &Settings) -> State {
    let state = slackwater::host::plan::running(&settings.directory).unwrap().unwrap();
    assert!(state.cells.iter().all(|cell| cell.phase != Phase::Stopped), "{state:?}");
    state
}
