//! Bounds, interruptions and the end: a sender is always told what to do, and nothing hangs.

use super::{Answer, World};
use slackwater::gateway::{Config, Limits, SubmitError};
use slackwater_core::effect::{Declined, Outcome, Refusal};
use slackwater_core::id::{InputId, ThreadId, Ticket};
use slackwater_core::port::ToGateway;
use slackwater_core::record::{Content, Message, Origin, Proof, Record};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinHandle;

fn limits(limits: Limits) -> Config {
    Config { limits, ..Config::default() }
}

impl World {
    fn send(&self, thread: &str) -> JoinHandle<Answer> {
        tokio::spawn(Answer::of(
            self.post_request(&format!("/v1/threads/{thread}/messages"), r#"{"text":"hello","id":"a"}"#),
        ))
    }

    async fn until_held(&self, count: usize) {
        while self.shard.held() < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

#[tokio::test]
async fn every_queue_is_bounded() {
    let world = World::with(limits(Limits { unanswered_max: 5, unanswered_per_thread_max: 2, ..Limits::default() }));
    world.shard.hold();
    let mut pending = vec![world.send("a"), world.send("a"), world.send("b"), world.send("b")];
    world.until_held(4).await;
    world.send("a").await.unwrap().is_problem(429, "busy", "of this thread");
    pending.push(world.send("c"));
    world.until_held(5).await;
    world.send("d").await.unwrap().is_problem(429, "busy", "5 inputs wait");
    // A sender that gives up still counts, because the shard still holds what it sent.
    pending.remove(0).abort();
    world.send("d").await.unwrap().is_problem(429, "busy", "5 inputs wait");
    world.shard.release();
    for answer in pending {
        assert!(matches!(answer.await.unwrap().status, 200 | 201));
    }
    // What was let in was kept, and the gateway is free again.
    assert_eq!(world.shard.records().len(), 5);
    assert_eq!(world.send("d").await.unwrap().status, 201);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_whether_it_says_so_or_not() {
    let world = World::with(limits(Limits { message_bytes_max: 1000, bodies_bytes_max: 1 << 20, ..Limits::default() }));
    let path = "/v1/threads/demo/messages";
    world.post(path, "x".repeat(1001)).await.is_problem(413, "too-large", "1000");
    let pieces = futures::stream::iter((0..100).map(|_| Ok::<_, std::io::Error>("x".repeat(100))));
    world.post(path, reqwest::Body::wrap_stream(pieces)).await.is_problem(413, "too-large", "1000");
    assert_eq!(world.send("demo").await.unwrap().status, 201);
    // All bodies together are bounded too.
    let world = World::with(limits(Limits { bodies_bytes_max: 8192, ..Limits::default() }));
    world.shard.hold();
    let body = |id: &str| format!(r#"{{"id":"{id}","text":"{}"}}"#, "x".repeat(5000));
    let pending = tokio::spawn(Answer::of(world.post_request(path, body("a"))));
    world.until_held(1).await;
    world.post(path, body("b")).await.is_problem(503, "busy", "bodies");
    world.shard.release();
    assert_eq!(pending.await.unwrap().status, 201);
    assert_eq!(world.post(path, body("b")).await.status, 201);
}

#[tokio::test]
async fn a_full_thread_sends_its_senders_away_for_a_while() {
    let world = World::new();
    world.shard.hold();
    let sent = world.send("demo");
    world.until_held(1).await;
    let ticket = world.shard.held_tickets()[0];
    world.shard.tell(ToGateway::Answer(ticket, Outcome::Refused(Refusal::QueueFull)));
    sent.await.unwrap().is_problem(429, "queue-full", "\"id\":\"a\"");
    let sent = world.send("demo");
    world.until_held(2).await;
    let ticket = world.shard.held_tickets()[1];
    world.shard.tell(ToGateway::Answer(ticket, Outcome::Refused(Refusal::Damaged)));
    sent.await.unwrap().is_problem(500, "damaged", "doctor");
}

#[tokio::test]
async fn what_an_operator_does_not_let_in_is_told_why_and_when_to_come_again() {
    let world = World::new();
    world.shard.hold();
    for (at, retry_after_ms, status) in [(0, Some(1_500), 429), (1, None, 403)] {
        let sent = world.send("demo");
        world.until_held(at + 1).await;
        let declined = Declined { reason: "not this minute".to_owned(), retry_after_ms };
        world.shard.tell(ToGateway::Answer(world.shard.held_tickets()[at], Outcome::Declined(declined)));
        let answer = sent.await.unwrap();
        answer.is_problem(status, "declined", "not this minute");
        assert_eq!(answer.retry_after.as_deref(), retry_after_ms.map(|_| "2"));
    }
}

#[tokio::test]
async fn answers_of_another_life_or_gateway_answer_nothing() {
    let world = World::new();
    world.shard.hold();
    let sent = world.send("demo");
    world.until_held(1).await;
    let Ticket { gateway, request } = world.shard.held_tickets()[0];
    assert!(request > 1_600_000_000_000, "requests are not counted from 0 in every life");
    world.shard.tell(ToGateway::Answer(Ticket { gateway: gateway + 1, request }, Outcome::Taken(9)));
    world.shard.tell(ToGateway::Answer(Ticket { gateway, request: 1 }, Outcome::Taken(9)));
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(!sent.is_finished());
    world.shard.release();
    assert_eq!(sent.await.unwrap().body["number"], 1);
}

#[tokio::test]
async fn what_gets_no_answer_ends() {
    let world = World::with(limits(Limits { answer_ms_max: 100, ..Limits::default() }));
    world.shard.hold();
    let answer = world.send("demo").await.unwrap();
    answer.is_problem(503, "unknown-fate", "same id");
    assert_eq!(answer.body["id"], "a");
}

#[tokio::test]
async fn a_failed_sync_stops_the_shard() {
    let world = World::new();
    world.shard.hold();
    let sent = world.send("demo");
    world.until_held(1).await;
    world.gateway.fail("the disk is full: /data");
    let answer = sent.await.unwrap();
    answer.is_problem(503, "unknown-fate", "/data");
    assert_eq!(answer.body["id"], "a", "it can be sent again as the same");
    world.send("demo").await.unwrap().is_problem(503, "unavailable", "/data");
    world.get("/ready").await.is_problem(503, "not-ready", "/data");
    assert_eq!(world.get("/health").await.status, 200);
    world.get("/v1/threads/demo").await.is_problem(503, "unavailable", "/data");
    // A flow started in its place is connected to the same gateway.
    let (from, to) = world.shards.reconnect("the shard was started again");
    world.shard.release();
    world.shard.attach(from, to);
    world.gateway.set_ready(true);
    assert_eq!(world.get("/ready").await.status, 200);
    // The first delivery had reached the shard: the second one is recognised.
    let again = world.send("demo").await.unwrap();
    assert_eq!((again.status, &again.body["duplicate"]), (200, &serde_json::json!(true)));
}

#[tokio::test]
async fn the_handle_works_without_http() {
    let world = World::new();
    let thread = ThreadId::from_bytes([3; 16]);
    let message = || Message {
        id: InputId("a".into()),
        origin: Origin { who: "test".into(), proof: Proof::Process },
        content: vec![Content::Text("hello".into())],
        thread_name: None,
        metadata: None,
    };
    assert_eq!(world.shards.submit(thread, Record::Message(message())).await, Ok(Outcome::Taken(1)));
    assert_eq!(world.shards.submit(thread, Record::Message(message())).await, Ok(Outcome::Duplicate(1)));
    world.gateway.shutdown().await;
    let refused = world.shards.submit(thread, Record::Message(message())).await;
    assert!(matches!(refused, Err(SubmitError::Unavailable(_))), "{refused:?}");
}

#[tokio::test]
async fn a_stop_takes_less_than_a_second() {
    let world = World::new();
    let thread = world.say("demo", "hello").await;
    world.shard.hold();
    let pending = world.send("demo");
    world.until_held(1).await;
    // A stream, a connection that says nothing, and one that has begun to say something.
    let stream = world.client.get(format!("{}/v1/threads/{thread}/events", world.url)).send().await.unwrap();
    let mut silent = tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap();
    let mut slow = tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap();
    slow.write_all(b"POST /v1/threads/demo/messages HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{").await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let begun = Instant::now();
    world.gateway.shutdown().await;
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    pending.await.unwrap().is_problem(503, "unknown-fate", "stopping");
    let text = stream.text().await.unwrap();
    assert!(text.trim_end().ends_with(": the runtime is stopping"), "{text}");
    let mut rest = Vec::new();
    for connection in [&mut silent, &mut slow] {
        let ended = tokio::time::timeout(Duration::from_secs(5), connection.read_to_end(&mut rest)).await;
        assert!(ended.is_ok(), "a connection was left open");
    }
    assert!(tokio::net::TcpStream::connect(world.gateway.address()).await.is_err());
}

#[tokio::test]
async fn connections_beyond_the_bound_wait() {
    let world = World::with(limits(Limits { connections_max: 2, ..Limits::default() }));
    let held = [
        tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap(),
        tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap(),
    ];
    tokio::time::sleep(Duration::from_millis(50)).await;
    let url = format!("{}/health", world.url);
    let waiting = tokio::spawn(Answer::of(world.client.get(url)));
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!waiting.is_finished());
    drop(held);
    assert_eq!(waiting.await.unwrap().status, 200);
}

#[tokio::test]
async fn a_connection_that_says_nothing_is_closed_and_one_that_speaks_is_not() {
    let world = World::with(limits(Limits { silence_ms_max: 300, ..Limits::default() }));
    let mut silent = tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap();
    let mut speaking = tokio::net::TcpStream::connect(world.gateway.address()).await.unwrap();
    let mut answered = 0;
    let mut answer = [0; 4096];
    // Longer in all than the silence may be.
    for _ in 0..8 {
        speaking.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        answered += usize::from(speaking.read(&mut answer).await.unwrap() > 0);
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    assert_eq!(answered, 8);
    let ended = tokio::time::timeout(Duration::from_secs(10), silent.read(&mut answer)).await;
    assert!(matches!(ended, Ok(Ok(0) | Err(_))), "{ended:?}");
}
