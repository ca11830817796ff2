//! The benchmark of latency: from a user's message to the prompt that it causes, with the message on stable storage between.
//!
//! In: how long to measure. Out: medians and 99th percentiles, beside what one `fdatasync` takes. Always: conversations pause
//! between turns, each at its own times, so that nothing waits in a queue that a real one would not wait in; what all at once
//! costs is measured beside.
//!
//! ```text
//! cargo bench -p slackwater --bench latency -- [--seconds S] [--messages N] [--one-processor] [--json]
//! ```
//!
//! `benches/README.md` says what is on the path and what is not, and holds figures.

#![allow(clippy::print_stdout, unreachable_pub, reason = "figures are the output, and the modules are its own")]
#![allow(dead_code, reason = "it shares modules with other benches, and needs less of them")]

mod corpus;
mod drive;
mod figures;
mod probe;

use clap::Parser;
use corpus::{Choices, Corpus};
use drive::Drive;
use figures::{Figures, median, quantile};
use slackwater::journal::FileDisk;
use slackwater_core::port::ToModel;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// The program's own allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// How many conversations there are, and how long each pauses between its turns on average.
const CONVERSATIONS: [(u32, Duration); 3] =
    [(1, Duration::from_millis(5)), (64, Duration::from_millis(250)), (1024, Duration::from_secs(2))];

/// The pause before a sync that is measured beside: about as long as the journal's own are apart.
const BETWEEN_SYNCS: Duration = Duration::from_millis(4);

/// In how many parts each is measured.
const ROUNDS: u32 = 5;

/// The others, beside a busy thread.
const OTHERS: (u32, Duration) = (1_000, Duration::from_secs(1));

/// The agent that is busy.
const BUSY: u32 = 1 << 24;

/// Latency: from a message to its prompt.
#[derive(Clone, Debug, Parser)]
struct Arguments {
    /// How long each part is measured, in seconds.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// How many messages the busy thread has had before.
    #[arg(long, default_value_t = 20_000)]
    messages: u32,
    /// Where the journal is written; a directory under `target/` without it.
    #[arg(long)]
    directory: Option<PathBuf>,
    /// Bind everything, the sync that is measured beside too, to one processor, as `slackwater cluster up --pin` binds a shard.
    #[arg(long)]
    one_processor: bool,
    /// One line of JSON a figure.
    #[arg(long)]
    json: bool,
    /// What cargo adds.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    if arguments.one_processor {
        slackwater::host::processor::bind(0)?;
    }
    let parent = arguments.directory.clone().unwrap_or_else(|| PathBuf::from(env!("CARGO_TARGET_TMPDIR")));
    std::fs::create_dir_all(&parent)?;
    let directory = tempfile::Builder::new().prefix("latency").tempdir_in(&parent)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(all(&arguments, directory.path()))
}

async fn all(arguments: &Arguments, directory: &Path) -> anyhow::Result<()> {
    let corpus = Corpus::new(42, 16 << 20);
    let figures = Figures { json: arguments.json };
    let on = if arguments.one_processor { ", on one processor" } else { "" };
    figures.head(&format!("{} seconds each{on}, in microseconds", arguments.seconds));
    let lasting = Duration::from_secs(arguments.seconds);
    let mut pings = Pings { drive: Drive::start(FileDisk::open(directory.join("journal"))?)?, corpus, turn: 0 };

    let mut worst: f64 = 0.0;
    for (count, pause) in CONVERSATIONS {
        // In turns, so that what else the disk does is the same for both.
        let (mut took, mut syncs) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            took.extend(pings.for_some_time(0..count, pause, lasting / ROUNDS, None).await);
            syncs.extend(probe::syncs(directory, BETWEEN_SYNCS)?.iter().map(|time| time.as_secs_f64() * 1e6));
        }
        let sync = figures.show(&format!("fdatasync_p50_us_{count}"), vec![median(syncs.clone())], "us", None);
        figures.show(&format!("fdatasync_p99_us_{count}"), vec![quantile(syncs, 0.99)], "us", None);
        let p50 = figures.show(&format!("prompt_p50_us_{count}"), vec![median(took.clone())], "us", Some(sync));
        figures.show(&format!("prompt_p99_us_{count}"), vec![quantile(took, 0.99)], "us", None);
        figures.show(&format!("prompt_vs_sync_p50_{count}"), vec![p50 / sync], "ratio", Some(1.0));
        worst = worst.max(p50 / sync);
        let took = pings.all_at_once(0..count).await;
        figures.show(&format!("prompt_all_at_once_p50_us_{count}"), vec![median(took)], "us", Some(sync));
    }
    figures.show("prompt_vs_sync_p50", vec![worst], "ratio", Some(1.0));

    let (count, pause) = OTHERS;
    let alone = quantile(pings.for_some_time(0..count, pause, lasting, None).await, 0.99);
    for _ in 0..arguments.messages {
        pings.turn += 1;
        pings.drive.turn(BUSY, pings.turn, &pings.corpus).await;
    }
    let beside = quantile(pings.for_some_time(0..count, pause, lasting, Some(BUSY)).await, 0.99);
    figures.show("others_p99_us_alone", vec![alone], "us", None);
    figures.show("others_p99_us_beside_a_busy_thread", vec![beside], "us", Some(alone));
    figures.show("others_p99_beside_vs_alone", vec![beside / alone], "ratio", Some(1.0));
    pings.drive.stop().await
}

