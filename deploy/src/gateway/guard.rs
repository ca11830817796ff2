//! The guard: who may ask, and from where.
//!
//! In: a request. Out: the request with its sender's origin, or a problem. Always: a sender is known by its key or by coming
//! over loopback, and not otherwise; a web page of somebody else cannot use a person's browser to reach the gateway.

use super::config::Config;
use super::problem::Problem;
use super::server::{AppState, Peer};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use slackwater_core::record::{Origin, Proof};
use std::net::IpAddr;
use url::Url;

/// What a request is checked against.
pub(super) struct Guard {
    keys: Vec<Key>,
    allowed_hosts: Vec<String>,
    allowed_origins: Vec<String>,
}

struct Key {
    name: String,
    /// Hashes are compared in place of secrets, so that the time it takes says nothing of the secret.
    hash: [u8; 32],
}

/// A setting that cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadSetting {
    /// A key that is none.
    #[error("keys[{0}] is not of the form name:secret with a name and a secret of at least 16 characters")]
    Key(usize),
    /// Two keys of one name.
    #[error("keys has two keys named {0:?}; give each sender its own name")]
    SameName(String),
    /// An address that is no URL.
    #[error("public_url is {0:?}; it has to be a URL such as https://agents.example.org, without query")]
    PublicUrl(String),
    /// An origin that is none.
    #[error(
        "allowed_origins has {0:?}; an origin is a scheme, a host and perhaps a port, such as https://app.example.org"
    )]
    Origin(String),
    /// A number of shards that cannot be.
    #[error("shards is 0; there has to be one at least")]
    NoShards,
}

impl Guard {
    pub(super) fn new(config: &Config) -> Result<Self, BadSetting> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, key) in config.keys.iter().enumerate() {
            let (name, secret) = key.split_once(':').ok_or(BadSetting::Key(index))?;
            if name.is_empty() || secret.len() < 16 {
                return Err(BadSetting::Key(index));
            }
            if keys.iter().any(|other| other.name == name) {
                return Err(BadSetting::SameName(name.to_owned()));
            }
            keys.push(Key { name: name.to_owned(), hash: Sha256::digest(secret).into() });
        }
        if config.shards == 0 {
            return Err(BadSetting::NoShards);
        }
        let mut allowed_hosts: Vec<String> =
            config.allowed_hosts.iter().map(|host| host.to_ascii_lowercase()).collect();
        if let Some(text) = &config.public_url {
            let bad = || BadSetting::PublicUrl(text.clone());
            let url = Url::parse(text).map_err(|_| bad())?;
            if !matches!(url.scheme(), "http" | "https") || url.query().is_some() || url.fragment().is_some() {
                return Err(bad());
            }
            allowed_hosts.push(url.host_str().ok_or_else(bad)?.to_owned());
        }
        for origin in &config.allowed_origins {
            let parsed = Url::parse(origin).ok().map(|url| url.origin().ascii_serialization());
            if parsed.as_ref() != Some(origin) {
                return Err(BadSetting::Origin(origin.clone()));
            }
        }
        Ok(Self { keys, allowed_hosts, allowed_origins: config.allowed_origins.clone() })
    }

    /// Whether everybody who reaches the gateway over loopback is trusted.
    pub(super) fn trusts_loopback(&self) -> bool {
        self.keys.is_empty()
    }

    /// Who sent a request, if that is proven.
    fn sender(&self, headers: &HeaderMap, peer: IpAddr) -> Result<Origin, &'static str> {
        if self.trusts_loopback() {
            // What a proxy passes on comes from elsewhere, even if the proxy is on this machine.
            if ["forwarded", "x-forwarded-for", "via"].iter().any(|name| headers.contains_key(*name)) {
                return Err("It was passed on by a proxy, and without keys only requests of this machine are taken.");
            }
            return if peer.to_canonical().is_loopback() {
                Ok(Origin { who: "local".to_owned(), proof: Proof::Loopback })
            } else {
                Err("Without keys only requests of this machine are taken.")
            };
        }
        let authorization = headers.get(header::AUTHORIZATION).ok_or("There is no header Authorization.")?;
        let (scheme, secret) = authorization
            .to_str()
            .ok()
            .and_then(|text| text.split_once(' '))
            .ok_or("The header Authorization is not of the form `Bearer KEY`.")?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err("The header Authorization is not of the form `Bearer KEY`.");
        }
        let hash: [u8; 32] = Sha256::digest(secret.trim()).into();
        let key = self.keys.iter().find(|key| key.hash == hash).ok_or("The key is not known.")?;
        Ok(Origin { who: key.name.clone(), proof: Proof::Key })
    }

    fn allows_host(&self, host: &str) -> bool {
        let host = host.to_ascii_lowercase();
        let name = match host.strip_prefix('[') {
            Some(rest) => rest.split(']').next().unwrap_or_default(),
            None => host.split(':').next().unwrap_or_default(),
        };
        name == "localhost"
            || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
            || self.allowed_hosts.iter().any(|allowed| *allowed == name || *allowed == host)
    }

    fn allows_origin(&self, origin: &str, host: &str) -> bool {
        let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
        same || self.lists_origin(origin)
    }

    fn lists_origin(&self, origin: &str) -> bool {
        self.allowed_origins.iter().any(|allowed| allowed == origin)
    }
}

