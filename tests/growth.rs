//! What grows, and how fast: bytes on the disk of a whole runtime, per turn, per child, per new byte.
//!
//! In: conversations of many turns, large results, wide trees, idle days. Out: the measured sizes, printed. Always: bytes
//! written do not depend on how long the history is (promise `linear`); who waits costs nothing.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should stop; figures are printed"
)]

use serde_json::json;
use slackwater::clock::Clock;
use slackwater::gateway::Shards;
use slackwater::model::{Reply, Scripted};
use slackwater::sim::Asked;
use slackwater::{LocalTool, Runtime, Slackwater};
use slackwater_core::id::ThreadId;
use slackwater_core::port;
use slackwater_core::port::Query;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A tool whose answer is as long as it is told.
#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Read {
    bytes: usize,
}

/// Starts a runtime on a directory; its model counts its prompts.
async fn start(
    directory: &Path,
    clock: Clock,
    agent: impl Fn(&Asked<'_>) -> Reply + Send + Sync + 'static,
) -> (Runtime, Arc<AtomicU64>) {
    let read = |read: Read, _| async move { Ok::<_, String>(varied(read.bytes)) };
    let prompts = Arc::new(AtomicU64::new(0));
    let counted = prompts.clone();
    let model = Scripted::from_fn(move |request| {
        counted.fetch_add(1, Ordering::SeqCst);
        agent(&Asked { request })
    });
    let builder = Slackwater::builder().directory(directory).clock(clock).model(model);
    (builder.tool(LocalTool::new("read", "Reads.", read)).start().await.unwrap(), prompts)
}

/// Text of this length.
fn varied(bytes: usize) -> String {
    (0..bytes).map(|at| char::from(b'a' + (at * 31 + at / 26 % 7) as u8 % 26)).collect()
}

/// What is on the disk. Everything acknowledged is there.
fn bytes(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(Result::unwrap);
    let segments = entries.filter(|entry| entry.file_name().to_string_lossy().ends_with(".segment"));
    segments.map(|entry| entry.metadata().unwrap().len()).sum()
}

/// Waits until nothing is in memory, so that everything is on the disk.
async fn at_rest(shards: &Shards) {
    let begun = Instant::now();
    while shards.awake() > 0 {
        assert!(begun.elapsed() < Duration::from_secs(300), "{} threads stay in memory", shards.awake());
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Reads so many bytes with one call, then says so.
fn reader(bytes: usize) -> impl Fn(&Asked<'_>) -> Reply {
    move |asked| match asked.result_of("read") {
        Some(_) => Reply::text("I have read it."),
        None => Reply::silence().call("read", &json!({"bytes": bytes})),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_turn_writes_as_much_at_turn_1_000_as_at_turn_10() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, _) = start(directory.path(), Clock::system(), reader(300)).await;
    let mut conversation = runtime.conversation("long").unwrap();
    let mut written = Vec::new();
    let mut done = 0;
    for begin in [10, 100, 1_000] {
        let mut before = 0;
        while done < begin + 10 {
            if done == begin {
                at_rest(&runtime.shards()).await;
                before = bytes(directory.path());
            }
            conversation.send("Read it once more, please.").await.unwrap();
            conversation.receive().await.unwrap();
            done += 1;
        }
        at_rest(&runtime.shards()).await;
        written.push((bytes(directory.path()) - before) / 10);
    }
    println!("bytes a turn at turn 10, 100 and 1,000: {written:?}");
    for other in &written[1..] {
        assert!(other.abs_diff(written[0]) * 20 <= written[0], "{written:?}");
    }
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn twice_the_turns_are_twice_the_bytes() {
    let mut sizes = Vec::new();
    for turns in [100, 200] {
        let directory = tempfile::tempdir().unwrap();
        let (runtime, _) = start(directory.path(), Clock::system(), reader(2_000)).await;
        let mut conversation = runtime.conversation("turns").unwrap();
        for _ in 0..turns {
            conversation.send("On.").await.unwrap();
            conversation.receive().await.unwrap();
        }
        at_rest(&runtime.shards()).await;
        sizes.push(bytes(directory.path()));
        runtime.stop().await.unwrap();
    }
    println!("bytes of 100 and 200 turns: {sizes:?}");
    assert!(sizes[1] * 10 <= sizes[0] * 21, "{sizes:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_large_results_on_a_large_history_write_little_more_than_themselves() {
    const CALLS: usize = 100;
    const RESULT: usize = 5_000;
    let directory = tempfile::tempdir().unwrap();
    let agent = |asked: &Asked<'_>| {
        // The large message is the first, and is answered at once.
        let turn = asked.turn();
        if turn == 1 || turn == CALLS + 2 {
            return Reply::text("Done.");
        }
        Reply::silence().call("read", &json!({"bytes": RESULT}))
    };
    let (runtime, prompts) = start(directory.path(), Clock::system(), agent).await;
    let mut conversation = runtime.conversation("large").unwrap();
    // 200,000 tokens are about 800 KB.
    conversation.send(varied(800_000)).await.unwrap();
    conversation.receive().await.unwrap();
    at_rest(&runtime.shards()).await;
    let before = bytes(directory.path());
    conversation.send("Read all of them.").await.unwrap();
    conversation.receive().await.unwrap();
    at_rest(&runtime.shards()).await;
    let written = bytes(directory.path()) - before;
    println!(
        "{CALLS} results of {RESULT} bytes on 800 KB: {written} bytes written, {} prompts",
        prompts.load(Ordering::SeqCst)
    );
    assert_eq!(prompts.load(Ordering::SeqCst), CALLS as u64 + 2);
    assert!(written * 10 <= (CALLS * RESULT * 12) as u64, "{written}");
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_50_mb_goes_on_also_after_a_restart() {
    const MESSAGES: usize = 50;
    const MESSAGE: usize = 1_000_000;
    let directory = tempfile::tempdir().unwrap();
    let agent = |asked: &Asked<'_>| {
        let seen: usize = asked.lines().iter().filter(|line| line.starts_with("user: ")).map(String::len).sum();
        Reply::text(format!("{seen} bytes"))
    };
    let (runtime, _) = start(directory.path(), Clock::system(), agent).await;
    let mut conversation = runtime.conversation("huge").unwrap();
    for _ in 0..MESSAGES {
        conversation.send(varied(MESSAGE)).await.unwrap();
        conversation.receive().await.unwrap();
    }
    runtime.stop().await.unwrap();
    let written = bytes(directory.path());
    assert!(written * 100 <= (MESSAGES * MESSAGE * 101) as u64, "{written}");

    let (runtime, _) = start(directory.path(), Clock::system(), agent).await;
    let mut conversation = runtime.conversation("huge").unwrap();
    conversation.send("how much?").await.unwrap();
    let said = conversation.receive().await.unwrap();
    assert_eq!(said, format!("{} bytes", MESSAGES * (MESSAGE + 6) + 15));
    // Who looks at it gets it in pieces that are bounded.
    let thread = conversation.thread();
    let ask = async |query| runtime.shards().query(query).await.unwrap();
    let port::Reply::View(view) = ask(Query::View { thread, after: 0, limit: 100 }).await else { panic!("no view") };
    assert_eq!((view.total, view.items.len()), (2 * MESSAGES + 2, 16), "8 MiB a page");
    runtime.stop().await.unwrap();
}

/// Makes children, sixteen a turn, until as many are made as its task or its message says; a child whose task is no number
/// has nothing to do.
fn maker(asked: &Asked<'_>) -> Reply {
    let lines = asked.lines();
    let task = |line: &String| {
        let told =
            line.rsplit_once("Your task is this: ").map(|(_, task)| task).or_else(|| line.strip_prefix("user: "));
        told.map(|task| task.strip_prefix("make ").and_then(|count| count.parse().ok()).unwrap_or(0))
    };
    let given = lines.iter().rposition(|line| task(line).is_some()).unwrap();
    let wanted: usize = task(&lines[given]).unwrap();
    let made = lines[given + 1..].iter().filter(|line| line.starts_with("spawn_thread: The child")).count();
    let is_root = !lines.iter().any(|line| line.starts_with("spawn_thread: You are the child"));
    // What the root's children do, one message makes; what theirs do is nothing.
    let below = if is_root && wanted == 1 { "make 99" } else { "look" };
    let path = if is_root { vec![] } else { vec![asked.thread().to_string()] };
    let spawn = json!({"instructions": below, "child_of": path});
    let more = (wanted - made).min(16);
    if more == 0 {
        Reply::text("ok")
    } else {
        (0..more).fold(Reply::silence(), |reply, _| reply.call("spawn_thread", &spawn))
    }
}

/// Waits until so many prompts were answered and nothing is in memory.
async fn answered(runtime: &Runtime, prompts: &AtomicU64, count: u64) {
    let begun = Instant::now();
    while prompts.load(Ordering::SeqCst) < count || runtime.shards().awake() > 0 {
        let seen = prompts.load(Ordering::SeqCst);
        assert!(begun.elapsed() < Duration::from_secs(300), "{seen} of {count} prompts were answered");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_of_10_000_children_adds_at_most_1_kb_a_child_to_a_parent_of_50_kb() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, prompts) = start(directory.path(), Clock::system(), maker).await;
    let mut conversation = runtime.conversation("wide").unwrap();
    conversation.send(varied(50_000)).await.unwrap();
    answered(&runtime, &prompts, 1).await;
    let (before, begun) = (bytes(directory.path()), Instant::now());
    for round in 0..100 {
        conversation.send("make 1").await.unwrap();
        // The root twice, its child eight times (seven turns of calls and the last word), and each of the 99 once.
        answered(&runtime, &prompts, 1 + (round + 1) * (2 + 8 + 99)).await;
    }
    let each = (bytes(directory.path()) - before) / 10_000;
    println!("a tree of 10,000 below 50 KB: {each} bytes a child, in {:?}", begun.elapsed());
    assert!(each <= 1_000, "{each} bytes a child");
    let (page, next) = runtime.shards().threads(None, usize::MAX).await.unwrap();
    assert!(page.len() == 500 && next == Some(page[499].thread), "a page is bounded, and says that it is not the last");
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_costs_the_same_whether_it_is_the_first_or_the_thousandth_of_its_parent() {
    let directory = tempfile::tempdir().unwrap();
    let (runtime, prompts) = start(directory.path(), Clock::system(), maker).await;
    let mut conversation = runtime.conversation("wide").unwrap();
    conversation.send(varied(50_000)).await.unwrap();
    answered(&runtime, &prompts, 1).await;
    let mut each = Vec::new();
    for half in 1..=2 {
        let before = bytes(directory.path());
        conversation.send("make 512").await.unwrap();
        answered(&runtime, &prompts, 1 + half * (33 + 512)).await;
        each.push((bytes(directory.path()) - before) / 512);
    }
    println!("the first and the second 512 children of 50 KB: {each:?} bytes each");
    assert!(each[0] <= 1_000 && each[0].abs_diff(each[1]) * 20 <= each[0], "{each:?}");
    let thread: ThreadId = conversation.thread();
    let reply = runtime.shards().query(Query::Thread(thread)).await.unwrap();
    let port::Reply::Thread(standing) = reply else { panic!("{reply:?}") };
    assert_eq!(standing.children, 1_024);
    runtime.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_agents_that_idle_for_a_day_ask_their_models_nothing() {
    const AGENTS: u64 = 100;
    const HOUR_MS: u64 = 3_600_000;
    let directory = tempfile::tempdir().unwrap();
    let clock = Clock::manual(1_900_000_000_000);
    // A third has finished, a third waits for anything, a third sleeps for two days.
    let agent = |asked: &Asked<'_>| match asked.last_message().as_deref() {
        Some("wait") if asked.turn() == 1 => Reply::silence().call("sleep_until_event_or_input", &json!({})),
        Some("sleep") if asked.turn() == 1 => Reply::silence().call("sleep", &json!({"seconds": 2 * 24 * 3600})),
        _ => Reply::text("Good."),
    };
    let (runtime, prompts) = start(directory.path(), clock.clone(), agent).await;
    for agent in 0..AGENTS {
        let mut conversation = runtime.conversation(&format!("agent-{agent}")).unwrap();
        conversation.send(["rest", "wait", "sleep"][agent as usize % 3]).await.unwrap();
    }
    while prompts.load(Ordering::SeqCst) < AGENTS {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    at_rest(&runtime.shards()).await;
    let before = (prompts.load(Ordering::SeqCst), bytes(directory.path()));
    for _ in 0..24 {
        clock.advance(HOUR_MS);
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(runtime.shards().awake(), 0);
    }
    assert_eq!((prompts.load(Ordering::SeqCst), bytes(directory.path())), before, "a day has cost something");
    // The clock does go on for them: another day, and the sleepers wake.
    clock.advance(24 * HOUR_MS);
    let begun = Instant::now();
    while prompts.load(Ordering::SeqCst) < before.0 + AGENTS / 3 {
        assert!(begun.elapsed() < Duration::from_secs(60), "the sleepers do not wake");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    runtime.stop().await.unwrap();
}
