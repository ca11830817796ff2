//! The endpoint: one URL of a provider, and what its refusals mean.
//!
//! In: a request's body. Out: the events of the answer, or an error with its class. Always: one request an attempt, no
//! redirects; the key is in no message.

use super::sse::{Events, causes};
use super::{Limits, ModelError};
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use reqwest::{Response, StatusCode};
use serde::Deserialize;
use slackwater_core::record::FailureClass;
use std::time::{Duration, SystemTime};

/// Where a provider answers.
pub(super) struct Endpoint {
    client: reqwest::Client,
    url: String,
    headers: HeaderMap,
    secret: Option<String>,
    limits: Limits,
    /// What a person should look at when the provider does not accept the key.
    key_hint: String,
}

/// How much of a refusal is read, in bytes.
const REFUSAL_LENGTH_MAX: usize = 64 << 10;

/// How much of a provider's own words is passed on, in characters.
const QUOTE_LENGTH_MAX: usize = 600;

impl Endpoint {
    /// An endpoint whose requests carry these headers.
    pub(super) fn new(
        url: String,
        headers: impl IntoIterator<Item = (&'static str, String)>,
        secret: Option<String>,
        key_hint: String,
        limits: Limits,
    ) -> Result<Self, String> {
        let mut map = HeaderMap::new();
        map.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        for (name, value) in headers {
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| "the key has characters that no key has; check it for line breaks".to_owned())?;
            value.set_sensitive(true);
            map.insert(HeaderName::from_static(name), value);
        }
        let parsed = url::Url::parse(&url).map_err(|error| format!("the base URL {url} is no URL: {error}"))?;
        if !matches!(parsed.scheme(), "http" | "https") {
            return Err(format!("the base URL {url} must begin with http:// or https://"));
        }
        let client = reqwest::Client::builder()
            .connect_timeout(Duration::from_millis(limits.connect_timeout_ms))
            // A redirected POST would become a GET, or take the key elsewhere.
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("slackwater/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| causes(&error))?;
        Ok(Self { client, url, headers: map, secret, key_hint, limits })
    }

    /// Sends a request and opens the stream of its answer.
    pub(super) async fn open(&self, body: Vec<u8>) -> Result<Events, ModelError> {
        let silence = Duration::from_millis(self.limits.chunk_timeout_ms);
        let request = self.client.post(&self.url).headers(self.headers.clone()).body(body).send();
        let response = match tokio::time::timeout(silence, request).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let what = self.hide(&causes(&error.without_url()));
                return Err(ModelError::new(
                    FailureClass::Transient,
                    format!("{} cannot be reached: {what}", self.url),
                ));
            }
            Err(_) => {
                return Err(ModelError::new(
                    FailureClass::Transient,
                    format!("{} did not begin to answer within {silence:?}", self.url),
                ));
            }
        };
        let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if response.status().is_success() && !kind.starts_with("text/html") {
            // Some servers answer whole where a stream was asked for.
            let whole = kind.starts_with("application/json");
            let bytes = Box::pin(response.bytes_stream());
            return Ok(if whole { Events::whole(bytes, &self.limits) } else { Events::new(bytes, &self.limits) });
        }
        Err(self.refusal(response).await)
    }

    async fn refusal(&self, mut response: Response) -> ModelError {
        let status = response.status();
        let retry_after = retry_after(response.headers());
        let mut body = Vec::new();
        let silence = Duration::from_millis(self.limits.chunk_timeout_ms);
        while let Ok(Ok(Some(chunk))) = tokio::time::timeout(silence, response.chunk()).await {
            body.extend_from_slice(&chunk);
            if body.len() > REFUSAL_LENGTH_MAX {
                body.truncate(REFUSAL_LENGTH_MAX);
                break;
            }
        }
        let said = Refusal::read(&String::from_utf8_lossy(&body));
        let class = match said.class(status) {
            // A 200 that is not a stream and says nothing of an error.
            None => FailureClass::Transient,
            Some(class) => class,
        };
        let words = self.hide(&said.words);
        let hint = match status {
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => format!(" ({})", self.key_hint),
            StatusCode::NOT_FOUND => " (check base_url and model)".to_owned(),
            _ if status.is_redirection() => {
                " (base_url must be the address itself; redirects are not followed)".to_owned()
            }
            _ => String::new(),
        };
        let answered = if status.is_success() { "not with a stream of events" } else { status.as_str() };
        ModelError { class, message: format!("{} answered {answered}: {words}{hint}", self.url), retry_after }
    }

    /// The text without the key, should the provider have repeated it.
    fn hide(&self, text: &str) -> String {
        match &self.secret {
            Some(secret) if !secret.is_empty() => text.replace(secret.as_str(), "[key]"),
            _ => text.to_owned(),
        }
    }
}

/// What a provider says when it refuses.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    /// Its codes and types, for machines.
    codes: String,
    /// Its words, for people.
    pub(super) words: String,
}

impl Refusal {
    /// Reads a refusal's body: an `error` object of any of the usual shapes, or whatever it is.
    pub(super) fn read(body: &str) -> Self {
        #[derive(Deserialize, Default)]
        #[serde(default)]
        struct Fields {
            error: serde_json::Value,
            message: serde_json::Value,
            detail: serde_json::Value,
        }
        let quote = |words: &str| match words.trim() {
            "" => "it gave no reason".to_owned(),
            words => words.chars().take(QUOTE_LENGTH_MAX).collect(),
        };
        let Ok(fields) = serde_json::from_str::<Fields>(body) else {
            return Self { codes: String::new(), words: quote(body) };
        };
        let text = |value: &serde_json::Value| match value {
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Null => String::new(),
            other => other.to_string(),
        };
        let words = [&fields.error["message"], &fields.message, &fields.detail, &fields.error].map(text);
        let codes = ["code", "type", "status"].map(|name| text(&fields.error[name])).join(" ");
        Self { codes, words: quote(words.iter().find(|words| !words.is_empty()).map_or(body, String::as_str)) }
    }

