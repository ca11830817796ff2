//! A client over HTTP, as stubborn as the protocol allows.
//!
//! In: messages with ids, threads to follow. Out: acknowledgements, outputs. Always: an input is sent again with its id
//! until it is acknowledged; a stream is taken up after the last output seen.

use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A numbered output, as it came: its id, its kind and its data.
pub type Seen = (String, String, Value);

#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    base: String,
}

impl Client {
    pub fn new(base: String) -> Self {
        Self { http: reqwest::Client::builder().no_proxy().build().unwrap(), base }
    }

    /// A client that says who it is.
    pub fn with_key(base: String, key: &str) -> Self {
        let mut headers = reqwest::header::HeaderMap::new();
        headers.insert("authorization", format!("Bearer {key}").parse().unwrap());
        let http = reqwest::Client::builder().no_proxy().default_headers(headers);
        // Somebody who is cut off notices it.
        Self { http: http.connect_timeout(Duration::from_secs(1)).build().unwrap(), base }
    }

    /// Sends a message once. Nothing when nobody answered.
    pub async fn try_post(&self, thread: &str, id: &str, text: &str) -> Option<reqwest::Response> {
        let body = json!({"id": id, "text": text});
        let url = format!("{}/v1/threads/{thread}/messages", self.base);
        self.http.post(url).json(&body).timeout(Duration::from_secs(20)).send().await.ok()
    }

    /// Sends a message until it is acknowledged; says its number.
    pub async fn post(&self, thread: &str, id: &str, text: &str) -> u64 {
        // Many who all try again at once would only keep each other waiting.
        let mut pause_ms = 20;
        loop {
            if let Some(answer) = self.try_post(thread, id, text).await {
                let status = answer.status().as_u16();
                match (status, answer.json::<Value>().await) {
                    (200 | 201, Ok(body)) => {
                        assert_eq!(body["id"], id, "the acknowledgement is of this message");
                        return body["number"].as_u64().unwrap();
                    }
                    // Not now, or broken off.
                    (429 | 503, _) | (_, Err(_)) => {}
                    (status, Ok(body)) => panic!("a good message was refused with {status}: {body}"),
                }
            }
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
            pause_ms = (pause_ms * 2).min(500);
        }
    }

    /// Answers a question of a thread; says how that was answered.
    pub async fn answer(&self, thread: &str, answer: &Value) -> (u16, Value) {
        let url = format!("{}/v1/threads/{thread}/answers", self.base);
        let answer = self.http.post(url).json(answer).timeout(Duration::from_secs(20)).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    /// Waits until a thread has asked something of this kind; says which question that is.
    pub async fn question(&self, thread: &str, kind: &str) -> u64 {
        super::within("the thread asks", async || {
            let standing = self.standing(thread).await?;
            let mut waits = standing["waits"].as_array()?.iter();
            waits.find(|wait| wait["kind"] == kind)?["question"].as_u64()
        })
        .await
    }

    /// Where a thread stands; nothing when nobody answered or there is none.
    pub async fn standing(&self, thread: &str) -> Option<Value> {
        let url = format!("{}/v1/threads/{thread}", self.base);
        let answer = self.http.get(url).timeout(Duration::from_secs(10)).send().await.ok()?;
        if answer.status().is_success() { answer.json().await.ok() } else { None }
    }

    /// Waits until a thread has nothing more to do for its user.
    pub async fn idle(&self, thread: &str) -> Value {
        let what = format!("{thread} is idle");
        let patience = super::Patience::until(&what);
        loop {
            if let Some(standing) = self.standing(thread).await
                && standing["state"] == "idle"
                && standing["pending"] == 0
            {
                return standing;
            }
            patience.again().await;
        }
    }

    /// What is at a path: the status and the body.
    pub async fn get(&self, path: &str) -> (u16, Value) {
        let answer =
            self.http.get(format!("{}{path}", self.base)).timeout(Duration::from_secs(10)).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap_or_default())
    }

    /// All threads, as far as one page goes; nothing when nobody answered.
    pub async fn list(&self) -> Option<Vec<Value>> {
        let url = format!("{}/v1/threads?limit=100", self.base);
        let answer = self.http.get(url).timeout(Duration::from_secs(10)).send().await.ok()?;
        answer.json::<Value>().await.ok()?["threads"].as_array().cloned()
    }

    /// Stops what a thread is doing; says the status.
    pub async fn stop(&self, thread: &str) -> u16 {
        let url = format!("{}/v1/threads/{thread}/stop", self.base);
        self.http.post(url).timeout(Duration::from_secs(20)).send().await.unwrap().status().as_u16()
    }

    /// Waits until one of a thread's waits is like this.
    pub async fn waits_on(&self, thread: &str, like: impl Fn(&Value) -> bool) {
        super::within("the thread waits as expected", async || {
            let standing = self.standing(thread).await?;
            standing["waits"].as_array()?.iter().any(&like).then_some(())
        })
        .await;
    }

    /// How many threads are awake; nothing when nobody answered.
    pub async fn awake(&self) -> Option<u64> {
        let url = format!("{}/v1/status", self.base);
        let answer = self.http.get(url).timeout(Duration::from_secs(10)).send().await.ok()?;
        answer.json::<Value>().await.ok()?["awake"].as_u64()
    }

    /// What `/ready` says: the status, and the problem if it is one.
    pub async fn readiness(&self) -> Option<(u16, Value)> {
        let url = format!("{}/ready", self.base);
        let answer = self.http.get(url).timeout(Duration::from_secs(10)).send().await.ok()?;
        Some((answer.status().as_u16(), answer.json().await.ok()?))
    }

    /// Follows a thread from its beginning into `seen`, for ever, through every restart.
    pub async fn follow(self, thread: String, seen: Arc<Mutex<Vec<Seen>>>) {
        loop {
            // However it broke off: the next request says how far it came.
            let _ = self.follow_once(&thread, &seen).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn follow_once(&self, thread: &str, seen: &Mutex<Vec<Seen>>) -> reqwest::Result<()> {
        let mut request = self.http.get(format!("{}/v1/threads/{thread}/events", self.base));
        if let Some((last, ..)) = seen.lock().unwrap().last() {
            request = request.header("last-event-id", last);
        }
        let mut answer = request.send().await?.error_for_status()?;
        let mut text = Vec::new();
        while let Some(piece) = answer.chunk().await? {
            text.extend_from_slice(&piece);
            while let Some(end) = text.windows(2).position(|pair| pair == b"\n\n") {
                let event: Vec<u8> = text.drain(..end + 2).collect();
                if let Some(output) = numbered(std::str::from_utf8(&event).unwrap()) {
                    seen.lock().unwrap().push(output);
                }
            }
        }
        Ok(())
    }
}

/// A numbered event of a stream; nothing for chunks and comments.
fn numbered(event: &str) -> Option<Seen> {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)).map(str::trim_start);
    let data = serde_json::from_str(field("data:")?).unwrap();
    Some((field("id:")?.to_owned(), field("event:")?.to_owned(), data))
}
