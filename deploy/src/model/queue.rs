//! The queue: which prompts are with the model, and which wait.
//!
//! In: `ToModel`. Out: `FromModel`. Always: each prompt is answered once, with a completion or a failure that carries its
//! `seen`; one that took more of the model's window than was configured is followed by `Compact`; at most so many are with the model at a time, the rest wait in the order in which they came and cost a map entry
//! each; what was streamed of an attempt that failed is declared void.
//!
//! One task holds all of it. A prompt that comes again while the first is unanswered is the same prompt.

use super::{Answer, Limits, Model, ModelError, Piece, Request, Sink};
use crate::catalog::{Catalog, ToolSpec};
use crate::port::{self, FromAdapter, Inside, ToAdapter};
use futures::FutureExt;
use futures::future::{BoxFuture, Future, poll_fn};
use futures::stream::{FuturesUnordered, StreamExt};
use slackwater_core::effect::Prompt;
use slackwater_core::history::EVENT_TOOL;
use slackwater_core::id::{InputId, Number, ThreadId};
use slackwater_core::port::{Chunk, FromModel, Part, ToModel};
use slackwater_core::record::{
    Arrival, Block, Bounds, Compact, CompactWhy, Completion, End, Failure, FailureClass, Origin, Record, Usage,
};
use slackwater_core::tools::BUILT_IN;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// Starts the adapter between the flow and a model. Call it inside a tokio runtime; it stops when either end is dropped.
pub fn start(
    model: Arc<dyn Model>,
    system: Arc<str>,
    catalog: Catalog,
    limits: Limits,
    bounds: Bounds,
) -> (FromAdapter<FromModel>, ToAdapter<ToModel>) {
    let (from, to, Inside { send, receive }) = port::ends();
    let ask = Ask { model, system, limits, bounds, send };
    let queue = Queue {
        ask: Arc::new(ask),
        tools: Tools { catalog, made: None, given: HashMap::new() },
        waiting: BTreeMap::new(),
        arrived: 0,
        places: HashMap::new(),
        running: FuturesUnordered::new(),
    };
    tokio::spawn(queue.run(receive));
    (from, to)
}

/// What names a prompt.
type Key = (ThreadId, Number);

struct Queue {
    ask: Arc<Ask>,
    tools: Tools,
    /// The prompts that wait, in the order in which they came.
    waiting: BTreeMap<u64, Prompt>,
    arrived: u64,
    places: HashMap<Key, Place>,
    running: FuturesUnordered<BoxFuture<'static, Key>>,
}

/// Where a prompt is that has no answer yet.
enum Place {
    Waiting(u64),
    /// With the model; what is sent here cuts it.
    Running(oneshot::Sender<()>),
    /// Told to stop; its answer is on its way.
    Cut,
}

impl Queue {
    async fn run(mut self, mut receive: mpsc::UnboundedReceiver<ToModel>) {
        let ask = self.ask.clone();
        loop {
            tokio::select! {
                // A cut goes before the chunks that it cuts off. The channel yields to the rest of the runtime itself.
                biased;
                () = ask.send.closed() => return,
                asked = receive.recv() => match asked {
                    Some(ToModel::Prompt(prompt)) => self.prompt(prompt),
                    Some(ToModel::Cut { thread, seen }) => self.cut((thread, seen)),
                    Some(ToModel::Refuse(prompt, why)) => self.refuse(&prompt, why),
                    None => return,
                },
                Some(key) = self.running.next() => {
                    self.places.remove(&key);
                    self.fill();
                }
            }
        }
    }

    fn prompt(&mut self, prompt: Prompt) {
        let key = (prompt.thread, prompt.seen);
        if self.places.contains_key(&key) {
            return;
        }
        self.arrived += 1;
        self.places.insert(key, Place::Waiting(self.arrived));
        self.waiting.insert(self.arrived, prompt);
        self.fill();
    }

