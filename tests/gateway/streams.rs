//! Streams: every numbered output once and none left out, whoever breaks off and whenever.

use super::shard::FakeShard;
use super::{Answer, World};
use futures::StreamExt;
use slackwater::capability::CapabilityKey;
use slackwater::gateway::{Config, Event, Limits, Subscription};
use slackwater_core::id::{OutputId, ThreadId};
use slackwater_core::port::{Chunk, Part};
use slackwater_core::record::{Block, Content, Message, Origin, Proof, Record};
use sse_stream::{Sse, SseStream};
use std::time::Duration;

const THREAD: ThreadId = ThreadId::from_bytes([5; 16]);

impl FakeShard {
    /// A user says something and the model answers: three outputs.
    fn round(&self, index: usize) {
        let message = Message {
            id: slackwater_core::id::InputId(format!("round-{index}")),
            origin: Origin { who: "test".into(), proof: Proof::Process },
            content: vec![Content::Text(format!("question {index}"))],
            thread_name: None,
            metadata: None,
        };
        self.happen(THREAD, Record::Message(message));
        self.turn(THREAD, vec![Block::Text(format!("answer {index}"))]);
    }

    fn ids(&self) -> Vec<String> {
        self.outputs(THREAD).iter().map(|output| output.id.to_string()).collect()
    }
}

/// A connected client.
struct Reader(std::pin::Pin<Box<dyn futures::Stream<Item = Sse> + Send>>);

impl Reader {
    async fn connect(world: &World, last: Option<&str>) -> Self {
        let mut request = world.client.get(format!("{}/v1/threads/{THREAD}/events", world.url));
        if let Some(last) = last {
            request = request.header("last-event-id", last);
        }
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let events = SseStream::from_bytes_stream(response.bytes_stream());
        Self(Box::pin(events.take_while(|event| std::future::ready(event.is_ok())).map(Result::unwrap)))
    }

    /// The next event with an id; nothing when the stream ends.
    async fn numbered(&mut self) -> Option<Sse> {
        loop {
            let event =
                tokio::time::timeout(Duration::from_secs(30), self.0.next()).await.expect("the stream stalls")?;
            if event.id.is_some() {
                return Some(event);
            }
        }
    }

    async fn ids(&mut self, count: usize) -> Vec<String> {
        let mut ids = Vec::new();
        while ids.len() < count {
            ids.push(self.numbered().await.expect("the stream ended").id.unwrap());
        }
        ids
    }
}

/// A generator of choices from a seed (SplitMix64).
struct Choices(u64);

