//! The queue and the scripted model, seen from the flow.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use super::*;
use crate::catalog::Catalog;
use crate::port::{FromAdapter, ToAdapter};
use futures::StreamExt;
use slackwater_core::history::{Answered, AnsweredBy, Event, History, Item};
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::{FromModel, Part, ToModel};
use slackwater_core::record::{Bounds, CompactWhy, Completion, Content, Failure, Record, Terms};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn thread(n: u8) -> ThreadId {
    ThreadId::from_bytes([n; 16])
}

pub(super) fn text(text: &str) -> Vec<Content> {
    vec![Content::Text(text.to_owned())]
}

pub(super) fn user(number: u64, says: &str) -> Item {
    Item::User { number, content: text(says) }
}

pub(super) fn prompt(items: impl IntoIterator<Item = Item>) -> Prompt {
    let history: History = items.into_iter().map(Arc::new).collect();
    Prompt { thread: thread(1), seen: history.len() as u64, history, terms: Terms::default(), bounds: Bounds::DEFAULT }
}

pub(super) fn quick() -> Limits {
    Limits { backoff_first_ms: 1, backoff_max_ms: 2, ..Limits::default() }
}

pub(super) fn started(model: impl Model, limits: Limits) -> (FromAdapter<FromModel>, ToAdapter<ToModel>) {
    start(Arc::new(model), "Be brief.".into(), Catalog::default(), limits, Bounds::DEFAULT)
}

/// The answer to the one prompt under way, and what was streamed before it.
pub(super) async fn answer(from: &mut FromAdapter<FromModel>) -> (Record, Vec<Part>) {
    let mut parts = Vec::new();
    loop {
        match from.next().await.unwrap() {
            FromModel::Chunks(chunks) => parts.extend(chunks.into_iter().map(|chunk| chunk.part)),
            FromModel::Answer(arrival) => {
                assert_eq!(arrival.ticket, None);
                assert!(arrival.at_ms > 1_600_000_000_000);
                return (arrival.record, parts);
            }
        }
    }
}

pub(super) fn completion(record: Record) -> Completion {
    match record {
        Record::Completion(completion) => completion,
        other => panic!("expected a completion, got {other:?}"),
    }
}

