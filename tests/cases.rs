//! Faults that users of other systems met, each tried here in a whole runtime.
//!
//! In: the situation in which it happened there. Out: what is right here. Always: the runtime is the embedded one, with a
//! journal on disk where something has to last.
//!
//! | kind of fault | kept by |
//! | --- | --- |
//! | state grows faster than what is said | `what_was_streamed_is_kept_once`, `linear` |
//! | a message is lost at a turn's edge | `a_message_at_any_chunk_of_a_turn_is_in_the_next_prompt` |
//! | of several calls the wrong one runs | `all_calls_of_a_turn_run_once_and_each_has_its_result` |
//! | what is unrelated repeats a call | `a_hundred_events_repeat_no_open_call` |
//! | two processes on one state | `an_overlap_of_two_processes_is_refused_and_harms_nothing` |
//! | waiting agents do not survive new code | `agents_that_wait_wake_on_new_code` |
//! | a continuation is lost between a result and the next request | `a_crash_between_a_result_and_the_next_prompt_loses_no_turn` (`sim`) |
//! | a stop loses a result | `a_stop_loses_no_result` (`sim`) |
//! | what is unsigned, forged or another's is taken | `origin_is_proven` (`gateway`) |
//! | a reconnect loses or repeats outputs | `streams` (`gateway`), the storm |

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

use futures::future::BoxFuture;
use serde_json::json;
use slackwater::model::{Answer, Model, ModelError, Reply, Request, Scripted, Sink};
use slackwater::{LocalTool, Runtime, Slackwater};
use slackwater_core::effect::Outcome;
use slackwater_core::history::{AnsweredBy, Item};
use slackwater_core::id::{CallId, InputId, ThreadId};
use slackwater_core::record::{
    Block, Content, Deliver, End, Origin, Proof, Record, SubscriptionEvent, ToolResult, Usage,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Nothing {}

async fn within<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(120), what).await.expect("within two minutes")
}

fn newest(request: &Request) -> &Item {
    request.prompt.history.newest_first().next().unwrap()
}

fn text(content: &[Content]) -> String {
    match content {
        [Content::Text(text), ..] => text.clone(),
        other => format!("{other:?}"),
    }
}

fn bytes_in(directory: &Path) -> u64 {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).sum()
}