    /// An operator of this runtime does not let the prompt through: that is its answer.
    fn refuse(&self, prompt: &Prompt, message: String) {
        let failure = Failure { seen: prompt.seen, class: FailureClass::Fatal, message, attempts: 0 };
        self.ask.answer(prompt.thread, Record::Failure(failure));
    }

    fn cut(&mut self, key: Key) {
        match self.places.remove(&key) {
            None => {}
            Some(Place::Waiting(order)) => {
                self.waiting.remove(&order);
                self.ask.answer(key.0, cut(self.ask.model.name(), key.1, SoFar::default()));
            }
            Some(Place::Running(stop)) => {
                // When nobody listens the answer has just been given.
                let _ = stop.send(());
                self.places.insert(key, Place::Cut);
            }
            Some(Place::Cut) => {
                self.places.insert(key, Place::Cut);
            }
        }
    }

    /// Gives the model as many of those that wait as it may have.
    fn fill(&mut self) {
        while self.running.len() < self.ask.limits.prompts_at_once.max(1) {
            let Some((_, prompt)) = self.waiting.pop_first() else { return };
            let key = (prompt.thread, prompt.seen);
            let (stop, stopped) = oneshot::channel();
            self.places.insert(key, Place::Running(stop));
            let tools = self.tools.of(prompt.terms.tools.as_deref());
            let request = Request { system: self.ask.system.clone(), tools, prompt, attempt: 1 };
            self.running.push(Box::pin(self.ask.clone().answered(request, stopped)));
        }
    }
}

/// The tools that the model is told of: the catalog's and the built-in ones.
struct Tools {
    catalog: Catalog,
    made: Option<Made>,
    /// The same for threads that were given only some of them, by their names.
    given: HashMap<Vec<String>, Arc<[ToolSpec]>>,
}

/// Of so many selections of tools the snapshots are kept; they are made anew when there are more.
const SELECTIONS_KEPT_MAX: usize = 64;

/// A snapshot of the catalog, and what was made of it.
struct Made {
    of: Arc<[ToolSpec]>,
    all: Arc<[ToolSpec]>,
}

impl Tools {
    /// What a thread is told of that was given these tools, or all.
    fn of(&mut self, given: Option<&[String]>) -> Arc<[ToolSpec]> {
        let all = self.snapshot();
        let Some(names) = given else { return all };
        if let Some(some) = self.given.get(names) {
            return some.clone();
        }
        let built_in = |name: &str| BUILT_IN.iter().any(|tool| tool.name == name);
        let some: Arc<[ToolSpec]> =
            all.iter().filter(|tool| built_in(&tool.name) || names.contains(&tool.name)).cloned().collect();
        if self.given.len() >= SELECTIONS_KEPT_MAX {
            self.given.clear();
        }
        self.given.insert(names.to_vec(), some.clone());
        some
    }

    /// The same allocation as long as the catalog gives the same one, so that providers can keep what they make of it.
    fn snapshot(&mut self) -> Arc<[ToolSpec]> {
        let offered = self.catalog.tools();
        if let Some(Made { of, all }) = &self.made
            && Arc::ptr_eq(of, &offered)
        {
            return all.clone();
        }
        let reserved = |name: &str| name == EVENT_TOOL || BUILT_IN.iter().any(|tool| tool.name == name);
        let built_in = BUILT_IN.iter().map(|tool| ToolSpec {
            name: tool.name.to_owned(),
            description: tool.description.to_owned(),
            schema: serde_json::from_str(tool.schema).expect("invariant: a built-in tool's schema is JSON"),
            annotations: None,
        });
        let all: Arc<[ToolSpec]> =
            offered.iter().filter(|tool| !reserved(&tool.name)).cloned().chain(built_in).collect();
        self.given.clear();
        self.made = Some(Made { of: offered, all: all.clone() });
        all
    }
}

/// All that answering one prompt needs.
struct Ask {
    model: Arc<dyn Model>,
    system: Arc<str>,
    limits: Limits,
    /// The bounds that every thread is to have.
    bounds: Bounds,
    send: mpsc::UnboundedSender<FromModel>,
}