pub(super) fn failure(record: Record) -> Failure {
    match record {
        Record::Failure(failure) => failure,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// The pieces of the one prompt under way that come next.
pub(super) async fn streamed_parts(from: &mut FromAdapter<FromModel>) -> Vec<Part> {
    match from.next().await {
        Some(FromModel::Chunks(chunks)) => chunks.into_iter().map(|chunk| chunk.part).collect(),
        other => panic!("expected pieces, got {other:?}"),
    }
}

/// Asserts that the adapter says nothing more, by asking something else and getting nothing but its answer.
pub(super) async fn nothing_more(from: &mut FromAdapter<FromModel>, to: &ToAdapter<ToModel>) {
    let last = Prompt { thread: thread(99), ..prompt([user(1, "last")]) };
    to.put(ToModel::Prompt(last));
    loop {
        match from.next().await.unwrap() {
            FromModel::Chunks(chunks) => assert!(chunks.iter().all(|chunk| chunk.thread == thread(99))),
            FromModel::Answer(arrival) => return assert_eq!(arrival.thread, thread(99)),
        }
    }
}

#[tokio::test]
async fn a_prompt_is_answered_once_with_what_was_streamed() {
    let script = r#"
        [[rule]]
        think = "Hm."
        say = "Hello, {message}!"
        call = [{ tool = "look", arguments = { at = "{message}", deep = [1, "{turn}"] } }]
    "#;
    let (mut from, to) = started(Scripted::from_toml(script).unwrap(), quick());
    let asked = prompt([user(1, "old world")]);
    to.put(ToModel::Prompt(asked.clone()));
    let (record, parts) = answer(&mut from).await;
    let completion = completion(record);
    assert_eq!(completion.seen, 1);
    assert_eq!((completion.end, completion.model.as_str()), (End::Finished, "scripted"));
    assert_eq!(
        completion.blocks,
        [
            Block::Reasoning { text: "Hm.".into(), sealed: None },
            Block::Text("Hello, old world!".into()),
            Block::Call {
                provider_id: "scripted_1_0".into(),
                name: "look".into(),
                arguments: r#"{"at":"old world","deep":[1,"1"]}"#.into()
            },
        ]
    );
    let words = ["Hello, ", "old ", "world!"].map(|word| Part::Text(word.into()));
    assert_eq!(parts, [[Part::Started, Part::Reasoning("Hm.".into())].as_slice(), &words].concat());
    // Asked again after its answer it is asked again; cut after its answer it is left alone.
    to.put(ToModel::Cut { thread: asked.thread, seen: asked.seen });
    to.put(ToModel::Cut { thread: asked.thread, seen: 77 });
    nothing_more(&mut from, &to).await;
}

#[tokio::test]
async fn a_prompt_that_an_operator_refuses_fails_for_its_reason() {
    let (mut from, to) = started(Scripted::default_script(), quick());
    to.put(ToModel::Refuse(prompt([user(1, "hello")]), "no money".into()));
    let FromModel::Answer(arrival) = from.next().await.unwrap() else { panic!("it was asked all the same") };
    let failure = failure(arrival.record);
    assert_eq!((failure.class, failure.message.as_str(), failure.seen), (FailureClass::Fatal, "no money", 1));
    nothing_more(&mut from, &to).await;
}

/// A model that says numbered words, one each time it is let.
struct Paced {
    go: Arc<tokio::sync::Semaphore>,
    words: usize,
}

impl Model for Paced {
    fn name(&self) -> &str {
        "paced"
    }

    fn complete<'a>(&'a self, _: &'a Request, sink: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
        Box::pin(async move {
            for word in 0..self.words {
                self.go.acquire().await.unwrap().forget();
                sink.reasoning("hm".into());
                sink.usage(Usage { output_tokens: word as u64 + 1, ..Usage::default() });
                sink.text(format!("{word} "));
            }
            std::future::pending::<()>().await;
            unreachable!("it is cut before")
        })
    }
}

#[tokio::test]
async fn a_cut_at_any_chunk_keeps_exactly_the_text_so_far() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let (mut from, to) = started(Paced { go: go.clone(), words: 50 }, quick());
    for words in 0..=50_usize {
        let asked = Prompt { seen: words as u64 + 1, ..prompt([user(1, "count")]) };
        to.put(ToModel::Prompt(asked.clone()));
        assert_eq!(streamed_parts(&mut from).await, [Part::Started]);
        let mut streamed = String::new();
        for _ in 0..words {
            go.add_permits(1);
            // What it streams before it waits again is one item.
            let parts = streamed_parts(&mut from).await;
            let [Part::Reasoning(_), Part::Text(text)] = &parts[..] else { panic!("expected text, got {parts:?}") };
            streamed.push_str(text);
        }
        to.put(ToModel::Cut { thread: asked.thread, seen: asked.seen });
        to.put(ToModel::Cut { thread: asked.thread, seen: asked.seen });
        let (record, rest) = answer(&mut from).await;
        let completion = completion(record);
        assert_eq!(rest, []);
        assert_eq!(
            (completion.seen, completion.end, completion.usage.output_tokens),
            (asked.seen, End::Cut, words as u64)
        );
        assert_eq!(streamed.split_whitespace().count(), words);
        assert_eq!(completion.blocks, if words == 0 { vec![] } else { vec![Block::Text(streamed)] });
    }
}

