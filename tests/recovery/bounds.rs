//! Floods, and the end under load.

use crate::kills::client::Client;
use crate::kills::records;
use crate::kills::server_process::{Server, Settings};
use slackwater::gateway::{Config, Limits};
use slackwater_core::effect::Shown;
use slackwater_core::history::Item;
use slackwater_core::record::Content;
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SCRIPT: &str = "[[rule]]\nword_delay_ms = 2\nsay = \"One word and then another, and a third and a fourth.\"\n";

/// The stop is promised within a second; half a second more is for a machine that is busy with other things.
const STOP_MS_MAX: u128 = 1_500;

/// The texts of the messages that a thread has taken, seen by its model or not. They are their ids here.
fn texts(folded: &records::Folded) -> Vec<String> {
    let texts = folded.outputs.iter().filter_map(|output| match &output.shown {
        Shown::Message(item) => match &**item {
            Item::User { content, .. } => match &content[..] {
                [Content::Text(text)] => Some(text.clone()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_queue_is_bounded() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), 303, SCRIPT, None);
    let limits = Limits { unanswered_max: 8, unanswered_per_thread_max: 3, ..Limits::default() };
    let gateway = Config { listen: ([127, 0, 0, 1], settings.port).into(), limits, ..Config::default() };
    let runtime = settings.builder().gateway_config(gateway).start().await.unwrap();
    let client = Client::new(settings.url(""));

    let mut taken = BTreeSet::new();
    let mut refused = 0;
    for round in 0..10 {
        let flood = (0..200).map(|count| {
            let client = client.clone();
            async move {
                let (thread, id) = (format!("thread-{}", count % 4), format!("{round}-{count}"));
                (client.try_post(&thread, &id, &id).await.expect("the gateway answers"), thread, id)
            }
        });
        for (answer, thread, id) in futures::future::join_all(flood).await {
            match answer.status().as_u16() {
                201 => assert!(taken.insert((thread, id))),
                429 | 503 => {
                    let again: u32 = answer.headers()["retry-after"].to_str().unwrap().parse().unwrap();
                    assert!(again > 0);
                    let problem: serde_json::Value = answer.json().await.unwrap();
                    assert_eq!(problem["id"], id, "the sender is told what to send again");
                    refused += 1;
                }
                other => panic!("a flood is answered with {other}"),
            }
        }
    }
    eprintln!("{} taken, {refused} told to come back later", taken.len());
    assert!(refused > 0, "2,000 messages, 200 at a time, are more than 8 may wait");
    for thread in 0..4 {
        client.idle(&format!("thread-{thread}")).await;
    }
    runtime.stop().await.unwrap();
    let mut there = BTreeSet::new();
    for folded in records::read(&settings.directory).await.values() {
        let name = folded.thread.standing().name.unwrap();
        for text in texts(folded) {
            assert!(there.insert((name.clone(), text)), "no message is there twice");
        }
        assert!(
            matches!(folded.items().last().map(|item| &**item), Some(Item::Assistant { cut: false, .. })),
            "answered"
        );
    }
    assert_eq!(there, taken, "all that was accepted is there, and nothing that was refused");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sigterm_under_load_ends_within_a_second() {
    let place = tempfile::tempdir().unwrap();
    let settings = Settings::new(place.path(), 404, SCRIPT, None);
    let mut server = Server::start(&settings);
    server.ready().await;
    let taken: Arc<Mutex<BTreeSet<(String, String)>>> = Arc::default();
    let mut people = Vec::new();
    for person in 0..16 {
        let (client, taken, thread) = (Client::new(settings.url("")), taken.clone(), format!("thread-{person}"));
        // Somebody listens, too: a stream must not hold the end up.
        people.push(tokio::spawn(client.clone().follow(thread.clone(), Arc::default())));
        people.push(tokio::spawn(async move {
            for count in 0.. {
                let id = format!("{person}-{count}");
                client.post(&thread, &id, &id).await;
                taken.lock().unwrap().insert((thread.clone(), id));
            }
        }));
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (status, took) = tokio::task::spawn_blocking(|| server.terminate()).await.unwrap();
    people.iter().for_each(tokio::task::JoinHandle::abort);
    assert!(status.success(), "{}", settings.log());
    assert!(took.as_millis() <= STOP_MS_MAX, "it took {} ms to stop", took.as_millis());

    let there: BTreeSet<_> = records::read(&settings.directory)
        .await
        .values()
        .flat_map(|folded| {
            let name = folded.thread.standing().name.unwrap();
            texts(folded).into_iter().map(move |text| (name.clone(), text))
        })
        .collect();
    let taken = taken.lock().unwrap();
    eprintln!("{} messages acknowledged before the end, which took {} ms", taken.len(), took.as_millis());
    assert!(!taken.is_empty() && taken.is_subset(&there), "acknowledged_is_durable");
}