impl Choices {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

#[tokio::test]
async fn a_client_resumes_after_any_event_while_outputs_go_on() {
    let world = World::new();
    (0..67).for_each(|index| world.shard.round(index));
    let known = world.shard.ids();
    assert!(known.len() > 200);
    let going_on = tokio::spawn({
        let shard = world.shard.clone();
        async move {
            for index in 67.. {
                shard.round(index);
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        }
    });
    for position in 0..=known.len() {
        let last = position.checked_sub(1).map(|before| known[before].as_str());
        let wanted = known.len() - position + 5;
        let found = Reader::connect(&world, last).await.ids(wanted).await;
        assert_eq!(found, world.shard.ids()[position..position + wanted], "after {last:?}");
    }
    going_on.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_breaks_off_at_random_misses_nothing_and_sees_nothing_twice() {
    let seed = std::env::var("SLACKWATER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_261_130);
    eprintln!("SLACKWATER_SEED={seed}");
    let mut choices = Choices(seed);
    // A small buffer, so that it overflows now and then.
    let limits = Limits { subscriber_buffer_events_max: 8, ..Limits::default() };
    let config = Config { limits, ..Config::default() };
    let mut world = World::with(config.clone());
    let (mut seen, mut rounds) = (Vec::<String>::new(), 0);
    world.shard.round(rounds);
    while seen.len() < 1_000 {
        let mut reader = Reader::connect(&world, seen.last().map(String::as_str)).await;
        for _ in 0..choices.below(20) {
            // Some of what is told gets lost on the way, as when a shard stops after a commit.
            let lost = choices.below(8) == 0;
            world.shard.mute(lost);
            for _ in 0..choices.below(6) {
                rounds += 1;
                world.shard.round(rounds);
            }
            world.shard.mute(false);
            if lost {
                let (from, to) = world.shards.reconnect("the shard was started again");
                world.shard.attach(from, to);
            }
            if seen.len() < world.shard.ids().len() {
                seen.push(reader.numbered().await.expect("the stream ended").id.unwrap());
            }
        }
        drop(reader);
        if choices.below(10) == 0 {
            world.gateway.shutdown().await;
            let World { shard, key, .. } = world;
            world = World::again(config.clone(), shard, key, ([127, 0, 0, 1], 0).into());
        }
    }
    assert_eq!(seen, world.shard.ids()[..seen.len()], "SLACKWATER_SEED={seed}");
}

async fn next(subscription: &mut Subscription) -> Event {
    tokio::time::timeout(Duration::from_secs(10), subscription.next()).await.expect("stalls").expect("ended")
}

/// Lets the gateway take all that the shard told it.
async fn settle(world: &World) {
    // The answer to a question comes through the same channel after everything told before.
    world.shards.query(slackwater_core::port::Query::Thread(THREAD)).await.unwrap();
}

#[tokio::test]
async fn a_slow_reader_is_caught_up_and_told_that_its_text_is_void() {
    let limits = Limits { subscriber_buffer_events_max: 4, ..Limits::default() };
    let world = World::with(Config { limits, ..Config::default() });
    world.shard.round(0);
    let mut slow = world.shards.subscribe_now(THREAD).unwrap();
    let text = |seen, text: &str| Chunk { thread: THREAD, seen, part: Part::Text(text.into()) };
    world.shard.chunk(THREAD, 2, Part::Text("half a ".into()));
    assert_eq!(next(&mut slow).await, Event::Chunk(text(2, "half a ")));
    (1..100).for_each(|index| world.shard.round(index));
    settle(&world).await;
    assert_eq!(next(&mut slow).await, Event::Chunk(Chunk { thread: THREAD, seen: 2, part: Part::Void }));
    for output in &world.shard.outputs(THREAD)[3..] {
        assert_eq!(next(&mut slow).await, Event::Output(output.clone()));
    }
    // Chunks of a prompt that has its turn already are stale.
    world.shard.chunk(THREAD, 199, Part::Text("stale".into()));
    world.shard.chunk(THREAD, 200, Part::Text("new".into()));
    assert_eq!(next(&mut slow).await, Event::Chunk(text(200, "new")));
}

#[tokio::test]
async fn a_large_text_counts_in_a_buffer_as_what_it_is() {
    let limits = Limits { subscriber_buffer_bytes_max: 10_000, ..Limits::default() };
    let world = World::with(Config { limits, ..Config::default() });
    world.shard.round(0);
    let mut slow = world.shards.subscribe_now(THREAD).unwrap();
    world.shard.chunk(THREAD, 2, Part::Started);
    assert_eq!(next(&mut slow).await, Event::Chunk(Chunk { thread: THREAD, seen: 2, part: Part::Started }));
    (0..3).for_each(|_| world.shard.chunk(THREAD, 2, Part::Text("x".repeat(4_000))));
    settle(&world).await;
    assert_eq!(next(&mut slow).await, Event::Chunk(Chunk { thread: THREAD, seen: 2, part: Part::Void }));
}

#[tokio::test]
async fn a_subscription_may_be_made_before_its_thread() {
    let world = World::new();
    let mut early = world.shards.subscribe(THREAD, OutputId::default()).unwrap();
    world.shard.round(0);
    world.shard.chunk(THREAD, 2, Part::Started);
    for output in world.shard.outputs(THREAD) {
        assert_eq!(next(&mut early).await, Event::Output(output));
    }
    assert_eq!(next(&mut early).await, Event::Chunk(Chunk { thread: THREAD, seen: 2, part: Part::Started }));
    world.gateway.shutdown().await;
    assert!(matches!(next(&mut early).await, Event::End(_)));
    assert_eq!(early.next().await, None);
}

#[tokio::test]
async fn a_client_begins_where_it_says() {
    let world = World::new();
    world.get(&format!("/v1/threads/{THREAD}/events")).await.is_problem(404, "unknown-thread", "");
    world.shard.round(0);
    let ids = world.shard.ids();
    for (query, position) in
        [("", 0), ("?from=start", 0), ("?after=1.0", 1), ("?after=2.0&from=now", 2), ("?from=now", 3)]
    {
        let url = format!("{}/v1/threads/{THREAD}/events{query}", world.url);
        let response = world.client.get(url).send().await.unwrap();
        let stream = SseStream::from_bytes_stream(response.bytes_stream());
        let mut reader = Reader(Box::pin(stream.map(Result::unwrap)));
        // Where "now" is, is asked for when the stream begins.
        assert_eq!(reader.0.next().await.unwrap().retry, Some(500), "{query}");
        settle(&world).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        world.shard.round(world.shard.ids().len());
        let all = world.shard.ids();
        let position = if position == 3 { all.len() - 3 } else { position };
        assert_eq!(reader.ids(all.len() - position).await, all[position..], "{query}");
    }
    assert_eq!(world.shard.ids()[..3], ids);
    for (query, said) in
        [("after=x", "7.1"), ("after=1", "7.1"), ("from=later", "start or now"), ("since=1.0", "since")]
    {
        let answer = world.get(&format!("/v1/threads/{THREAD}/events?{query}")).await;
        answer.is_problem(400, "bad-field", said);
    }
    let request = world.client.get(format!("{}/v1/threads/{THREAD}/events", world.url)).header("last-event-id", "x.y");
    Answer::of(request).await.is_problem(400, "bad-field", "Last-Event-ID");
}

#[tokio::test]
async fn streams_are_bounded_and_an_idle_thread_costs_nothing() {
    let limits = Limits { subscribers_max: 2, ..Limits::default() };
    let world = World::with(Config { limits, ..Config::default() });
    world.shard.round(0);
    let first = Reader::connect(&world, None).await;
    let _second = Reader::connect(&world, None).await;
    let events = format!("/v1/threads/{THREAD}/events");
    world.get(&events).await.is_problem(503, "busy", "2 streams");
    assert_eq!(world.shards.subscriber_count(), 2);
    drop(first);
    while world.shards.subscriber_count() == 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Reader::connect(&world, None).await.ids(3).await;
}

#[tokio::test]
async fn a_stream_that_is_opened_while_the_shard_is_down_goes_on_when_it_is_back() {
    let shard = FakeShard::default();
    let key = CapabilityKey::random().unwrap();
    let world = World::again(Config::default(), shard, key, ([127, 0, 0, 1], 0).into());
    world.shard.round(0);
    world.gateway.fail("the journal is being opened again");
    // A stock client that is answered with an error never comes back.
    let mut reader = Reader::connect(&world, Some("1.0")).await;
    world.shard.mute(true);
    world.shard.round(1);
    world.shard.mute(false);
    let (from, to) = world.shards.reconnect("the shard was started again");
    world.shard.attach(from, to);
    world.gateway.set_ready(true);
    assert_eq!(reader.ids(5).await, world.shard.ids()[1..]);
}
