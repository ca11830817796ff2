//! A storm of kills: conversations over HTTP, and a server that is killed at any moment and started again.
//!
//! In: how many kills (`SLACKWATER_KILLS`, 50) and a seed (`SLACKWATER_SEED`; printed, so that a run can be had again as far
//! as the machine lets). Out: what must be true when the storm is over, of what clients were told, of what tools were asked
//! and of the records on disk. Always: real processes, SIGKILL, one directory and one port for all lives.
//!
//! Four conversations wait for each answer before they go on. Two are talked to by two impatient people each, who interrupt
//! the model and its tools. One watcher a thread reads its stream through all restarts.

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on should stop")]

#[path = "support/kills.rs"]
mod kills;

use kills::client::{Client, Seen};
use kills::rap_server::{RapServer, Work};
use kills::records::{self, Folded};
use kills::server_process::{Server, Settings};
use kills::within;
use slackwater_core::effect::Shown;
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::id::ThreadId;
use slackwater_core::record::{Block, Content};
use slackwater_core::thread::State;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const KILLS: usize = 50;

/// The threads whose users wait, and those whose users do not.
const PATIENT: [&str; 4] = ["ada", "ben", "cleo", "dan"];
const IMPATIENT: [&str; 2] = ["eve", "fay"];

/// The longest life between two kills, in milliseconds, and how long a tool takes at most.
const LIFE_MS_MAX: u64 = 900;
const TOOL_MS_MAX: u64 = 250;

const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "look" }
word_delay_ms = 6
say = "I look into it, one word after another, and then I tell you."
call = [{ tool = "look", arguments = { about = "{message}" } }]

[[rule]]
when = { result_of = "look" }
word_delay_ms = 4
say = "This is what it says: {result}"

[[rule]]
when = { event_contains = "" }
word_delay_ms = 2
say = "That came late: {event}"

[[rule]]
say = "There is nothing new."
"#;

#[test]
fn acknowledged_is_durable_in_a_storm_of_kills() {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let seed = number("SLACKWATER_SEED")
        .unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64 % 1_000_000_007);
    let kills = number("SLACKWATER_KILLS").map_or(KILLS, |kills| kills as usize);
    eprintln!("storm of {kills} kills; to have it again: SLACKWATER_SEED={seed} SLACKWATER_KILLS={kills}");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(storm(Chances(seed), kills));
}

/// Chances that follow from a seed (xorshift; a seed of zero would stay zero).
struct Chances(u64);

impl Chances {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 31)) % end
    }
}

