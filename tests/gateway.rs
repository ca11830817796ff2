//! The gateway over real HTTP, before a shard that is the real fold in memory.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "gateway/answers.rs"]
mod answers;
#[path = "gateway/bounds.rs"]
mod bounds;
#[path = "gateway/callbacks.rs"]
mod callbacks;
#[path = "gateway/description.rs"]
mod description;
#[path = "gateway/eventsource.rs"]
mod eventsource;
#[path = "gateway/forward.rs"]
mod forward;
#[path = "gateway/origin.rs"]
mod origin;
#[path = "support/peers.rs"]
mod peers;
#[path = "gateway/requests.rs"]
mod requests;
#[path = "support/shard.rs"]
mod shard;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/why.rs"]
mod why;

use serde_json::Value;
use shard::FakeShard;
use slackwater::capability::CapabilityKey;
use slackwater::gateway::{self, Config, Gateway, Shards};
use slackwater_core::id::ThreadId;
use std::net::{SocketAddr, TcpListener};

/// A gateway, the shard behind it, and a client before it.
struct World {
    gateway: Gateway,
    shard: FakeShard,
    shards: Shards,
    key: CapabilityKey,
    url: String,
    client: reqwest::Client,
}

impl World {
    fn new() -> Self {
        Self::with(Config::default())
    }

    fn with(config: Config) -> Self {
        Self::again(
            config,
            FakeShard::default(),
            CapabilityKey::random().unwrap(),
            SocketAddr::from(([127, 0, 0, 1], 0)),
        )
    }

    /// A gateway before a shard that exists already, as after a restart.
    fn again(config: Config, shard: FakeShard, key: CapabilityKey, address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).unwrap();
        let (from, to, gateway) = gateway::start_on(listener, config, key.clone()).unwrap();
        shard.attach(from, to);
        gateway.set_ready(true);
        let url = format!("http://{}", gateway.address());
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { shards: gateway.shards(), gateway, shard, key, url, client }
    }

    async fn get(&self, path: &str) -> Answer {
        Answer::of(self.client.get(format!("{}{path}", self.url))).await
    }

    async fn post(&self, path: &str, body: impl Into<reqwest::Body>) -> Answer {
        Answer::of(self.post_request(path, body)).await
    }

    fn post_request(&self, path: &str, body: impl Into<reqwest::Body>) -> reqwest::RequestBuilder {
        self.client.post(format!("{}{path}", self.url)).header("content-type", "application/json").body(body)
    }

    /// Says something to a thread and returns the thread.
    async fn say(&self, thread: &str, text: &str) -> ThreadId {
        let body = serde_json::json!({"text": text}).to_string();
        let answer = self.post(&format!("/v1/threads/{thread}/messages"), body).await;
        assert_eq!(answer.status, 201, "{}", answer.body);
        answer.body["thread"].as_str().unwrap().parse().unwrap()
    }
}

/// What came back.
#[derive(Debug)]
struct Answer {
    status: u16,
    media_type: String,
    retry_after: Option<String>,
    body: Value,
}

impl Answer {
    async fn of(request: reqwest::RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let header = |name| {
            response.headers().get(name).map(|value: &reqwest::header::HeaderValue| value.to_str().unwrap().to_owned())
        };
        let media_type = header("content-type").unwrap_or_default();
        let (status, retry_after) = (response.status().as_u16(), header("retry-after"));
        let text = response.text().await.unwrap();
        let body = serde_json::from_str(&text).unwrap_or(Value::String(text));
        Self { status, media_type, retry_after, body }
    }

    /// Checks that this is a whole problem document of the kind and says what is expected of it.
    #[track_caller]
    fn is_problem(&self, status: u16, kind: &str, said: &str) {
        assert_eq!(self.status, status, "{}", self.body);
        assert_eq!(self.media_type, "application/problem+json", "{}", self.body);
        assert_eq!(self.body["type"], format!("urn:slackwater:problem:{kind}"), "{}", self.body);
        assert_eq!(self.body["status"], status, "{}", self.body);
        for member in ["title", "detail", "help"] {
            assert!(self.body[member].as_str().is_some_and(|text| !text.is_empty()), "{member}: {}", self.body);
        }
        assert!(self.body.to_string().contains(said), "{said:?} is not in {}", self.body);
        assert_eq!(self.retry_after.is_some(), matches!(status, 429 | 503), "Retry-After: {}", self.body);
    }
}
