//! Long histories in a whole runtime: summaries, prompts that do not fit, and results that are too long to be shown.
//!
//! In: a conversation that is longer than the model's window. Out: short prompts in which nothing that matters is missing.
//! Always: the same when the process stops while a summary is being made; the records keep all of it.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

use serde_json::json;
use slackwater::model::{Reply, Request, Scripted};
use slackwater::tool::LocalTool;
use slackwater::{Runtime, Slackwater};
use slackwater_core::effect::Shown;
use slackwater_core::history::{History, Item};
use slackwater_core::id::{OutputId, ThreadId};
use slackwater_core::port::{self, Query};
use slackwater_core::record::{Block, Content, FailureClass, Usage};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How many tokens the model's window holds, if a token is four bytes.
const WINDOW_TOKENS: u64 = 2_500;

/// What a history says, as one text.
fn text(history: &History) -> String {
    let pieces = |content: &[Content]| {
        let texts =
            content.iter().filter_map(|piece| if let Content::Text(text) = piece { Some(&**text) } else { None });
        texts.collect::<Vec<_>>().join("\n")
    };
    let words = |item: &Item| match item {
        Item::User { content, .. } => pieces(content),
        Item::Assistant { blocks, .. } => {
            let texts =
                blocks.iter().filter_map(|block| if let Block::Text(text) = block { Some(&**text) } else { None });
            texts.collect::<Vec<_>>().join("\n")
        }
        Item::Result(answer) => pieces(&answer.content),
        Item::Event(event) => pieces(&event.content),
        Item::Summary(summary) => summary.text(),
    };
    history.to_vec().into_iter().map(|item| words(item)).collect::<Vec<_>>().join("\n")
}

/// The codes that a text names.
fn codes(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '-');
    words.filter(|word| word.starts_with("code-")).map(str::to_owned).collect()
}

fn is_summary(history: &History) -> bool {
    history.newest_first().next().is_some_and(|item| match &**item {
        Item::User { content, .. } => {
            matches!(&content[..], [Content::Text(text)] if text.starts_with("Your history is about to get too long."))
        }
        _ => false,
    })
}

/// A model that notes codes. Asked for a summary, or to recall, it says those that it sees. A prompt that is longer than the
/// window it refuses; what it has read most is kept.
fn model(longest: Arc<AtomicUsize>, refuses: bool) -> Scripted {
    Scripted::from_fn(move |request: &Request| {
        let history = &request.prompt.history;
        let tokens = history.byte_length() as u64 / 4;
        if refuses && tokens > WINDOW_TOKENS {
            return Reply::failure(FailureClass::Overflow, "the prompt is too long");
        }
        longest.fetch_max(history.byte_length(), Ordering::Relaxed);
        let all = text(history);
        let seen = codes(&all).into_iter().collect::<Vec<_>>().join(" ");
        let last = text(&history.newest_first().take(1).cloned().collect());
        // Nearly all of it is read from the cache.
        let usage = Usage { input_tokens: tokens, output_tokens: 10, cached_tokens: tokens / 20 * 19 };
        let reply = match is_summary(history) {
            true => Reply::text(format!("The codes so far: {seen}")).delay_ms(200),
            false if last.contains("recall") => Reply::text(seen),
            false => Reply::text("noted ".repeat(50)),
        };
        reply.usage(usage)
    })
}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("within a minute")
}

async fn outputs(runtime: &Runtime, thread: ThreadId) -> Vec<Shown> {
    let query = Query::Outputs { thread, after: OutputId::default(), limit: 100_000 };
    match runtime.shards().query(query).await.unwrap() {
        port::Reply::Outputs(outputs, true) => outputs.into_iter().map(|output| output.shown).collect(),
        port::Reply::UnknownThread => Vec::new(),
        other => panic!("{other:?}"),
    }
}