/// What clients know at the end.
#[derive(Default)]
struct Told {
    /// The number under which each message was acknowledged, by thread and id.
    acknowledged: BTreeMap<(&'static str, String), u64>,
}

async fn storm(mut chances: Chances, kills: usize) {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(Some(TOOL_MS_MAX)).await;
    let settings = Settings::new(place.path(), chances.below(u64::MAX), SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let told = Arc::new(Mutex::new(Told::default()));
    let over = Arc::new(AtomicBool::new(false));
    let people: Vec<_> = (PATIENT.iter().map(|&thread| (thread, 0, true)))
        .chain(IMPATIENT.iter().flat_map(|&thread| [(thread, 0, false), (thread, 1, false)]))
        .map(|(thread, person, patient)| {
            tokio::spawn(talk(client.clone(), thread, person, patient, told.clone(), over.clone()))
        })
        .collect();
    let seen: BTreeMap<&str, Arc<Mutex<Vec<Seen>>>> =
        PATIENT.iter().chain(&IMPATIENT).map(|&thread| (thread, Arc::default())).collect();
    let watchers: Vec<_> = seen
        .iter()
        .map(|(thread, seen)| tokio::spawn(client.clone().follow((*thread).to_owned(), seen.clone())))
        .collect();

    let mut during_start = 0;
    for _ in 0..kills {
        let mut server = Server::start(&settings);
        if chances.below(4) == 0 {
            during_start += 1;
            tokio::time::sleep(Duration::from_millis(chances.below(200))).await;
        } else {
            server.ready().await;
            tokio::time::sleep(Duration::from_millis(chances.below(LIFE_MS_MAX))).await;
        }
        server.kill();
    }
    over.store(true, Ordering::SeqCst);
    let mut server = Server::start(&settings);
    server.ready().await;
    for person in people {
        person.await.unwrap();
    }
    for thread in PATIENT.iter().chain(&IMPATIENT) {
        client.idle(thread).await;
    }
    // A tool may still send a result a second time, because its first answer was lost; then everything is quiet.
    within("every tool is done", async || tools.work().values().all(|work| work.answered.is_some()).then_some(()))
        .await;
    for thread in PATIENT.iter().chain(&IMPATIENT) {
        client.idle(thread).await;
    }
    let replayed = replay(&client, &seen).await;
    watchers.iter().for_each(tokio::task::JoinHandle::abort);
    let (status, _) = server.terminate();
    assert!(status.success(), "the server stops cleanly: {}", settings.log());

    let folded = records::read(&settings.directory).await;
    let told = told.lock().unwrap();
    let work = tools.work();
    eprintln!(
        "{kills} kills, {during_start} of them during a start; {} messages acknowledged, {} pieces of work, asked for {} times; {} records",
        told.acknowledged.len(),
        work.len(),
        work.values().map(|work| work.asked).sum::<usize>(),
        folded.values().map(|folded| folded.records.len()).sum::<usize>(),
    );
    assert_eq!(folded.len(), seen.len(), "one thread a name");
    for (name, seen) in &seen {
        let id = slackwater::gateway::name::address(name).unwrap().thread;
        let folded = &folded[&id];
        check_messages(name, folded, &told);
        check_stream(name, folded, &seen.lock().unwrap(), &replayed[name]);
        check_work(id, folded, &work, PATIENT.contains(name));
        check_rest(name, folded);
    }
    assert!(work.values().all(|work| folded.contains_key(&work.thread.parse().unwrap())), "no work for nobody");
}

/// Somebody who writes until the storm is over, and sends each message until it is acknowledged.
async fn talk(
    client: Client,
    thread: &'static str,
    person: usize,
    patient: bool,
    told: Arc<Mutex<Told>>,
    over: Arc<AtomicBool>,
) {
    for count in 0.. {
        let id = format!("{thread}-{person}-{count}");
        let number = client.post(thread, &id, &format!("look at ({id})")).await;
        told.lock().unwrap().acknowledged.insert((thread, id.clone()), number);
        if patient {
            client.idle(thread).await;
            // The same message again is the same message, whatever has happened since.
            assert_eq!(client.post(thread, &id, &format!("look at ({id})")).await, number, "same_id_once");
        } else {
            tokio::time::sleep(Duration::from_millis(40 * (1 + count % 7))).await;
        }
        if over.load(Ordering::SeqCst) {
            return;
        }
    }
}

/// Reads every stream from its beginning, as far as its watcher has come and as far as it goes.
async fn replay(
    client: &Client,
    seen: &BTreeMap<&'static str, Arc<Mutex<Vec<Seen>>>>,
) -> BTreeMap<&'static str, Vec<Seen>> {
    let mut replayed = BTreeMap::new();
    for (&thread, watched) in seen {
        let again: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let reader = tokio::spawn(client.clone().follow(thread.to_owned(), again.clone()));
        within("both readers have read the same", async || {
            let before = again.lock().unwrap().len();
            tokio::time::sleep(Duration::from_millis(300)).await;
            let (again, watched) = (again.lock().unwrap(), watched.lock().unwrap());
            (before > 0 && again.len() == before && again.last() == watched.last()).then_some(())
        })
        .await;
        reader.abort();
        replayed.insert(thread, std::mem::take(&mut *again.lock().unwrap()));
    }
    replayed
}

/// Nothing acknowledged is lost, under the number that was acknowledged; no message is there twice.
fn check_messages(name: &'static str, folded: &Folded, told: &Told) {
    let mut there: BTreeMap<String, u64> = BTreeMap::new();
    for item in folded.items() {
        if let Item::User { number, content } = &*item {
            let Content::Text(text) = &content[0] else { panic!("only text was sent") };
            let id = text.trim_start_matches("look at (").trim_end_matches(')').to_owned();
            assert_eq!(there.insert(id, *number), None, "{name}: a message is there twice: {text}");
        }
    }
    for ((thread, id), number) in &told.acknowledged {
        if *thread == name {
            assert_eq!(there.get(id), Some(number), "{name}: acknowledged_is_durable: {id}");
        }
    }
    let acknowledged = told.acknowledged.keys().filter(|(thread, _)| *thread == name).count();
    assert_eq!(
        there.len(),
        acknowledged,
        "{name}: every message was acknowledged in the end, and nothing else is there"
    );
}

/// Watchers and late readers see what the records say: no gap, no repeat, nothing else.
fn check_stream(name: &str, folded: &Folded, watched: &[Seen], replayed: &[Seen]) {
    let expected: Vec<Seen> = folded
        .outputs
        .iter()
        .map(|output| {
            let (kind, data) = slackwater::gateway::outputs::output(output);
            (output.id.to_string(), kind.to_owned(), data)
        })
        .collect();
    for (who, seen) in [("the watcher", watched), ("a late reader", replayed)] {
        for (position, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(seen, expected, "{name}: {who}, output {position}");
        }
        assert_eq!(seen.len(), expected.len(), "{name}: {who} has seen everything");
    }
}

/// Every effect has the one name that its record gives it, and every call has exactly one result.
fn check_work(thread: ThreadId, folded: &Folded, work: &BTreeMap<String, Work>, patient: bool) {
    let answers = folded.answers();
    let calls = folded.calls();
    assert!(answers.keys().eq(calls.keys()), "every_call_has_one_result");
    let mine: BTreeSet<&String> =
        work.iter().filter(|(_, w)| w.thread == thread.to_string()).map(|(id, _)| id).collect();
    let named: BTreeMap<String, _> =
        calls.iter().map(|(call, arguments)| (call.effect_id(thread), (call, arguments))).collect();
    for id in &mine {
        let (_, arguments) = named.get(*id).unwrap_or_else(|| panic!("effects_have_names: no record made {id}"));
        let arguments: serde_json::Value = serde_json::from_str(arguments).unwrap();
        assert_eq!(arguments, work[*id].arguments, "{id}");
        assert_eq!(work[*id].answered, Some(200), "the result of {id} was taken");
    }
    for (id, (call, _)) in &named {
        let [by] = answers[call][..] else { panic!("every_call_has_one_result: {call}: {:?}", answers[call]) };
        match by {
            AnsweredBy::Tool => assert!(mine.contains(id), "a result without work: {id}"),
            AnsweredBy::Interrupted => assert!(!patient, "nobody interrupted {id}"),
            other => panic!("{id} was answered by {other:?}"),
        }
    }
    if patient {
        assert_eq!(mine.len(), named.len(), "effects_have_names: each call is one piece of work");
    }
}

/// Every thread has come to rest, with an answer to what came last.
fn check_rest(name: &str, folded: &Folded) {
    assert_eq!(folded.thread.standing().state, State::Idle, "{name}");
    let items = folded.items();
    let Some(Item::Assistant { blocks, cut: false, .. }) = items.last().map(|item| &**item) else {
        panic!("{name}: the last word is the model's: {:?}", items.last());
    };
    let [Block::Text(text)] = &blocks[..] else { panic!("{name}: the last turn is text: {blocks:?}") };
    let fine = ["This is what it says: seen: look at (", "That came late: seen: look at ("];
    assert!(fine.iter().any(|start| text.starts_with(start)), "{name}: {text}");
    assert!(
        !folded.outputs.iter().any(|output| matches!(output.shown, Shown::Failure { .. })),
        "{name}: nothing failed"
    );
}