/// Says whose pause is over, when it is: a thread of its own, because the runtime's timers go by the millisecond and would let
/// those that are due within the same one speak at the same moment.
fn metronome() -> (std::sync::mpsc::Sender<(Instant, u32)>, UnboundedReceiver<u32>) {
    let (pauses, asked) = std::sync::mpsc::channel();
    let (over, ready) = unbounded_channel();
    std::thread::spawn(move || {
        let mut due = BinaryHeap::new();
        loop {
            let now = Instant::now();
            let next = due.peek().map(|&Reverse((at, agent))| (at, agent));
            let pause = match next {
                Some((at, agent)) if at <= now => {
                    due.pop();
                    if over.send(agent).is_err() {
                        return;
                    }
                    continue;
                }
                Some((at, _)) => asked.recv_timeout(at - now),
                None => asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match pause {
                Ok(pause) => due.push(Reverse(pause)),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    (pauses, ready)
}

/// Conversations of messages and answers.
struct Pings {
    drive: Drive,
    corpus: Corpus,
    /// The last turn that was begun, of any of them.
    turn: u32,
}

impl Pings {
    /// Has these agents converse for some time, each with a random pause between its turns, and perhaps one more without
    /// any. Returns how long prompts took in microseconds, without the one's.
    async fn for_some_time(
        &mut self,
        agents: Range<u32>,
        pause: Duration,
        lasting: Duration,
        busy: Option<u32>,
    ) -> Vec<f64> {
        let mut choices = Choices::new(7);
        let mut paused = |now: Instant| now + pause.mul_f64(choices.below(2000) as f64 / 1000.0);
        let end = Instant::now() + lasting;
        let (pauses, mut ready) = metronome();
        let begin = |at, agent| pauses.send((at, agent)).expect("the metronome runs as long as it is asked");
        agents.for_each(|agent| begin(paused(Instant::now()), agent));
        busy.into_iter().for_each(|agent| begin(Instant::now(), agent));
        let mut sent = BTreeMap::new();
        let mut took = Vec::new();
        while Instant::now() < end || !sent.is_empty() {
            tokio::select! {
                biased;
                Some(agent) = ready.recv() => if Instant::now() < end {
                    sent.insert(agent, Instant::now());
                    self.send(agent);
                },
                Some(asked) = self.drive.model.receive.recv() => {
                    let now = Instant::now();
                    let agent = self.answer(asked);
                    if Some(agent) != busy {
                        took.push((now - sent[&agent]).as_secs_f64() * 1e6);
                    }
                }
                Some(told) = self.drive.gateway.receive.recv() => if let Some(agent) = drive::turn_of(told) {
                    sent.remove(&agent);
                    let now = Instant::now();
                    begin(if Some(agent) == busy { now } else { paused(now) }, agent);
                },
                () = tokio::time::sleep_until(end.into()), if sent.is_empty() => {}
            }
        }
        took
    }

    /// All of these agents get a message at the same moment, some times over.
    async fn all_at_once(&mut self, agents: Range<u32>) -> Vec<f64> {
        let mut took = Vec::new();
        for _ in 0..20 {
            let mut left = agents.len();
            let begun = Instant::now();
            agents.clone().for_each(|agent| self.send(agent));
            let mut prompts = Vec::new();
            while prompts.len() < agents.len() {
                prompts.extend(self.drive.model.receive.recv().await);
                took.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            for asked in prompts {
                self.answer(asked);
            }
            while left > 0 {
                let told = self.drive.gateway.receive.recv().await.expect("the shard runs");
                left -= usize::from(drive::turn_of(told).is_some());
            }
        }
        took
    }

    fn send(&mut self, agent: u32) {
        self.turn += 1;
        let text = drive::text(&self.corpus, agent, self.turn, 0, drive::MESSAGE_LENGTH);
        let message = drive::message(agent, self.turn, text);
        drive::submit(drive::thread_of(agent), message, self.turn.into(), &self.drive.gateway);
    }

    fn answer(&self, asked: ToModel) -> u32 {
        let ToModel::Prompt(prompt) = asked else { unreachable!("nobody interrupts") };
        let agent = drive::agent_of(prompt.thread);
        let text = drive::text(&self.corpus, agent, self.turn, 2, drive::COMPLETION_LENGTH);
        drive::answer(&prompt, text, None, &self.drive.model);
        agent
    }
}