/// Waits until as many summaries were made as were begun, and returns how many.
async fn summaries(runtime: &Runtime, thread: ThreadId) -> usize {
    within(async {
        loop {
            let outputs = outputs(runtime, thread).await;
            let count = |which: fn(&Shown) -> bool| outputs.iter().filter(|shown| which(shown)).count();
            let begun = count(|shown| matches!(shown, Shown::Compacting { .. }));
            assert_eq!(count(|shown| matches!(shown, Shown::NotCompacted { .. })), 0);
            if begun == count(|shown| matches!(shown, Shown::Compacted { .. })) {
                return begun;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

async fn say(runtime: &Runtime, rounds: std::ops::Range<usize>) {
    let mut conversation = runtime.conversation("demo").unwrap();
    for round in rounds {
        conversation.send(format!("Note code-{round}. {}", "x".repeat(400))).await.unwrap();
        within(conversation.receive()).await.unwrap();
    }
}

async fn recalled(runtime: &Runtime) -> BTreeSet<String> {
    let mut conversation = runtime.conversation("demo").unwrap();
    conversation.send("Please recall.").await.unwrap();
    codes(&within(conversation.receive()).await.unwrap())
}

fn all(rounds: usize) -> BTreeSet<String> {
    (0..rounds).map(|round| format!("code-{round}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_conversation_has_short_prompts_and_nothing_is_lost_also_over_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let longest = Arc::new(AtomicUsize::new(0));
    let start = async |directory: &Path| {
        let model = model(longest.clone(), false);
        let config = Slackwater::builder().directory(directory).model(model);
        config.compact_at_tokens(WINDOW_TOKENS * 3 / 4).start().await.unwrap()
    };
    let runtime = start(directory.path()).await;
    let thread = runtime.conversation("demo").unwrap().thread();
    let mut rounds = 0;
    // Until a summary is being made; and there the process stops.
    while !outputs(&runtime, thread).await.iter().any(|shown| matches!(shown, Shown::Compacting { .. })) {
        say(&runtime, rounds..rounds + 1).await;
        rounds += 1;
    }
    within(runtime.stop()).await.unwrap();
    assert!((8..15).contains(&rounds), "the window was crossed after {rounds} rounds");

    let runtime = start(directory.path()).await;
    assert_eq!(summaries(&runtime, thread).await, 1, "it goes on by itself");
    longest.store(0, Ordering::Relaxed);
    assert_eq!(recalled(&runtime).await, all(rounds), "nothing is lost");
    assert!(longest.load(Ordering::Relaxed) < 4_000, "the next prompt is short: {longest:?} bytes");
    for round in rounds..60 {
        say(&runtime, round..round + 1).await;
        summaries(&runtime, thread).await;
    }
    assert_eq!(recalled(&runtime).await, all(60));
    let made = summaries(&runtime, thread).await;
    assert!((4..20).contains(&made), "{made} summaries");
    assert!(longest.load(Ordering::Relaxed) < 12_000, "{longest:?} bytes of 60 rounds of 700");
    let messages = outputs(&runtime, thread).await;
    let messages = messages.iter().filter(|shown| matches!(shown, Shown::Message(_))).count();
    assert_eq!(messages, 62, "the records keep all");
    within(runtime.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_that_does_not_fit_is_summarized_and_tried_again() {
    let longest = Arc::new(AtomicUsize::new(0));
    // Nobody knows the window, until the provider refuses.
    let runtime = Slackwater::builder().model(model(longest.clone(), true)).start().await.unwrap();
    let thread = runtime.conversation("demo").unwrap().thread();
    say(&runtime, 0..40).await;
    assert_eq!(recalled(&runtime).await, all(40));
    assert!(summaries(&runtime, thread).await >= 3);
    let told = outputs(&runtime, thread).await;
    assert!(!told.iter().any(|shown| matches!(shown, Shown::Failure { .. })), "the user has noticed nothing");
    // What does not fit alone is said, and the conversation goes on.
    let mut conversation = runtime.conversation("demo").unwrap();
    conversation.send("y".repeat(50_000)).await.unwrap();
    let error = within(conversation.receive()).await.unwrap_err().to_string();
    assert!(error.contains("What was sent does not fit the model."), "{error}");
    assert_eq!(recalled(&runtime).await, all(40));
    within(runtime.stop()).await.unwrap();
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

#[tokio::test(flavor = "multi_thread")]
async fn the_middle_of_a_long_result_is_read() {
    let longest = Arc::new(AtomicUsize::new(0));
    let most = longest.clone();
    let model = Scripted::from_fn(move |request: &Request| {
        let history = &request.prompt.history;
        most.fetch_max(history.byte_length(), Ordering::Relaxed);
        let last = text(&history.newest_first().take(1).cloned().collect());
        match last.split_once("handle ") {
            _ if last == "look" => Reply::text("I look.").call("look", &json!({})),
            Some((_, rest)) => {
                let handle = rest.split(',').next().unwrap();
                Reply::text("").call("read_result", &json!({"handle": handle, "offset": 99_990, "length": 60}))
            }
            None => Reply::text(format!("I read: {last}")),
        }
    });
    let result = format!("{}the needle is here{}", "a".repeat(100_000), "b".repeat(100_000));
    let whole = result.clone();
    let tool = LocalTool::new("look", "Looks.", move |_: Nothing, _| {
        let result = result.clone();
        async move { Ok::<_, String>(result) }
    });
    let runtime = Slackwater::builder().model(model).tool(tool).start().await.unwrap();
    let mut conversation = runtime.conversation("demo").unwrap();
    conversation.send("look").await.unwrap();
    let said = within(conversation.receive()).await.unwrap();
    assert!(said.contains("aaathe needle is herebbb"), "{said}");
    assert!(longest.load(Ordering::Relaxed) < 40_000);
    // The record keeps all of it, and clients see it.
    let told = outputs(&runtime, conversation.thread()).await;
    let shown = told.iter().any(|shown| match shown {
        Shown::Result(item) => matches!(&**item, Item::Result(answer) if answer.text() == whole),
        _ => false,
    });
    assert!(shown);
    within(runtime.stop()).await.unwrap();
}