/// Refuses what a web page of somebody else has sent, and lets the pages that are allowed read the answer.
pub(super) async fn check_site(State(app): State<AppState>, request: Request, next: Next) -> Response {
    let guard = &app.guard;
    let headers = request.headers();
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let host = match request.uri().authority() {
        Some(authority) => authority.to_string(),
        None => headers.get(header::HOST).map(text).unwrap_or_default(),
    };
    if guard.trusts_loopback() && !guard.allows_host(&host) {
        return Problem::new(
            StatusCode::FORBIDDEN,
            "host-refused",
            "This host name is not this gateway's",
            format!("The request was sent to the host {host:?}, which this gateway does not answer for."),
            "Use localhost or 127.0.0.1, or add the name to allowed_hosts in the configuration.",
        )
        .into_response();
    }
    let origin = headers.get(header::ORIGIN).map(text);
    if let Some(origin) = &origin
        && !guard.allows_origin(origin, &host)
    {
        return Problem::new(
            StatusCode::FORBIDDEN,
            "origin-refused",
            "This web page may not call this gateway",
            format!("The request was made by a web page of {origin:?}."),
            "Add the origin to allowed_origins in the configuration if the page is yours.",
        )
        .into_response();
    }
    let listed =
        origin.filter(|origin| guard.lists_origin(origin)).and_then(|origin| HeaderValue::from_str(&origin).ok());
    let asks = request.method() == Method::OPTIONS && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match &listed {
        Some(_) if asks => StatusCode::NO_CONTENT.into_response(),
        _ => next.run(request).await,
    };
    if let Some(origin) = listed {
        let headers = response.headers_mut();
        headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(header::VARY, HeaderValue::from_static("origin"));
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        headers.insert(
            header::ACCESS_CONTROL_ALLOW_HEADERS,
            HeaderValue::from_static("authorization, content-type, idempotency-key, last-event-id"),
        );
        headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("retry-after"));
    }
    response
}

/// Lets a request through whose sender is known, and says who it is.
pub(super) async fn know_sender(
    State(app): State<AppState>,
    ConnectInfo(Peer(peer)): ConnectInfo<Peer>,
    mut request: Request,
    next: Next,
) -> Response {
    match app.guard.sender(request.headers(), peer.ip()) {
        Ok(origin) => {
            request.extensions_mut().insert(origin);
            next.run(request).await
        }
        Err(detail) => Problem::new(
            StatusCode::UNAUTHORIZED,
            "unauthenticated",
            "It is not known who sends this",
            detail,
            "Send the header `Authorization: Bearer KEY` with a key from the gateway's configuration (keys).",
        )
        .into_response(),
    }
}