#[tokio::test]
async fn prompts_wait_in_order_and_only_so_many_are_asked_at_a_time() {
    let at_once = Arc::new(AtomicUsize::new(0));
    let order = Arc::new(Mutex::new(Vec::new()));
    struct Counting(Arc<AtomicUsize>, Arc<Mutex<Vec<u64>>>);
    impl Model for Counting {
        fn name(&self) -> &str {
            "counting"
        }
        fn complete<'a>(&'a self, request: &'a Request, _: &'a mut Sink) -> BoxFuture<'a, Result<Answer, ModelError>> {
            Box::pin(async move {
                self.1.lock().unwrap().push(request.prompt.seen);
                assert!(self.0.fetch_add(1, Ordering::SeqCst) < 3, "more than three at a time");
                tokio::task::yield_now().await;
                self.0.fetch_sub(1, Ordering::SeqCst);
                Ok(Answer { blocks: vec![], end: End::Finished, usage: Usage::default(), model: String::new() })
            })
        }
    }
    let (mut from, to) = started(Counting(at_once, order.clone()), Limits { prompts_at_once: 3, ..quick() });
    let asked = prompt([user(1, "hello")]);
    for seen in 1..=1000 {
        to.put(ToModel::Prompt(Prompt { seen, ..asked.clone() }));
        if seen % 10 == 0 {
            // The same prompt again while it waits is the same prompt.
            to.put(ToModel::Prompt(Prompt { seen, ..asked.clone() }));
            // One that is cut while it waits is answered at once and never asked.
            to.put(ToModel::Cut { thread: asked.thread, seen });
        }
    }
    let mut answered = Vec::new();
    while answered.len() < 1000 {
        let (record, _) = answer(&mut from).await;
        let completion = completion(record);
        if completion.end == End::Cut {
            assert_eq!((completion.blocks.len(), completion.seen % 10), (0, 0));
        }
        answered.push(completion.seen);
    }
    answered.sort_unstable();
    assert_eq!(answered, (1..=1000).collect::<Vec<_>>());
    let order = order.lock().unwrap().clone();
    assert_eq!(order, (1..=1000).filter(|seen| seen % 10 != 0).collect::<Vec<_>>());
    nothing_more(&mut from, &to).await;
}

#[tokio::test]
async fn what_breaks_off_is_void_and_tried_again() {
    let model =
        Scripted::from_fn(|_| Reply::text("one two three").fails(FailureClass::Transient, "the line went dead", 2, 2));
    let (mut from, to) = started(model, quick());
    to.put(ToModel::Prompt(prompt([user(1, "count")])));
    let (record, parts) = answer(&mut from).await;
    assert_eq!(completion(record).blocks, [Block::Text("one two three".into())]);
    let broken = [Part::Text("one ".into()), Part::Text("two ".into()), Part::Void];
    let whole = ["one ", "two ", "three"].map(|word| Part::Text(word.into()));
    assert_eq!(parts, [[Part::Started].as_slice(), &broken, &broken, &whole].concat());
}

#[tokio::test]
async fn retries_are_bounded_over_the_whole_completion() {
    for (class, attempts) in [
        (FailureClass::Transient, 4),
        (FailureClass::Throttled, 4),
        (FailureClass::Overflow, 1),
        (FailureClass::Fatal, 1),
    ] {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = asked.clone();
        let model = Scripted::from_fn(move |request| {
            assert_eq!(count.fetch_add(1, Ordering::SeqCst) + 1, request.attempt as usize);
            Reply::text("one two").fails(class, "no", u32::MAX, 1)
        });
        let (mut from, to) = started(model, quick());
        to.put(ToModel::Prompt(prompt([user(1, "count")])));
        let (record, parts) = answer(&mut from).await;
        assert_eq!(failure(record), Failure { seen: 1, class, message: "no".into(), attempts });
        assert_eq!(asked.load(Ordering::SeqCst), attempts as usize);
        assert_eq!(parts.iter().filter(|part| **part == Part::Void).count(), attempts as usize);
        assert_eq!(parts.last(), Some(&Part::Void));
    }
}

#[tokio::test]
async fn an_attempt_that_never_ends_is_ended() {
    let go = Arc::new(tokio::sync::Semaphore::new(0));
    let (mut from, to) = started(Paced { go, words: 1 }, Limits { attempts_max: 2, attempt_timeout_ms: 30, ..quick() });
    to.put(ToModel::Prompt(prompt([user(1, "hello")])));
    let failure = failure(answer(&mut from).await.0);
    assert_eq!((failure.class, failure.attempts), (FailureClass::Transient, 2));
    assert_eq!(failure.message, "paced did not finish its answer within 0.03 s");
}