/// What has been streamed of the present attempt.
#[derive(Default)]
struct SoFar {
    text: String,
    usage: Usage,
    streamed: bool,
    /// What came since the model last waited: it goes on as one item.
    chunks: Vec<Chunk>,
}

impl Ask {
    /// Answers one prompt, after as many attempts as it takes and is allowed, or as soon as it is cut.
    async fn answered(self: Arc<Self>, request: Request, stopped: oneshot::Receiver<()>) -> Key {
        let key = (request.prompt.thread, request.prompt.seen);
        self.stream(vec![chunk(key, Part::Started)]);
        let so_far = Arc::new(Mutex::new(SoFar::default()));
        let bounds = request.prompt.bounds;
        let record = tokio::select! {
            biased;
            // The other end is kept by the queue until the answer is given, so this is a cut and nothing else.
            Ok(()) = stopped => cut(self.model.name(), key.1, taken(&so_far)),
            record = self.attempts(request, &so_far) => record,
        };
        if bounds != self.bounds {
            // Before the answer, so that its calls are already bound by them.
            self.answer(key.0, Record::Bounds(self.bounds));
        }
        let crossed = self.crossed(&record);
        self.answer(key.0, record);
        if let Some(compact) = crossed {
            self.answer(key.0, Record::Compact(compact));
        }
        key
    }

    /// That a prompt and its answer took more of the window than the share, by the provider's count. Tokens that were
    /// read from a cache fill the window, too; the provider's input counts them.
    fn crossed(&self, record: &Record) -> Option<Compact> {
        let Record::Completion(Completion { seen, usage, .. }) = record else { return None };
        let tokens = usage.input_tokens.saturating_add(usage.output_tokens);
        let seen = *seen;
        (tokens > self.limits.compact_at_tokens?).then(|| Compact {
            id: InputId(format!("crossed {seen}")),
            origin: Origin::runtime(),
            why: CompactWhy::Crossed { seen, tokens },
        })
    }

    async fn attempts(self: &Arc<Self>, mut request: Request, so_far: &Arc<Mutex<SoFar>>) -> Record {
        let key = (request.prompt.thread, request.prompt.seen);
        loop {
            let error = match self.attempt(&request, so_far).await {
                Ok(Answer { blocks, end, usage, model }) => {
                    return Record::Completion(Completion { seen: key.1, blocks, end, usage, model });
                }
                Err(error) => error,
            };
            if taken(so_far).streamed {
                self.stream(vec![chunk(key, Part::Void)]);
            }
            if !error.may_pass() || request.attempt >= self.limits.attempts_max {
                tracing::warn!(thread = %key.0, class = ?error.class, attempts = request.attempt, "prompt failed: {error}");
                let ModelError { class, message, .. } = error;
                return Record::Failure(Failure { seen: key.1, class, message, attempts: request.attempt });
            }
            let pause = pause(&self.limits, request.attempt, error.retry_after);
            tracing::info!(thread = %key.0, class = ?error.class, attempt = request.attempt, ?pause, "trying again: {error}");
            tokio::time::sleep(pause).await;
            request.attempt += 1;
        }
    }