    /// What kind of failure it is; nothing if neither the status nor the words say.
    pub(super) fn class(&self, status: StatusCode) -> Option<FailureClass> {
        let words = self.words.to_lowercase();
        let says = |parts: &[&str]| parts.iter().any(|part| words.contains(part) || self.codes.contains(part));
        let overflow = [
            "context_length_exceeded",
            "context length",
            "context window",
            "prompt is too long",
            "request_too_large",
            "input is too long",
            "exceeds the maximum number of tokens",
        ];
        if says(&["insufficient_quota", "billing_error"]) {
            return Some(FailureClass::Fatal);
        }
        if status == StatusCode::PAYLOAD_TOO_LARGE || (!status.is_server_error() && says(&overflow)) {
            return Some(FailureClass::Overflow);
        }
        match status.as_u16() {
            429 | 529 => Some(FailureClass::Throttled),
            408 | 409 | 425 => Some(FailureClass::Transient),
            500.. => Some(FailureClass::Transient),
            300.. => Some(FailureClass::Fatal),
            _ if says(&["rate_limit", "overloaded"]) => Some(FailureClass::Throttled),
            _ if says(&["authentication_error", "permission_error", "not_found_error", "invalid_request"]) => {
                Some(FailureClass::Fatal)
            }
            _ => None,
        }
    }

    /// The error of a stream that ends with a refusal.
    pub(super) fn in_stream(self) -> ModelError {
        // What began to stream was accepted, so anything that is not named may pass.
        let class = self.class(StatusCode::OK).unwrap_or(FailureClass::Transient);
        ModelError::new(class, format!("the provider broke its answer off: {}", self.words))
    }
}

/// How long the provider asks to wait: `retry-after-ms`, or `Retry-After` in seconds or as a date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok().map(str::trim);
    if let Some(ms) = text("retry-after-ms").and_then(|ms| ms.parse::<f64>().ok()) {
        return Duration::try_from_secs_f64(ms / 1000.0).ok();
    }
    let asked = text(RETRY_AFTER.as_str())?;
    if let Ok(seconds) = asked.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).ok();
    }
    let at: SystemTime = jiff::fmt::rfc2822::parse(asked).ok()?.timestamp().into();
    Some(at.duration_since(SystemTime::now()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn refusals_have_their_class() {
        use FailureClass::{Fatal, Overflow, Throttled, Transient};
        let openai = |code: &str, message: &str| {
            serde_json::json!({"error": {"message": message, "type": "invalid_request_error", "code": code}})
                .to_string()
        };
        let anthropic = |kind: &str, message: &str| {
            serde_json::json!({"type": "error", "error": {"type": kind, "message": message}}).to_string()
        };
        for (status, body, class) in [
            (400, openai("", "no such field"), Some(Fatal)),
            (
                400,
                openai("context_length_exceeded", "This model's maximum context length is 8192 tokens."),
                Some(Overflow),
            ),
            (
                400,
                anthropic("invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
                Some(Overflow),
            ),
            (401, openai("invalid_api_key", "Incorrect API key provided"), Some(Fatal)),
            (403, "Forbidden".to_owned(), Some(Fatal)),
            (404, openai("model_not_found", "The model does not exist"), Some(Fatal)),
            (408, String::new(), Some(Transient)),
            (413, anthropic("request_too_large", "Request exceeds the maximum size"), Some(Overflow)),
            (429, openai("rate_limit_exceeded", "Slow down"), Some(Throttled)),
            (429, openai("insufficient_quota", "You exceeded your current quota"), Some(Fatal)),
            (500, "<html>oops</html>".to_owned(), Some(Transient)),
            (500, openai("", "the context window service is down"), Some(Transient)),
            (529, anthropic("overloaded_error", "Overloaded"), Some(Throttled)),
            (302, String::new(), Some(Fatal)),
            (200, anthropic("overloaded_error", "Overloaded"), Some(Throttled)),
            (200, anthropic("api_error", "Internal server error"), None),
            (200, "{}".to_owned(), None),
        ] {
            let refusal = Refusal::read(&body);
            assert_eq!(refusal.class(StatusCode::from_u16(status).unwrap()), class, "{status} {body}");
        }
        assert_eq!(Refusal::read(&openai("x", "Bad")).words, "Bad");
        assert_eq!(Refusal::read(r#"{"error":"plain"}"#).words, "plain");
        assert_eq!(Refusal::read(r#"{"detail":[1]}"#).words, "[1]");
        assert_eq!(Refusal::read("").words, "it gave no reason");
        assert_eq!(Refusal::read(&"x".repeat(5000)).words.len(), QUOTE_LENGTH_MAX);
    }

    #[test]
    fn a_provider_asks_to_wait_in_seconds_milliseconds_or_until_a_date() {
        let asked = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_str(value).unwrap());
            retry_after(&headers)
        };
        assert_eq!(asked("retry-after", "20"), Some(Duration::from_secs(20)));
        assert_eq!(asked("retry-after", "0.5"), Some(Duration::from_millis(500)));
        assert_eq!(asked("retry-after-ms", "1500"), Some(Duration::from_millis(1500)));
        assert_eq!(asked("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), Some(Duration::ZERO));
        assert!(asked("retry-after", "Wed, 21 Oct 2099 07:28:00 GMT") > Some(Duration::from_secs(86_400)));
        assert_eq!(asked("retry-after", "soon"), None);
        assert_eq!(asked("retry-after", "-5"), None);
        assert_eq!(asked("x", "5"), None);
    }
}
