//! A client of a running runtime, over HTTP and server-sent events.
//!
//! In: a URL, perhaps a key. Out: answers and events as JSON. Always: a problem the gateway names reaches the person in its
//! own words; a stream that breaks off is taken up after the last event, without gap or repeat.

use super::serve;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use serde_json::{Value, json};
use sse_stream::{Sse, SseByteStream};
use std::path::Path;
use std::time::Duration;

/// How long an answer may take.
const ANSWER_MS: u64 = 35_000;

/// The pause before a stream that broke off is asked for again.
const AGAIN_MS: u64 = 250;

/// How often that is tried before it is given up.
const AGAIN_MAX: u32 = 40;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ClientError {
    /// Nobody answers there.
    #[error("no runtime answers at {url}: {what}; is `slackwater serve` running there?")]
    Unreachable {
        /// Where.
        url: String,
        /// What the system says.
        what: String,
    },
    /// It says why not.
    #[error("{detail} {help}")]
    Problem {
        /// The HTTP status.
        status: u16,
        /// What is wrong.
        detail: String,
        /// What to do.
        help: String,
    },
}

/// One thing that a thread's stream tells.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Told {
    /// Its place in the stream; chunks have none.
    pub(crate) id: Option<String>,
    /// `message`, `turn`, `chunk` and so on.
    pub(crate) kind: String,
    /// What it says.
    pub(crate) data: Value,
}

/// The runtime that runs on a directory, if it says where and answers there.
pub(crate) async fn running(directory: &Path, key: Option<String>) -> Option<Client> {
    let url = std::fs::read_to_string(directory.join(serve::URL_FILE)).ok()?;
    let client = Client::new(url.trim(), key).ok()?;
    client.get("/health").await.ok()?;
    Some(client)
}

/// A client of one runtime.
#[derive(Clone)]
pub(crate) struct Client {
    http: reqwest::Client,
    url: String,
    key: Option<String>,
}

impl Client {
    /// A client for the runtime at this URL; the key is sent with every request.
    pub(crate) fn new(url: &str, key: Option<String>) -> Result<Self, String> {
        let parsed = url::Url::parse(url).map_err(|error| format!("{url:?} is not a URL ({error})"))?;
        let host = parsed.host_str().filter(|_| matches!(parsed.scheme(), "http" | "https"));
        let host = host.ok_or_else(|| format!("{url:?} is not a URL such as http://127.0.0.1:7070"))?;
        let here = host == "localhost"
            || host.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(5));
        // A proxy does not know the way to this machine.
        let http = if here { http.no_proxy() } else { http };
        let http = http.build().map_err(|error| error.to_string())?;
        Ok(Self { http, url: url.trim_end_matches('/').to_owned(), key })
    }

    /// Where it asks.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a message and waits until it is durable.
    pub(crate) async fn send(&self, thread: &str, id: &str, text: &str) -> Result<Value, ClientError> {
        let path = format!("/v1/threads/{thread}/messages");
        self.json(self.http.post(self.at(&path)).json(&json!({"text": text, "id": id}))).await
    }

    /// Stops what a thread is doing, perhaps with all below it.
    pub(crate) async fn stop(&self, thread: &str, subtree: bool) -> Result<Value, ClientError> {
        let request = self.http.post(self.at(&format!("/v1/threads/{thread}/stop")));
        self.json(request.json(&json!({"subtree": subtree}))).await
    }

    /// Answers a question of a thread.
    pub(crate) async fn answer(&self, thread: &str, answer: &Value) -> Result<Value, ClientError> {
        self.json(self.http.post(self.at(&format!("/v1/threads/{thread}/answers"))).json(answer)).await
    }

    /// Has a thread's history summarized.
    pub(crate) async fn compact(&self, thread: &str) -> Result<Value, ClientError> {
        self.json(self.http.post(self.at(&format!("/v1/threads/{thread}/compact")))).await
    }

    /// What is at a path.
    pub(crate) async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.json(self.http.get(self.at(path))).await
    }

    /// A thread's events after a place in its stream; from its beginning without one.
    pub(crate) async fn events(&self, thread: &str, after: Option<&str>) -> Result<Events, ClientError> {
        let mut events =
            Events { client: self.clone(), thread: thread.to_owned(), after: after.map(str::to_owned), stream: None };
        events.stream = Some(events.open().await?);
        Ok(events)
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }

    async fn json(&self, request: reqwest::RequestBuilder) -> Result<Value, ClientError> {
        let answer = self.response(request.timeout(Duration::from_millis(ANSWER_MS))).await?;
        answer.json().await.map_err(|error| self.unreachable(&error))
    }

    async fn response(&self, mut request: reqwest::RequestBuilder) -> Result<reqwest::Response, ClientError> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        let answer = request.send().await.map_err(|error| self.unreachable(&error))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(answer);
        }
        let problem: Value = answer.json().await.unwrap_or_default();
        let word = |field: &str| problem[field].as_str().unwrap_or_default().to_owned();
        let detail = Some(word("detail")).filter(|detail| !detail.is_empty());
        let detail = detail.unwrap_or_else(|| format!("{} answered {status}.", self.url));
        Err(ClientError::Problem { status: status.as_u16(), detail, help: word("help") })
    }

    fn unreachable(&self, error: &reqwest::Error) -> ClientError {
        // The innermost cause is what a person can do something about.
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        ClientError::Unreachable { url: self.url.clone(), what: cause.to_string() }
    }
}

type Stream = SseByteStream<BoxStream<'static, Result<bytes::Bytes, reqwest::Error>>>;

/// A thread's events, as long as somebody asks.
pub(crate) struct Events {
    client: Client,
    thread: String,
    after: Option<String>,
    stream: Option<Stream>,
}

impl Events {
    /// The next event. When the stream breaks off it is taken up again, also at a runtime that was started anew.
    pub(crate) async fn next(&mut self) -> Result<Told, ClientError> {
        let mut failures = 0;
        loop {
            let stream = match &mut self.stream {
                Some(stream) => stream,
                None => match self.open().await {
                    Ok(stream) => self.stream.insert(stream),
                    Err(ClientError::Problem { status, detail, help }) if status < 500 && status != 429 => {
                        return Err(ClientError::Problem { status, detail, help });
                    }
                    Err(error) if failures >= AGAIN_MAX => return Err(error),
                    Err(_) => {
                        failures += 1;
                        tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
                        continue;
                    }
                },
            };
            match stream.next().await {
                Some(Ok(event)) => {
                    if let Some(told) = self.told(event) {
                        return Ok(told);
                    }
                }
                Some(Err(_)) | None => {
                    self.stream = None;
                    tokio::time::sleep(Duration::from_millis(AGAIN_MS)).await;
                }
            }
        }
    }

    async fn open(&self) -> Result<Stream, ClientError> {
        let path = self.client.at(&format!("/v1/threads/{}/events", self.thread));
        let mut request = self.client.http.get(path).header("accept", "text/event-stream");
        if let Some(after) = &self.after {
            request = request.header("last-event-id", after);
        }
        let answer = self.client.response(request).await?;
        Ok(SseByteStream::new(answer.bytes_stream().boxed()))
    }

    fn told(&mut self, event: Sse) -> Option<Told> {
        let data = serde_json::from_str(event.data.as_deref()?).ok()?;
        let kind = event.event?;
        let id = event.id.filter(|id| !id.is_empty());
        // Chunks carry the last event's id on in some clients, and none in this one.
        let id = id.filter(|_| !matches!(kind.as_str(), "chunk" | "started" | "void"));
        if id.is_some() {
            self.after.clone_from(&id);
        }
        Some(Told { id, kind, data })
    }
}