#[tokio::test]
async fn a_model_that_panics_ends_its_prompt_and_nothing_else() {
    let model = Scripted::from_fn(|request| {
        assert!(request.prompt.thread == thread(99), "made to panic by a test");
        Reply::text("fine")
    });
    let (mut from, to) = started(model, quick());
    to.put(ToModel::Prompt(prompt([user(1, "hello")])));
    assert_eq!(failure(answer(&mut from).await.0).class, FailureClass::Fatal);
    nothing_more(&mut from, &to).await;
}

#[tokio::test]
async fn the_tools_are_the_catalogs_and_the_built_in_ones() {
    let catalog = Catalog::default();
    let tool = |name: &str| ToolSpec {
        name: name.into(),
        description: String::new(),
        schema: serde_json::json!({}),
        annotations: None,
    };
    let seen = Arc::new(Mutex::new(Vec::new()));
    let keep = seen.clone();
    let model = Scripted::from_fn(move |request| {
        keep.lock().unwrap().push(request.tools.clone());
        Reply::text("fine")
    });
    let (mut from, to) = start(Arc::new(model), "".into(), catalog.clone(), quick(), Bounds::DEFAULT);
    for seen in 1..=3 {
        if seen != 2 {
            catalog.offer("test", vec![tool(&format!("look_{seen}")), tool("sleep"), tool("receive_event__injected")]);
        }
        to.put(ToModel::Prompt(Prompt { seen, ..prompt([user(1, "hello")]) }));
        answer(&mut from).await;
    }
    let seen = seen.lock().unwrap();
    let names: Vec<&str> = seen[0].iter().map(|tool| tool.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "look_1",
            "sleep",
            "sleep_until",
            "sleep_until_event_or_input",
            "spawn_thread",
            "report_to_parent",
            "close_thread",
            "send_message_to_child",
            "list_children",
            "cancel_subscription",
            "pin_note",
            "unpin_note",
            "read_result"
        ]
    );
    assert!(seen[0][1].schema["properties"]["seconds"].is_object(), "the built-in tool is the one that counts");
    assert!(Arc::ptr_eq(&seen[0], &seen[1]), "the same tools are the same allocation");
    assert_eq!(seen[2][0].name, "look_3");
}

#[tokio::test]
async fn the_first_rule_that_fits_answers() {
    let script = r#"
        [[rule]]
        when = { message = "stop" }
        say = "exact"
        [[rule]]
        when = { message_like = "build * now*" }
        say = "like {message} {nothing} {"
        [[rule]]
        when = { result_of = "look", result_contains = "RED" }
        say = "red"
        [[rule]]
        when = { result_of = "look" }
        say = "looked: {result}"
        [[rule]]
        when = { event_contains = "done" }
        say = "event: {event}"
        [[rule]]
        when = { turn = 2 }
        say = "second"
        [[rule]]
        when = { message_contains = "fail" }
        fail = { class = "throttled" }
        [[rule]]
        say = "else in {thread}"
    "#;
    let model = Scripted::from_toml(script).unwrap();
    let said = async |items: Vec<Item>| {
        let request = Request { system: "".into(), tools: [].into(), prompt: prompt(items), attempt: 1 };
        match model.complete(&request, &mut Sink::new(|_| {})).await {
            Ok(answer) => match &answer.blocks[..] {
                [Block::Text(text)] => text.clone(),
                other => panic!("{other:?}"),
            },
            Err(error) => format!("{:?}: {error}", error.class),
        }
    };
    let turn = |number| Item::Assistant { number, blocks: vec![Block::Text("…".into())], cut: false };
    let result = |says: &str| {
        Item::Result(Answered {
            call: CallId { number: 2, index: 0 },
            provider_id: String::new(),
            name: "look".into(),
            content: text(says),
            by: AnsweredBy::Tool,
            display: None,
        })
    };
    let event = Item::Event(Event {
        id: CallId { number: 3, index: 0 },
        original_tool_name: "look".into(),
        original_tool_call_id: "x".into(),
        original_args: "{}".into(),
        content: text("all done"),
    });
    assert_eq!(said(vec![user(1, "stop")]).await, "exact");
    assert_eq!(said(vec![user(1, "build it now!")]).await, "like build it now! {nothing} {");
    assert_eq!(said(vec![user(1, "build it later")]).await, format!("else in {}", thread(1)));
    assert_eq!(said(vec![user(1, "stop"), turn(2), result("it is Red")]).await, "red");
    assert_eq!(said(vec![user(1, "stop"), turn(2), result("blue")]).await, "looked: blue");
    assert_eq!(said(vec![user(1, "stop"), turn(2), event]).await, "event: all done");
    assert_eq!(said(vec![user(1, "stop"), turn(2), user(3, "go on")]).await, "second");
    assert_eq!(said(vec![user(1, "do Fail")]).await, "Throttled: the script says so");
}

