//! Origin: who is let in, and from where.

use super::{Answer, World};
use slackwater::capability::CapabilityKey;
use slackwater::gateway::{self, Config, GatewayError};
use slackwater_core::record::{Proof, Record};

const SECRET: &str = "a-secret-of-some-length";

fn with_key() -> Config {
    Config { keys: vec![format!("alice:{SECRET}"), "bob:another-secret-of-length".into()], ..Config::default() }
}

#[tokio::test]
async fn origin_is_proven() {
    let world = World::with(with_key());
    let message = || world.post_request("/v1/threads/demo/messages", r#"{"text":"hello"}"#);
    for request in [
        message(),
        message().header("authorization", "Bearer wrong"),
        message().header("authorization", format!("Basic {SECRET}")),
        message().header("authorization", "alice"),
        world.client.get(format!("{}/v1/threads", world.url)),
        world.client.get(format!("{}/v1/threads/demo", world.url)),
        world.client.get(format!("{}/v1/threads/demo/events", world.url)),
        world.client.post(format!("{}/v1/threads/demo/stop", world.url)),
    ] {
        Answer::of(request).await.is_problem(401, "unauthenticated", "Bearer");
    }
    assert!(world.shard.records().is_empty());
    assert_eq!(world.get("/health").await.status, 200);
    assert_eq!(world.get("/ready").await.status, 200);
    let taken = Answer::of(message().bearer_auth(SECRET)).await;
    assert_eq!(taken.status, 201, "{}", taken.body);
    let records = world.shard.records();
    let Record::Message(message) = &records[0].arrival.record else { panic!("{records:?}") };
    assert_eq!((message.origin.who.as_str(), message.origin.proof), ("alice", Proof::Key));
}

#[tokio::test]
async fn what_a_proxy_passes_on_is_not_of_this_machine() {
    let world = World::new();
    for header in ["forwarded", "x-forwarded-for", "via"] {
        let request = world.post_request("/v1/threads/demo/messages", r#"{"text":"hello"}"#).header(header, "10.0.0.1");
        Answer::of(request).await.is_problem(401, "unauthenticated", "proxy");
    }
}

#[tokio::test]
async fn a_web_page_of_somebody_else_is_refused() {
    let config = Config {
        allowed_hosts: vec!["agents.lan".into()],
        allowed_origins: vec!["https://app.example.org".into()],
        public_url: Some("https://agents.example.org/base/".into()),
        ..Config::default()
    };
    let world = World::with(config);
    assert_eq!(world.gateway.base_url(), "https://agents.example.org/base");
    let port = world.gateway.address().port();
    let get = |host: &str| world.client.get(format!("{}/v1/threads", world.url)).header("host", host);
    for host in ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:7070", "10.0.0.1", ""] {
        Answer::of(get(host)).await.is_problem(403, "host-refused", "allowed_hosts");
    }
    for host in
        ["localhost", "LOCALHOST:1", "127.0.0.1", "127.8.8.8:80", "[::1]:7070", "agents.lan:80", "agents.example.org"]
    {
        assert_eq!(Answer::of(get(host)).await.status, 200, "{host}");
    }
    let from = |origin: &str| world.client.get(format!("{}/v1/threads", world.url)).header("origin", origin);
    for origin in ["https://evil.example", "null", "http://localhost:1", "https://app.example.org.evil.example"] {
        Answer::of(from(origin)).await.is_problem(403, "origin-refused", "allowed_origins");
    }
    assert_eq!(Answer::of(from(&format!("http://127.0.0.1:{port}"))).await.status, 200);
    // The page that is allowed may also read the answer, and asks beforehand whether it may.
    let answer = from("https://app.example.org").send().await.unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["access-control-allow-origin"], "https://app.example.org");
    let asked = world
        .client
        .request(reqwest::Method::OPTIONS, format!("{}/v1/threads/demo/messages", world.url))
        .header("origin", "https://app.example.org")
        .header("access-control-request-method", "POST");
    let answer = asked.send().await.unwrap();
    assert_eq!(answer.status(), 204);
    assert!(answer.headers()["access-control-allow-headers"].to_str().unwrap().contains("content-type"));
}

#[tokio::test]
async fn a_gateway_that_everybody_could_command_does_not_start() {
    let start = |config| gateway::start(config, CapabilityKey::random().unwrap()).map(|_| ()).unwrap_err();
    let open = Config { listen: "0.0.0.0:0".parse().unwrap(), ..Config::default() };
    let error = start(open.clone());
    assert!(matches!(error, GatewayError::Exposed(_)));
    assert!(error.to_string().contains("keys"), "{error}");
    let guarded = Config { keys: with_key().keys, ..open };
    let (_from, _to, gateway) = gateway::start(guarded, CapabilityKey::random().unwrap()).unwrap();
    assert!(gateway.base_url().starts_with("http://127.0.0.1:"), "{}", gateway.base_url());
    gateway.shutdown().await;
}

#[tokio::test]
async fn a_setting_that_cannot_be_used_is_named() {
    let start = |config| gateway::start(config, CapabilityKey::random().unwrap()).map(|_| ()).unwrap_err().to_string();
    let any = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    for (config, said) in [
        (Config { keys: vec!["secret".into()], ..any.clone() }, "keys[0]"),
        (Config { keys: vec![format!("a:{SECRET}"), "b:short".into()], ..any.clone() }, "keys[1]"),
        (Config { keys: vec![format!("a:{SECRET}"), format!("a:{SECRET}2")], ..any.clone() }, "\"a\""),
        (Config { public_url: Some("agents.example.org".into()), ..any.clone() }, "public_url"),
        (Config { public_url: Some("ftp://x".into()), ..any.clone() }, "public_url"),
        (Config { allowed_origins: vec!["app.example.org".into()], ..any.clone() }, "allowed_origins"),
        (Config { allowed_origins: vec!["https://a.example/x".into()], ..any.clone() }, "allowed_origins"),
        (Config { shards: 0, ..any.clone() }, "shards"),
    ] {
        let error = start(config);
        assert!(error.contains(said), "{said}: {error}");
        assert!(!error.contains(SECRET), "{error}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = start(Config { listen: taken.local_addr().unwrap(), ..any });
    assert!(error.contains("cannot listen on 127.0.0.1:"), "{error}");
    let unknown = toml::from_str::<Config>("lisen = \"127.0.0.1:1\"").unwrap_err().to_string();
    assert!(unknown.contains("lisen"), "{unknown}");
    let read: Config = toml::from_str("listen = \"127.0.0.1:1\"\n[limits]\nunanswered_max = 7").unwrap();
    assert_eq!((read.listen.port(), read.limits.unanswered_max, read.limits.queries_max), (1, 7, 1024));
}
