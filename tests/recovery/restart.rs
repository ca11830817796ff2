//! After a kill: who is awakened, and what is done again.

use crate::kills::client::Client;
use crate::kills::rap_server::RapServer;
use crate::kills::server_process::{Server, Settings};
use crate::kills::{records, within};
use futures::StreamExt;
use slackwater::journal::{FileDisk, Journal, Options};
use slackwater::model::{Reply, Scripted};
use slackwater_core::id::ThreadId;
use slackwater_core::port::FromJournal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// What the model does in the first life. A day is longer than any test.
const SCRIPT: &str = r#"
[[rule]]
when = { message_contains = "hang" }
delay_ms = 86400000
say = "Nobody will hear this."

[[rule]]
when = { message_contains = "look" }
call = [{ tool = "look", arguments = { about = "{message}" } }]

[[rule]]
when = { message_contains = "nap" }
call = [{ tool = "sleep", arguments = { seconds = 1.5 } }]

[[rule]]
when = { message_contains = "hibernate" }
call = [{ tool = "sleep", arguments = { seconds = 86400 } }]

[[rule]]
say = "Good day."
"#;

const IDLE: usize = 20;

fn id(name: &str) -> ThreadId {
    slackwater::gateway::name::address(name).unwrap().thread
}

/// What a start is told by the journal: who is to wake, and who rests with timers.
async fn told_at_start(directory: &Path) -> (BTreeSet<ThreadId>, BTreeSet<ThreadId>) {
    let journal = Journal::open(FileDisk::open(directory).unwrap(), Options::default()).unwrap();
    let (from, to, handle) = journal.start().unwrap();
    drop(to);
    handle.close().await.unwrap();
    let told: Vec<_> = from.collect().await;
    let wake = told.iter().filter_map(|item| match item {
        FromJournal::Wake { thread, .. } => Some(*thread),
        _ => None,
    });
    let resting = told.iter().filter_map(|item| match item {
        FromJournal::Resting(rest) => Some(rest.thread),
        _ => None,
    });
    (wake.collect(), resting.collect())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_threads_with_work_in_flight_are_awakened() {
    let place = tempfile::tempdir().unwrap();
    let tools = RapServer::start(None).await;
    let settings = Settings::new(place.path(), 101, SCRIPT, Some(tools.url()));
    let client = Client::new(settings.url(""));
    let mut server = Server::start(&settings);
    server.ready().await;

    for count in 0..IDLE {
        client.post(&format!("idle-{count}"), "1", "hello").await;
        client.idle(&format!("idle-{count}")).await;
    }
    // A call that the tool took over; one that it heard and never acknowledged; two sleeps; a prompt without an answer.
    client.post("waits", "1", "look at waits").await;
    client.waits_on("waits", |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    tools.set_deaf(true);
    client.post("unheard", "1", "look at unheard").await;
    tools.asked(2, 1).await;
    client.post("hibernates", "1", "hibernate").await;
    client.waits_on("hibernates", |wait| wait["on"] == "timer").await;
    client.post("naps", "1", "nap").await;
    client.waits_on("naps", |wait| wait["on"] == "timer").await;
    client.post("hangs", "1", "hang").await;
    client.waits_on("hangs", |wait| wait["on"] == "model").await;
    server.kill();
    tools.set_deaf(false);
    // The nap is over while nothing runs.
    tokio::time::sleep(Duration::from_millis(1600)).await;

    let (wake, resting) = told_at_start(&settings.directory).await;
    assert_eq!(wake, BTreeSet::from([id("hangs"), id("unheard")]), "these and nobody else have something in flight");
    assert_eq!(
        resting,
        BTreeSet::from([id("naps"), id("hibernates"), id("waits")]),
        "these have timers, or a call of which a tool is asked whether it knows it still"
    );

    // The second life is in this process, with a model that counts.
    let prompts: Arc<Mutex<BTreeMap<ThreadId, usize>>> = Arc::default();
    let counted = prompts.clone();
    let model = Scripted::from_fn(move |request| {
        *counted.lock().unwrap().entry(request.prompt.thread).or_default() += 1;
        Reply::text("Back again.")
    });
    let runtime = settings.builder().model(model).start().await.unwrap();
    client.idle("hangs").await;
    client.idle("naps").await;
    let work = tools.asked(2, 1).await;
    let of = |name: &str| work.iter().find(|(_, work)| work.thread == id(name).to_string()).unwrap().0.clone();
    let (waits, unheard) = (of("waits"), of("unheard"));
    within("the call is dispatched again, under the same id", async || {
        (tools.work()[&unheard].asked == 2).then_some(())
    })
    .await;
    client.waits_on("unheard", |wait| wait["on"] == "call" && wait["accepted"] == true).await;
    within("everybody rests again", async || (runtime.shards().awake() == 0).then_some(())).await;
    assert_eq!(
        *prompts.lock().unwrap(),
        BTreeMap::from([(id("hangs"), 1), (id("naps"), 1)]),
        "a prompt without completion is sent again, a due timer fires, and nobody else is disturbed"
    );
    assert_eq!(tools.work()[&waits].asked, 1, "a call that waits for its callback keeps waiting");
    assert_eq!(tools.answer(&waits).await, 200, "the old callback URL is good");
    assert_eq!(tools.answer(&unheard).await, 200);
    client.idle("waits").await;
    client.idle("unheard").await;
    within("everybody rests", async || (runtime.shards().awake() == 0).then_some(())).await;
    assert!(prompts.lock().unwrap().values().all(|&count| count == 1), "each was prompted once");
    assert_eq!(prompts.lock().unwrap().len(), 4);
    runtime.stop().await.unwrap();

    let folded = records::read(&settings.directory).await;
    assert_eq!(folded.len(), IDLE + 5);
    for name in ["waits", "unheard"] {
        assert_eq!(folded[&id(name)].calls().len(), 1, "{name}");
    }
    let (wake, _) = told_at_start(&settings.directory).await;
    assert_eq!(wake, BTreeSet::new(), "after a clean end nobody is to wake");
}