    async fn attempt(self: &Arc<Self>, request: &Request, so_far: &Arc<Mutex<SoFar>>) -> Result<Answer, ModelError> {
        let mut sink = sink((request.prompt.thread, request.prompt.seen), so_far.clone());
        let limit = Duration::from_millis(self.limits.attempt_timeout_ms);
        // A model of the user's own may panic; that ends its prompt and nothing else.
        let answer = AssertUnwindSafe(async { self.model.complete(request, &mut sink).await }).catch_unwind();
        let mut answer = pin!(answer);
        // Whenever the model waits or has ended, what it has streamed meanwhile is sent: one read of a connection often holds
        // several pieces, and none is held back.
        let streaming = poll_fn(|context| {
            let polled = answer.as_mut().poll(context);
            let chunks = std::mem::take(&mut locked(so_far).chunks);
            if !chunks.is_empty() {
                self.stream(chunks);
            }
            polled
        });
        match tokio::time::timeout(limit, streaming).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(ModelError::new(
                FailureClass::Fatal,
                format!("the code of the model {} panicked; its message is on standard error", self.model.name()),
            )),
            Err(_) => Err(ModelError::new(
                FailureClass::Transient,
                format!("{} did not finish its answer within {} s", self.model.name(), limit.as_secs_f64()),
            )),
        }
    }

    fn stream(&self, chunks: Vec<Chunk>) {
        // When the flow is gone the queue stops by itself.
        let _ = self.send.send(FromModel::Chunks(chunks));
    }

    fn answer(&self, thread: ThreadId, record: Record) {
        let at_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64;
        let _ = self.send.send(FromModel::Answer(Box::new(Arrival { ticket: None, thread, at_ms, record })));
    }
}

/// Where a model's pieces are kept until it waits.
fn sink(key: Key, so_far: Arc<Mutex<SoFar>>) -> Sink {
    Sink::new(move |piece| {
        let mut so_far = locked(&so_far);
        match piece {
            Piece::Text(text) => {
                so_far.streamed = true;
                so_far.text.push_str(&text);
                so_far.chunks.push(chunk(key, Part::Text(text)));
            }
            Piece::Reasoning(text) => {
                so_far.streamed = true;
                so_far.chunks.push(chunk(key, Part::Reasoning(text)));
            }
            Piece::Usage(usage) => so_far.usage = usage,
        }
    })
}

fn chunk((thread, seen): Key, part: Part) -> Chunk {
    Chunk { thread, seen, part }
}

fn locked(so_far: &Mutex<SoFar>) -> MutexGuard<'_, SoFar> {
    so_far.lock().unwrap_or_else(PoisonError::into_inner)
}

fn taken(so_far: &Mutex<SoFar>) -> SoFar {
    std::mem::take(&mut *locked(so_far))
}

/// The completion of a prompt that was cut.
fn cut(model: &str, seen: Number, so_far: SoFar) -> Record {
    let blocks = if so_far.text.is_empty() { Vec::new() } else { vec![Block::Text(so_far.text)] };
    Record::Completion(Completion { seen, blocks, end: End::Cut, usage: so_far.usage, model: model.to_owned() })
}

/// How long to wait before the next attempt: what the provider asks for, or twice as long each time; in both cases spread,
/// so that those who failed together do not come back together.
fn pause(limits: &Limits, attempt: u32, retry_after: Option<Duration>) -> Duration {
    let spread = RandomState::new().hash_one(attempt) as f64 / u64::MAX as f64;
    match retry_after {
        Some(asked) => asked.min(Duration::from_millis(limits.retry_after_max_ms)).mul_f64(1.0 + spread / 10.0),
        None => {
            let doubled = limits.backoff_first_ms.saturating_mul(1 << (attempt - 1).min(32));
            Duration::from_millis(doubled.min(limits.backoff_max_ms)).mul_f64(0.5 + spread / 2.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_the_provider_asks_or_doubles_within_bounds() {
        let limits = Limits::default();
        let second = Duration::from_secs;
        for _ in 0..100 {
            for (attempt, longest_ms) in [(1, 500), (2, 1000), (3, 2000), (7, 30_000), (100, 30_000)] {
                let longest = Duration::from_millis(longest_ms);
                let pause = pause(&limits, attempt, None);
                assert!((longest / 2..=longest).contains(&pause), "{attempt}: {pause:?}");
            }
            for (asked, least) in [(7, 7), (86_400, 120)] {
                let pause = pause(&limits, 1, Some(second(asked)));
                assert!((second(least)..=second(least).mul_f64(1.1)).contains(&pause), "{asked}: {pause:?}");
            }
        }
    }
}