/// Waits until a thread is as it should be.
async fn until(runtime: &Runtime, thread: ThreadId, like: impl Fn(&slackwater_core::thread::Standing) -> bool) {
    use slackwater_core::port::{Query, Reply};
    within(async {
        loop {
            if let Ok(Reply::Thread(standing)) = runtime.shards().query(Query::Thread(thread)).await
                && like(&standing)
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// An agent that has said 24 MB waits; the disk holds what it said once.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_streamed_is_kept_once() {
    const SAID: usize = 24 << 20;
    let directory = tempfile::tempdir().unwrap();
    let model = Scripted::from_fn(|request: &Request| match newest(request) {
        Item::User { .. } => Reply::text("tide ".repeat(SAID / 5)).call("sleep_until_event_or_input", &json!({})),
        _ => Reply::text("awake"),
    });
    let runtime = Slackwater::builder().directory(directory.path()).model(model).start().await.unwrap();
    let mut conversation = runtime.conversation("long").unwrap();
    conversation.send("tell me all").await.unwrap();
    until(&runtime, conversation.thread(), |standing| standing.state == slackwater_core::thread::State::Sleeping).await;
    within(runtime.stop()).await.unwrap();
    let kept = bytes_in(directory.path());
    assert!(kept as f64 <= 1.1 * SAID as f64, "{kept} bytes for {SAID}");
}

/// Streams fifty chunks; of each thread's first prompt as many as its message says, and then nothing until it is cut.
struct Chunks {
    reached: mpsc::UnboundedSender<ThreadId>,
    prompts: Arc<Mutex<BTreeMap<ThreadId, Vec<String>>>>,
}

const CHUNKS: usize = 50;

impl Model for Chunks {
    fn name(&self) -> &str {
        "chunks"
    }

    fn complete<'a>(&'a self, request: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move {
            let thread = request.prompt.thread;
            let said = |item: &Item| match item {
                Item::User { content, .. } => text(content),
                Item::Assistant { blocks, cut, .. } => format!("{cut}: {blocks:?}"),
                other => format!("{other:?}"),
            };
            let items: Vec<String> = request.prompt.history.to_vec().into_iter().map(|item| said(item)).collect();
            let stop_after: Option<usize> = (items.len() == 1).then(|| items[0].parse().unwrap());
            self.prompts.lock().unwrap().insert(thread, items);
            let mut all = String::new();
            for chunk in 0..CHUNKS {
                if stop_after == Some(chunk) {
                    self.reached.send(thread).unwrap();
                    std::future::pending::<()>().await;
                }
                let piece = format!("{chunk} ");
                all.push_str(&piece);
                sink.text(piece);
            }
            if stop_after.is_some() {
                // The turn's edge: the answer and the message race.
                self.reached.send(thread).unwrap();
            }
            let blocks = vec![Block::Text(all)];
            Ok(Answer { blocks, end: End::Finished, usage: Usage::default(), model: "chunks".to_owned() })
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_at_any_chunk_of_a_turn_is_in_the_next_prompt() {
    let (reached, mut at) = mpsc::unbounded_channel();
    let prompts: Arc<Mutex<BTreeMap<ThreadId, Vec<String>>>> = Arc::default();
    let model = Chunks { reached, prompts: prompts.clone() };
    let runtime = Slackwater::builder().model(model).start().await.unwrap();
    for stop_after in 0..=CHUNKS {
        let mut conversation = runtime.conversation(&format!("turn-{stop_after}")).unwrap();
        conversation.send(stop_after.to_string()).await.unwrap();
        assert_eq!(within(at.recv()).await, Some(conversation.thread()));
        conversation.send("steer").await.unwrap();
        until(&runtime, conversation.thread(), |standing| {
            standing.state == slackwater_core::thread::State::Idle && standing.pending == 0
        })
        .await;
        let seen = prompts.lock().unwrap()[&conversation.thread()].clone();
        assert_eq!(seen.last().map(String::as_str), Some("steer"), "after {stop_after} chunks: {seen:?}");
        let said: Vec<String> = (0..stop_after).map(|chunk| format!("{chunk} ")).collect();
        match stop_after {
            // What was cut before it had said anything leaves nothing; at the edge the turn may be whole.
            0 => assert_eq!(seen.len(), 2, "{seen:?}"),
            CHUNKS => assert!(seen[1].contains(&said.concat()), "{seen:?}"),
            _ => assert!(seen[1].starts_with("true") && seen[1].contains(&said.concat()), "{seen:?}"),
        }
    }
    within(runtime.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn all_calls_of_a_turn_run_once_and_each_has_its_result() {
    struct Interleaved;
    impl Model for Interleaved {
        fn name(&self) -> &str {
            "interleaved"
        }

        fn complete<'a>(
            &'a self,
            request: &'a Request,
            sink: &'a mut Sink,
        ) -> BoxFuture<'a, Result<Answer, ModelError>> {
            let call = |name: &str, n: u32| Block::Call {
                provider_id: format!("call_{n}"),
                name: name.to_owned(),
                arguments: json!({"n": n}).to_string(),
            };
            let think = |text: &str| Block::Reasoning { text: text.to_owned(), sealed: None };
            let blocks = match newest(request) {
                Item::User { .. } => vec![
                    think("first"),
                    call("square", 2),
                    Block::Text("and".to_owned()),
                    call("cube", 3),
                    think("last"),
                    call("square", 4),
                ],
                _ => {
                    let results = request.prompt.history.to_vec().into_iter().filter_map(|item| match &**item {
                        Item::Result(answer) => Some(format!("{}={}", answer.provider_id, text(&answer.content))),
                        _ => None,
                    });
                    vec![Block::Text(results.collect::<Vec<_>>().join(" "))]
                }
            };
            if let Some(Block::Text(text)) = blocks.last() {
                sink.text(text.clone());
            }
            Box::pin(async move {
                Ok(Answer { blocks, end: End::Finished, usage: Usage::default(), model: "interleaved".to_owned() })
            })
        }
    }
    #[derive(serde::Deserialize, schemars::JsonSchema)]
    struct Number {
        n: u64,
    }
    let runs = Arc::new(AtomicUsize::new(0));
    let tool = |name: &str, power: u32| {
        let runs = runs.clone();
        LocalTool::new(name, "Raises a number.", move |Number { n }: Number, _| {
            runs.fetch_add(1, Ordering::SeqCst);
            async move { Ok::<_, String>(n.pow(power).to_string()) }
        })
    };
    let builder = Slackwater::builder().model(Interleaved).tool(tool("square", 2)).tool(tool("cube", 3));
    let runtime = builder.start().await.unwrap();
    let mut conversation = runtime.conversation("sums").unwrap();
    conversation.send("go").await.unwrap();
    let mut results: Vec<String> =
        within(conversation.receive()).await.unwrap().split(' ').map(str::to_owned).collect();
    results.sort();
    assert_eq!(results, ["call_2=4", "call_3=27", "call_4=16"]);
    assert_eq!(runs.load(Ordering::SeqCst), 3);
    within(runtime.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_events_repeat_no_open_call() {
    let effects = Arc::new(AtomicUsize::new(0));
    let (finish, finished) = tokio::sync::watch::channel(false);
    let count = effects.clone();
    let build = LocalTool::new("build", "Builds.", move |_: Nothing, _| {
        count.fetch_add(1, Ordering::SeqCst);
        let mut finished = finished.clone();
        async move {
            finished.wait_for(|finished| *finished).await.map_err(|error| error.to_string())?;
            Ok::<_, String>("green".to_owned())
        }
    });
    let watch = LocalTool::new("watch", "Watches.", |_: Nothing, _| std::future::pending::<Result<String, String>>());
    let model = Scripted::from_fn(|request: &Request| match newest(request) {
        Item::User { .. } => Reply::text("").call("watch", &json!({})),
        Item::Result(answer) if answer.name == "watch" => Reply::text("").call("build", &json!({})),
        _ => {
            let events = request.prompt.history.newest_first().filter(|item| matches!(&***item, Item::Event(_)));
            Reply::text(format!("{} events", events.count()))
        }
    });
    let runtime = Slackwater::builder().model(model).tool(build).tool(watch).start().await.unwrap();
    let mut conversation = runtime.conversation("busy").unwrap();
    conversation.send("go").await.unwrap();
    let (thread, subscription) = (conversation.thread(), CallId { number: 2, index: 0 });
    until(&runtime, thread, |standing| !standing.waits.is_empty() && standing.last >= 2).await;
    let origin = || Origin { who: "test".to_owned(), proof: Proof::Process };
    let watching = Record::Result(ToolResult {
        call: subscription,
        origin: origin(),
        content: vec![Content::Text("watching".to_owned())],
        is_error: false,
        subscription: true,
        display: None,
    });
    assert!(matches!(runtime.shards().submit(thread, watching).await, Ok(Outcome::Taken(_))));
    within(async {
        while effects.load(Ordering::SeqCst) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    for event in 0..100 {
        let event = SubscriptionEvent {
            subscription,
            id: InputId(event.to_string()),
            origin: origin(),
            content: vec![Content::Text(format!("event {event}"))],
            associative: true,
            last: false,
            deliver: Some(Deliver::Inline),
        };
        assert!(matches!(runtime.shards().submit(thread, Record::Event(event)).await, Ok(Outcome::Taken(_))));
    }
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    finish.send(true).unwrap();
    assert_eq!(within(conversation.receive()).await.unwrap(), "100 events");
    assert_eq!(effects.load(Ordering::SeqCst), 1);
    within(runtime.stop()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_overlap_of_two_processes_is_refused_and_harms_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let builder = || {
        let model =
            Scripted::from_fn(|request: &Request| Reply::text(format!("item {}", request.prompt.history.len())));
        Slackwater::builder().directory(directory.path()).model(model)
    };
    for life in 0..20_usize {
        let runtime = builder().start().await.unwrap();
        let mut conversation = runtime.conversation("one").unwrap();
        conversation.send("before").await.unwrap();
        let refused = builder().start().await.err().expect("one process owns a directory").to_string();
        assert!(refused.contains("is in use by process"), "{refused}");
        assert_eq!(within(conversation.receive()).await.unwrap(), format!("item {}", 4 * life + 1));
        conversation.send("after").await.unwrap();
        assert_eq!(within(conversation.receive()).await.unwrap(), format!("item {}", 4 * life + 3));
        within(runtime.stop()).await.unwrap();
    }
}

/// The system text, the model's code and the tools are others after the restart; whoever waited does so no more.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_wait_wake_on_new_code() {
    const AGENTS: usize = 1_000;
    let directory = tempfile::tempdir().unwrap();
    let old = LocalTool::new("old_build", "Builds.", |_: Nothing, _| std::future::pending::<Result<String, String>>());
    let model = Scripted::from_fn(|request: &Request| match text_of(newest(request)).as_str() {
        "build" => Reply::text("").call("old_build", &json!({})),
        _ => Reply::text("").call("sleep_until_event_or_input", &json!({})),
    });
    let builder = Slackwater::builder().directory(directory.path()).system("Old.").model(model).tool(old);
    let runtime = builder.start().await.unwrap();
    for agent in 0..AGENTS {
        let mut conversation = runtime.conversation(&format!("agent-{agent}")).unwrap();
        conversation.send(if agent % 10 == 0 { "build" } else { "wait" }).await.unwrap();
    }
    for agent in 0..AGENTS {
        let thread = runtime.conversation(&format!("agent-{agent}")).unwrap().thread();
        until(&runtime, thread, |standing| standing.last >= 2).await;
    }
    within(runtime.stop()).await.unwrap();

    let model = Scripted::from_fn(|request: &Request| {
        assert_eq!(&*request.system, "New.");
        let results: Vec<AnsweredBy> = request
            .prompt
            .history
            .newest_first()
            .filter_map(|item| if let Item::Result(answer) = &**item { Some(answer.by) } else { None })
            .collect();
        // The answer of a call whose tool is no more may come late, and then it stands after the message in one prompt.
        let is_awake = request.prompt.history.newest_first().any(|item| text_of(item) == "wake");
        Reply::text(format!("{}: {results:?}", if is_awake { "awake" } else { "not yet" }))
    });
    let runtime = Slackwater::builder().directory(directory.path()).system("New.").model(model).start().await.unwrap();
    for agent in 0..AGENTS {
        let mut conversation = runtime.conversation(&format!("agent-{agent}")).unwrap();
        conversation.send("wake").await.unwrap();
        // The call is refused before the message comes, or interrupted by it.
        let expected: &[&str] = match agent % 10 {
            0 => &["awake: [Refusal]", "awake: [Interrupted]"],
            _ => &["awake: [BuiltIn]"],
        };
        // A refusal that comes first has a turn of its own, which the message may cut at any chunk.
        let heard = within(async {
            loop {
                let heard = conversation.receive().await.unwrap();
                if heard.starts_with("awake") {
                    return heard;
                }
                assert!("not yet: [Refusal]".starts_with(&heard), "agent {agent}: {heard}");
            }
        })
        .await;
        assert!(expected.contains(&heard.as_str()), "agent {agent}: {heard}");
    }
    within(runtime.stop()).await.unwrap();
}

fn text_of(item: &Item) -> String {
    match item {
        Item::User { content, .. } => text(content),
        Item::Result(answer) => text(&answer.content),
        other => format!("{other:?}"),
    }
}
