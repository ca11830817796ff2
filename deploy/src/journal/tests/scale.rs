//! What much costs: the varied corpus packed, and a million threads.
//!
//! The million is left out of ordinary runs. `SLACKWATER_SCALE_DIR=DIR cargo test -p slackwater --lib a_million_threads -- --ignored
//! --nocapture` fills DIR at its first run and opens it at the next ones.

#[path = "../../../../benches/corpus.rs"]
#[allow(dead_code, reason = "the benches use the rest")]
mod corpus;

use super::*;
use slackwater_core::record::{Block, Completion, End, ToolResult, Usage};
use std::time::Instant;

/// A turn of the benchmarks: a message, a completion with a call, its result, a completion.
fn turn(corpus: &corpus::Corpus, choice: u64, thread: ThreadId, number: Number) -> (Vec<Arrival>, usize) {
    let text = |part: u64, length| corpus.cut(choice.wrapping_mul(31).wrapping_add(part * 7919), length).to_owned();
    let origin = || Origin { who: "user".to_owned(), proof: Proof::Loopback };
    let arrival = |record| Arrival { ticket: None, thread, at_ms: 1_800_000_000_000 + choice, record };
    let completion = |seen, blocks| {
        let usage = Usage { input_tokens: 4_000, output_tokens: 300, cached_tokens: 3_000 };
        Record::Completion(Completion { seen, blocks, end: End::Finished, usage, model: "scripted".to_owned() })
    };
    let call = Block::Call { provider_id: "call_0".to_owned(), name: "look".to_owned(), arguments: text(2, 100) };
    let message = Message {
        id: InputId(format!("{number}")),
        origin: origin(),
        content: vec![Content::Text(text(0, 180))],
        thread_name: None,
        metadata: None,
    };
    let result = ToolResult {
        call: CallId { number: number + 1, index: 0 },
        origin: origin(),
        content: vec![Content::Text(text(3, 340))],
        is_error: false,
        subscription: false,
        display: None,
    };
    let arrivals = vec![
        arrival(Record::Message(message)),
        arrival(completion(number, vec![Block::Text(text(1, 1_100)), call])),
        arrival(Record::Result(result)),
        arrival(completion(number + 2, vec![Block::Text(text(4, 1_100))])),
    ];
    (arrivals, 180 + 1_100 + 100 + 340 + 1_100)
}

fn wide(number: u64) -> ThreadId {
    let name = u128::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    ThreadId::from_bytes(name.to_le_bytes())
}

#[tokio::test]
async fn the_varied_corpus_takes_a_third_of_its_length() {
    let corpus = corpus::Corpus::new(7, 8 << 20);
    let mut run = start(MemoryDisk::default());
    let (threads, turns) = (100, 20);
    let mut raw = 0;
    for number in 0..turns {
        for some in (0..threads).step_by(20) {
            let turns =
                (some..some + 20).map(|agent| turn(&corpus, number * 1000 + agent, wide(agent + 1), 4 * number + 1));
            let (arrivals, lengths): (Vec<_>, Vec<_>) = turns.unzip();
            raw += lengths.iter().sum::<usize>();
            run.append(arrivals.concat()).await.unwrap();
        }
    }
    let unpacked = run.handle.counters().bytes as f64 / raw as f64;
    assert!(run.handle.pack().await);
    let packed = run.handle.counters().bytes as f64 / raw as f64;
    eprintln!(
        "{raw} bytes of text: {unpacked:.3} of that in the log, {packed:.3} packed, with two copies of a dictionary"
    );
    assert!(unpacked <= 1.15 && packed <= 0.35, "{unpacked} and {packed}");
    run.close().await;
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
}

const MILLION: u64 = 1_000_000;

async fn fill(directory: &str) {
    let timers = std::env::var_os("SLACKWATER_SCALE_TIMERS").is_some();
    let mut run = start(FileDisk::open(directory).unwrap());
    for first in (1..=MILLION).step_by(10_000) {
        let threads = first..first + 10_000;
        run.append(threads.clone().map(|n| message(wide(n), &format!("{n} {}", "waits ".repeat(20)))).collect())
            .await
            .unwrap();
        for n in threads {
            let timers = if timers { rest(wide(n), 1).timers } else { Vec::new() };
            run.to.put(ToJournal::Rest(Rest { thread: wide(n), through: 1, timers }));
        }
    }
    run.append(vec![message(thread(1), "the hints ride along")]).await.unwrap();
    assert!(run.handle.checkpoint().await);
    run.close().await;
}

#[tokio::test]
#[ignore = "a million threads: minutes, and a directory"]
async fn a_million_threads() {
    let directory = std::env::var("SLACKWATER_SCALE_DIR").expect("SLACKWATER_SCALE_DIR names a directory");
    if !std::path::Path::new(&directory).is_dir() {
        return fill(&directory).await;
    }
    let before = resident_bytes();
    let begun = Instant::now();
    let journal = Journal::open(FileDisk::open(&directory).unwrap(), Options::default()).unwrap();
    let opened = begun.elapsed();
    assert!(journal.shared.index.len() as u64 > MILLION);
    let resting = journal.resting.len();
    let (from, to, handle) = journal.start().unwrap();
    let (mut run, mut told) = (Run { from, to, handle }, 0);
    run.to.put(ToJournal::Append(vec![message(thread(2), "first")]));
    loop {
        match run.next().await {
            Some(FromJournal::Committed(_)) => break,
            Some(FromJournal::Wake { .. }) => {}
            Some(FromJournal::Resting(_)) => told += 1,
            other => panic!("{other:?}"),
        }
    }
    let ready = begun.elapsed();
    while resting > 0 && told < resting {
        match run.next().await {
            Some(FromJournal::Resting(_)) => told += 1,
            other => panic!("{other:?}"),
        }
    }
    let each = (resident_bytes() - before) as f64 / MILLION as f64;
    eprintln!(
        "opened in {opened:?}, first commit after {ready:?}, {resting} timers told after {:?}, {each:.1} bytes resident a thread",
        begun.elapsed()
    );
    assert_eq!(run.recall(wide(77)).await.unwrap().len(), 1);
    assert!(each < 200.0);
    run.close().await;
}
