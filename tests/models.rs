//! The two HTTP providers against servers that others wrote: LiteLLM's proxy and aimock.
//!
//! `tests/peers/models.sh` installs both. Each test starts its own servers on loopback and ends them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "support/peers.rs"]
mod peers;

use futures::StreamExt;
use peers::peer;
use slackwater::catalog::{Catalog, ToolSpec};
use slackwater::model::{self, Config, Limits, Provider, Secret};
use slackwater_core::effect::Prompt;
use slackwater_core::history::{Answered, AnsweredBy, Event, Item};
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::{FromModel, Part, ToModel};
use slackwater_core::record::{Block, Bounds, Completion, Content, End, Failure, FailureClass, Record, Terms};
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A key as long as LiteLLM wants it; it opens nothing.
const KEY: &str = "sk-slackwater-test-4f1b9c7e2d6a8035";

const PROXY_SAYS: &str = "Hello from the proxy: one two three four five.";

const PROVIDERS: [Provider; 2] = [Provider::OpenAi, Provider::Anthropic];

/// A server of our own that ends with the test.
struct Server {
    child: Child,
    url: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn aimock(directory: &Path) -> Server {
    let fixtures = directory.join("fixtures.json");
    std::fs::write(&fixtures, include_str!("peers/aimock.json")).unwrap();
    let mut child = Command::new(peer("aimock/node_modules/.bin/llmock", "models.sh"))
        .args(["--host", "127.0.0.1", "--port", "0", "--chunk-size", "5", "--strict", "--fixtures"])
        .arg(&fixtures)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut server = Server { child, url: String::new() };
    server.url = lines
        .find_map(|line| Some(line.unwrap().split_once("listening on ")?.1.trim().to_owned()))
        .expect("aimock should say where it listens");
    // Its output is read to the end, or it would stop when the pipe is full.
    std::thread::spawn(move || lines.for_each(drop));
    server
}

/// LiteLLM's proxy. Its Anthropic endpoint answers `mock_response` whole; it streams what it relays, here from itself
/// and from `upstream`.
async fn litellm(directory: &Path, upstream: &str) -> Server {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    let config = directory.join("litellm.yaml");
    std::fs::write(
        &config,
        format!(
            r#"
model_list:
  - model_name: mock
    litellm_params: {{model: openai/mock, api_key: none, mock_response: "{PROXY_SAYS}"}}
  - model_name: relayed
    litellm_params: {{model: hosted_vllm/mock, api_base: "{url}/v1", api_key: {KEY}}}
  - model_name: tools
    litellm_params: {{model: hosted_vllm/tools, api_base: "{upstream}/v1", api_key: none}}
general_settings: {{master_key: {KEY}}}
"#
        ),
    )
    .unwrap();
    let log = std::fs::File::create(directory.join("litellm.log")).unwrap();
    let child = Command::new(peer("litellm/bin/litellm", "models.sh"))
        .args(["--host", "127.0.0.1", "--port", &port.to_string(), "--telemetry", "False", "--config"])
        .arg(&config)
        .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        .stdout(log.try_clone().unwrap())
        .stderr(log)
        .spawn()
        .unwrap();
    let mut server = Server { child, url };
    let begun = Instant::now();
    loop {
        let alive = reqwest::get(format!("{}/health/liveliness", server.url)).await;
        if alive.is_ok_and(|alive| alive.status().is_success()) {
            return server;
        }
        let said = || std::fs::read_to_string(directory.join("litellm.log")).unwrap();
        assert!(server.child.try_wait().unwrap().is_none(), "LiteLLM has ended: {}", said());
        assert!(begun.elapsed() < Duration::from_secs(180), "LiteLLM does not answer: {}", said());
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

fn config(provider: Provider, url: &str, model: &str) -> Config {
    Config {
        provider,
        model: Some(model.to_owned()),
        base_url: Some(if provider == Provider::OpenAi { format!("{url}/v1") } else { url.to_owned() }),
        api_key: Some(Secret::new(KEY)),
        limits: Limits { attempts_max: 2, backoff_first_ms: 10, chunk_timeout_ms: 20_000, ..Limits::default() },
        ..Config::default()
    }
}

/// Has the model answer one prompt; cuts it at the first text when asked to.
async fn asked(config: &Config, items: Vec<Item>, cut: bool) -> (Record, Vec<Part>) {
    let catalog = Catalog::default();
    catalog.offer(
        "test",
        vec![ToolSpec {
            name: "look".into(),
            description: "Looks at something.".into(),
            schema: serde_json::json!({"type": "object", "properties": {"at": {"type": "string"}}}),
            annotations: None,
        }],
    );
    let (mut from, to) =
        model::start(config.build().unwrap(), "Be brief.".into(), catalog, config.limits.clone(), Bounds::DEFAULT);
    let (thread, seen) = (ThreadId::from_bytes([1; 16]), items.len() as u64);
    to.put(ToModel::Prompt(Prompt {
        thread,
        seen,
        history: items.into_iter().map(Arc::new).collect(),
        terms: Terms::default(),
        bounds: Bounds::DEFAULT,
    }));
    let mut parts = Vec::new();
    loop {
        match from.next().await.unwrap() {
            FromModel::Chunks(chunks) => {
                if cut && chunks.iter().any(|chunk| matches!(chunk.part, Part::Text(_))) {
                    to.put(ToModel::Cut { thread, seen });
                }
                parts.extend(chunks.into_iter().map(|chunk| chunk.part));
            }
            FromModel::Answer(arrival) => return (arrival.record, parts),
        }
    }
}

async fn completion(config: &Config, items: Vec<Item>) -> (Completion, Vec<Part>) {
    match asked(config, items, false).await {
        (Record::Completion(completion), parts) => (completion, parts),
        (other, _) => panic!("expected a completion, got {other:?}"),
    }
}

async fn failure(config: &Config, items: Vec<Item>) -> (Failure, Vec<Part>) {
    match asked(config, items, false).await {
        (Record::Failure(failure), parts) => (failure, parts),
        (other, _) => panic!("expected a failure, got {other:?}"),
    }
}

fn text(text: &str) -> Vec<Content> {
    vec![Content::Text(text.to_owned())]
}

fn user(number: u64, says: &str) -> Item {
    Item::User { number, content: text(says) }
}

/// How many pieces of text were streamed.
fn pieces(parts: &[Part]) -> usize {
    parts.iter().filter(|part| matches!(part, Part::Text(_))).count()
}

/// A turn that makes two calls, and the one after their results.
async fn two_calls(config: &Config) {
    let asks = user(1, "look at both");
    let (turn, _) = completion(config, vec![asks.clone()]).await;
    let calls: Vec<(String, serde_json::Value)> = turn
        .blocks
        .iter()
        .filter_map(|block| match block {
            Block::Call { name, arguments, .. } => Some((name.clone(), serde_json::from_str(arguments).unwrap())),
            _ => None,
        })
        .collect();
    let look = |at: &str| ("look".to_owned(), serde_json::json!({"at": at}));
    assert_eq!(calls, [look("a"), look("b")]);
    assert!(turn.blocks.contains(&Block::Text("I look at both.".into())), "{:?}", turn.blocks);
    assert_eq!(turn.end, End::Finished);
    let result = |index: u16| {
        Item::Result(Answered {
            call: CallId { number: 2, index },
            provider_id: String::new(),
            name: "look".into(),
            content: text("a wall"),
            by: AnsweredBy::Tool,
            display: None,
        })
    };
    let turn = Item::Assistant { number: 2, blocks: turn.blocks, cut: false };
    // The results come in another order than the calls.
    let (next, _) = completion(config, vec![asks, turn, result(1), result(0)]).await;
    assert_eq!(next.blocks, [Block::Text("I have looked at both.".into())]);
}

#[tokio::test]
async fn litellm_is_understood_at_both_of_its_endpoints() {
    let directory = tempfile::tempdir().unwrap();
    let upstream = aimock(directory.path());
    let server = litellm(directory.path(), &upstream.url).await;
    for provider in PROVIDERS {
        for name in ["mock", "relayed"] {
            let (said, parts) = completion(&config(provider, &server.url, name), vec![user(1, "hello")]).await;
            assert_eq!(said.blocks, [Block::Text(PROXY_SAYS.into())], "{provider:?} {name}");
            assert_eq!(said.end, End::Finished);
            assert!(said.usage.output_tokens > 0 || name == "relayed", "{provider:?} {name}: {:?}", said.usage);
            let streams = name == "relayed" || provider == Provider::OpenAi;
            assert!(pieces(&parts) > 3 || !streams, "{provider:?} {name}: {parts:?}");
        }
        two_calls(&config(provider, &server.url, "tools")).await;

        let (unknown, _) = failure(&config(provider, &server.url, "nope"), vec![user(1, "hello")]).await;
        assert_eq!((unknown.class, unknown.attempts), (FailureClass::Fatal, 1), "{}", unknown.message);
        assert!(unknown.message.contains("nope"), "{}", unknown.message);
        let wrong = Config { api_key: Some(Secret::new("sk-wrong")), ..config(provider, &server.url, "mock") };
        let (wrong, _) = failure(&wrong, vec![user(1, "hello")]).await;
        assert_eq!((wrong.class, wrong.attempts), (FailureClass::Fatal, 1), "{}", wrong.message);
    }
}

#[tokio::test]
async fn aimock_is_understood_when_it_calls_tools_and_when_it_misbehaves() {
    let directory = tempfile::tempdir().unwrap();
    let server = aimock(directory.path());
    for provider in PROVIDERS {
        let config = config(provider, &server.url, "m");
        two_calls(&config).await;

        // Reasoning, and the same again when it is sent back.
        let asks = user(1, "think");
        let (thought, parts) = completion(&config, vec![asks.clone()]).await;
        let [Block::Reasoning { text: reasoning, sealed }, Block::Text(said)] = &thought.blocks[..] else {
            panic!("{:?}", thought.blocks)
        };
        assert_eq!((reasoning.as_str(), said.as_str()), ("Let me think about it.", "Done."));
        assert_eq!(sealed.is_some(), provider == Provider::Anthropic);
        assert!(parts.iter().any(|part| matches!(part, Part::Reasoning(_))), "{parts:?}");
        let turn = Item::Assistant { number: 2, blocks: thought.blocks, cut: false };
        let event = Item::Event(Event {
            id: CallId { number: 4, index: 0 },
            original_tool_name: "look".into(),
            original_tool_call_id: "call_a".into(),
            original_args: "{}".into(),
            content: text("It moved."),
        });
        let (next, _) = completion(&config, vec![asks, turn, user(3, "watch"), event]).await;
        assert_eq!(next.blocks, [Block::Text("I saw it move.".into())]);

        // Too many requests once; then there is time.
        let busy = if provider == Provider::OpenAi { "busy one" } else { "busy two" };
        let begun = Instant::now();
        let (said, _) = completion(&config, vec![user(1, busy)]).await;
        assert_eq!(said.blocks, [Block::Text("Now there is time.".into())]);
        assert!(begun.elapsed() >= Duration::from_secs(1), "aimock asks to wait for a second");

        // Cut off, not understood, gone: each is tried again and then told.
        for what in ["half", "broken", "gone"] {
            let (failed, parts) = failure(&config, vec![user(1, what)]).await;
            assert_eq!((failed.class, failed.attempts), (FailureClass::Transient, 2), "{}", failed.message);
            assert!(what != "half" || parts.last() == Some(&Part::Void), "{parts:?}");
        }
        let (failed, parts) = failure(&config, vec![user(1, "key")]).await;
        assert_eq!((failed.class, failed.attempts), (FailureClass::Fatal, 1));
        assert_eq!(parts, [Part::Started]);

        // Cut by us.
        let (record, _) = asked(&config, vec![user(1, "slowly")], true).await;
        let Record::Completion(cut) = record else { panic!("{record:?}") };
        let [Block::Text(said)] = &cut.blocks[..] else { panic!("{:?}", cut.blocks) };
        assert_eq!(cut.end, End::Cut);
        assert!("This takes its time.".starts_with(said.as_str()) && said.len() < 20, "{said}");
    }
}