/// Cached tokens fill the window, too: a prompt of which 95 % were cached counts in full.
#[tokio::test]
async fn what_crosses_the_share_of_the_window_is_told_once_a_prompt() {
    let script = r#"
        [[rule]]
        when = { message = "long" }
        say = "Well."
        usage = { input_tokens = 750, cached_tokens = 712 }
        [[rule]]
        when = { message = "break" }
        fail = { class = "fatal" }
        [[rule]]
        say = "Well."
        usage = { input_tokens = 749 }
    "#;
    let limits = Limits { compact_at_tokens: Some(750), ..quick() };
    let (mut from, to) = started(Scripted::from_toml(script).unwrap(), limits);
    for short in ["short", "break"] {
        to.put(ToModel::Prompt(prompt([user(1, short)])));
        answer(&mut from).await;
        nothing_more(&mut from, &to).await;
    }
    to.put(ToModel::Prompt(prompt([user(1, "long")])));
    let usage = completion(answer(&mut from).await.0).usage;
    assert_eq!((usage.input_tokens, usage.output_tokens, usage.cached_tokens), (750, 1, 712));
    let (Record::Compact(compact), _) = answer(&mut from).await else { panic!("it crossed") };
    assert_eq!(compact.why, CompactWhy::Crossed { seen: 1, tokens: 751 });
    nothing_more(&mut from, &to).await;
}

#[test]
fn a_wrong_script_is_named_with_its_line() {
    for (script, line, problem) in [
        ("[[rule]]\nsay = \"a\"\n\n[[rule]]\nsays = \"b\"\n", 5, "unknown field `says`, expected one of"),
        ("[[rule]]\nsay = \"a\"\n[[rule]]\nwhen = { turn = \"one\" }\nsay = \"x\"", 4, "invalid type"),
        ("[[rule]]\nfail = { class = \"gone\" }", 2, "unknown variant `gone`, expected one of"),
        ("[[rule]]\nsay = \"a\"\n\n[[rule]]\ndelay_ms = 5\n", 4, "this rule does nothing"),
        ("# nothing\n", 1, "there is no rule"),
        ("[[rule]]\nsay = \"a", 2, "string"),
    ] {
        let ScriptError::Wrong { name, line: found, problem: said } = Scripted::from_toml(script).unwrap_err() else {
            panic!("{script}")
        };
        assert_eq!((name.as_str(), found), ("script", line), "{script}: {said}");
        assert!(said.contains(problem), "{script}: {said}");
    }
    let error = Scripted::from_file(std::path::Path::new("/nowhere/script.toml")).unwrap_err();
    assert!(error.to_string().starts_with("the script /nowhere/script.toml cannot be read"));
}

#[tokio::test]
async fn the_default_script_says_what_it_is_and_repeats() {
    let (mut from, to) = started(Scripted::default_script(), quick());
    to.put(ToModel::Prompt(prompt([user(1, "hello there")])));
    let (record, _) = answer(&mut from).await;
    let blocks = completion(record).blocks;
    let [Block::Text(said)] = &blocks[..] else { panic!("{blocks:?}") };
    for part in ["not a language model", "ANTHROPIC_API_KEY", "You said: hello there"] {
        assert!(said.contains(part), "{said}");
    }
}
