//! The handle to the shards: how the gateway, the Rust API and the command line reach the threads.
//!
//! In: inputs, questions and subscriptions of this process; answers and outputs of the shards. Out: each answer to the one
//! who waits for it. Always: an input is answered only by what the shard said of it, or by an error when nobody can say;
//! everything that waits is counted and bounded; a thread that nobody listens to costs nothing here.

use super::buffer::{Buffer, Live};
use super::config::Config;
use super::subscription::Subscription;
use crate::port::{self, FromAdapter, ToAdapter};
use slackwater_core::effect::Outcome;
use slackwater_core::id::{InputId, OutputId, ThreadId, Ticket};
use slackwater_core::port::{FromGateway, Query, Reply, ToGateway};
use slackwater_core::record::{Arrival, Record};
use slackwater_core::thread::Standing;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::{mpsc, oneshot};

/// The handle to the shards. A clone is the same handle.
#[derive(Clone)]
pub struct Shards(Arc<Inner>);

struct Inner {
    config: Config,
    next_request: AtomicU64,
    state: Mutex<State>,
}

struct State {
    send: mpsc::UnboundedSender<FromGateway>,
    readiness: Readiness,
    submits: HashMap<u64, (ThreadId, oneshot::Sender<Result<Outcome, SubmitError>>)>,
    submits_per_thread: HashMap<ThreadId, usize>,
    queries: HashMap<u64, oneshot::Sender<Result<Reply, SubmitError>>>,
    subscribers: HashMap<ThreadId, Vec<Arc<Buffer>>>,
    subscriber_count: usize,
    awake: isize,
}

/// Whether the shards run.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// They are being started; inputs wait for them.
    Starting,
    /// They run.
    Ready,
    /// They do not run, and why. Inputs are refused.
    Failed(String),
    /// The process stops. Inputs are refused and streams have ended.
    Stopping(String),
}

/// Why there is no outcome.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SubmitError {
    /// Too many inputs wait.
    #[error("{0} inputs wait to be made durable, as many as this gateway takes at a time; send this one again later")]
    Busy(usize),
    /// Too many inputs of this thread wait.
    #[error(
        "{0} inputs of this thread wait to be made durable, as many as it may have at a time; send this one again later"
    )]
    ThreadBusy(usize),
    /// Too many questions wait.
    #[error("{0} questions wait for their answer, as many as this gateway takes at a time; ask again later")]
    QueriesBusy(usize),
    /// Too many streams are open.
    #[error("{0} streams are open, as many as this gateway keeps; connect again later")]
    SubscribersBusy(usize),
    /// Nothing was sent: the shards do not run.
    #[error("nothing can be taken now: {0}; send it again later")]
    Unavailable(String),
    /// It was sent, and the shard stopped before it answered.
    #[error(
        "it is not known whether this was taken: {0}; send it again with the same id, which does not take it twice"
    )]
    Interrupted(String),
    /// It was sent, and no answer came in time.
    #[error(
        "no answer within {0} ms, so it is not known whether this was taken; send it again with the same id, which does not take it twice"
    )]
    NoAnswer(u64),
}

/// How many threads one page has at most; each of them is read and folded.
const THREADS_MAX: usize = 500;

/// How many items of a shard are taken under one lock at most.
const TOLD_AT_ONCE: usize = 256;

/// The time now, in milliseconds since the Unix epoch.
pub(super) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

impl Shards {
    /// A handle and the ends for the flow. Needs a tokio runtime.
    pub(super) fn new(config: Config) -> (Self, FromAdapter<FromGateway>, ToAdapter<ToGateway>) {
        let (nowhere, _) = mpsc::unbounded_channel();
        // Requests are counted on from the clock: a shard of a cluster may still answer those of this gateway's last life,
        // and its answers must not be taken for answers to new ones.
        let next_request = AtomicU64::new(now_ms() << 20);
        let state = Mutex::new(State {
            send: nowhere,
            readiness: Readiness::Starting,
            submits: HashMap::new(),
            submits_per_thread: HashMap::new(),
            queries: HashMap::new(),
            subscribers: HashMap::new(),
            subscriber_count: 0,
            awake: 0,
        });
        let shards = Self(Arc::new(Inner { config, next_request, state }));
        let (from, to) = shards.connect();
        (shards, from, to)
    }

    /// How many threads are in memory, as the shards said last.
    pub fn awake(&self) -> usize {
        usize::try_from(self.state().awake).unwrap_or(0)
    }

    /// New ends for a flow that is started in place of the one before. What still waited for that one is answered with
    /// an error, and subscriptions read what they may have missed.
    pub fn reconnect(&self, reason: &str) -> (FromAdapter<FromGateway>, ToAdapter<ToGateway>) {
        let ends = self.connect();
        self.interrupt(reason);
        ends
    }

    fn connect(&self) -> (FromAdapter<FromGateway>, ToAdapter<ToGateway>) {
        let (from, to, mut inside) = port::ends();
        let mut state = self.state();
        state.send = inside.send;
        state.awake = 0;
        // Whoever listens already listens to these, too.
        state.subscribers.keys().for_each(|thread| state.say_listening(*thread, true));
        drop(state);
        let shards = self.clone();
        tokio::spawn(async move {
            let mut told = Vec::with_capacity(TOLD_AT_ONCE);
            while inside.receive.recv_many(&mut told, TOLD_AT_ONCE).await > 0 {
                let mut state = shards.state();
                told.drain(..).for_each(|item| state.take(shards.0.config.gateway, item));
            }
        });
        (from, to)
    }

    /// A name for an input whose sender gave none: a UUID of version 7.
    pub fn fresh_id() -> InputId {
        InputId(uuid::Uuid::now_v7().to_string())
    }

    /// Sends an input to a thread and waits until it is known what became of it. What is taken is on stable storage.
    ///
    /// # Errors
    /// When it was not sent, or its fate is not known; the error says which, and what to do.
    pub async fn submit(&self, thread: ThreadId, record: Record) -> Result<Outcome, SubmitError> {
        let limits = &self.0.config.limits;
        let (answer, answered) = oneshot::channel();
        let ticket = self.ticket();
        {
            let mut state = self.state();
            state.check_running()?;
            if state.submits.len() >= limits.unanswered_max {
                return Err(SubmitError::Busy(limits.unanswered_max));
            }
            if state.submits_per_thread.get(&thread).is_some_and(|&count| count >= limits.unanswered_per_thread_max) {
                return Err(SubmitError::ThreadBusy(limits.unanswered_per_thread_max));
            }
            let arrival = Arrival { ticket: Some(ticket), thread, at_ms: now_ms(), record };
            state.send(FromGateway::Submit(arrival))?;
            // The entry stays when the sender gives up: the shard still holds the input, so it still counts.
            state.submits.insert(ticket.request, (thread, answer));
            *state.submits_per_thread.entry(thread).or_default() += 1;
        }
        self.answer(answered).await
    }

    /// Asks a question about what is durable and waits for the reply.
    ///
    /// # Errors
    /// When nobody can reply now.
    pub async fn query(&self, query: Query) -> Result<Reply, SubmitError> {
        let queries_max = self.0.config.limits.queries_max;
        if self.state().queries.len() >= queries_max {
            return Err(SubmitError::QueriesBusy(queries_max));
        }
        self.ask(query).await
    }

    /// A page of all threads by id after the given one, from 1 to 500 long, and the thread after which the next page starts, if
    /// there is one.
    /// Damage of a shard is an error in words.
    ///
    /// # Errors
    /// When one of the shards cannot reply now.
    pub async fn threads(
        &self,
        after: Option<ThreadId>,
        limit: usize,
    ) -> Result<(Vec<Standing>, Option<ThreadId>), SubmitError> {
        let limit = limit.clamp(1, THREADS_MAX);
        let asked =
            (0..self.0.config.shards).map(|shard| self.query(Query::Threads { shard, after, limit: limit + 1 }));
        let mut threads = Vec::new();
        for reply in futures::future::try_join_all(asked).await? {
            match reply {
                Reply::Threads(page) => threads.extend(page),
                Reply::Damaged(reason) => return Err(SubmitError::Unavailable(reason)),
                // A question about a shard's threads is answered with a page of them.
                _ => {}
            }
        }
        threads.sort_by_key(|standing| standing.thread);
        let next = (threads.len() > limit).then(|| threads[limit - 1].thread);
        threads.truncate(limit);
        Ok((threads, next))
    }

    /// Subscribes to a thread's outputs after the given one; `OutputId::default()` for all of them. The thread need not
    /// exist yet. What happens from now on is not missed, however late the first event is asked for.
    ///
    /// # Errors
    /// When too many subscriptions are open, or the process stops.
    pub fn subscribe(&self, thread: ThreadId, after: OutputId) -> Result<Subscription, SubmitError> {
        self.subscribe_at(thread, Some(after))
    }

    /// Subscribes to what a thread does from now on.
    ///
    /// # Errors
    /// As [`Shards::subscribe`].
    pub fn subscribe_now(&self, thread: ThreadId) -> Result<Subscription, SubmitError> {
        self.subscribe_at(thread, None)
    }

    fn subscribe_at(&self, thread: ThreadId, after: Option<OutputId>) -> Result<Subscription, SubmitError> {
        let limits = &self.0.config.limits;
        let mut state = self.state();
        if let Readiness::Stopping(reason) = &state.readiness {
            return Err(SubmitError::Unavailable(reason.clone()));
        }
        if state.subscriber_count >= limits.subscribers_max {
            return Err(SubmitError::SubscribersBusy(limits.subscribers_max));
        }
        let buffer = Arc::new(Buffer::new(limits.subscriber_buffer_events_max, limits.subscriber_buffer_bytes_max));
        let buffers = state.subscribers.entry(thread).or_default();
        buffers.push(buffer.clone());
        if buffers.len() == 1 {
            state.say_listening(thread, true);
        }
        state.subscriber_count += 1;
        drop(state);
        Ok(Subscription::new(self.clone(), thread, after, buffer))
    }

    pub(super) fn unsubscribe(&self, thread: ThreadId, buffer: &Arc<Buffer>) {
        let mut state = self.state();
        if let Some(buffers) = state.subscribers.get_mut(&thread) {
            buffers.retain(|other| !Arc::ptr_eq(other, buffer));
            if buffers.is_empty() {
                state.subscribers.remove(&thread);
                state.say_listening(thread, false);
            }
        }
        state.subscriber_count -= 1;
    }

    /// How many subscriptions are open.
    pub fn subscriber_count(&self) -> usize {
        self.state().subscriber_count
    }

    /// Whether the shards run.
    pub fn readiness(&self) -> Readiness {
        self.state().readiness.clone()
    }

    /// Says whether the shards run. Once the process stops this changes nothing.
    pub(super) fn set_readiness(&self, readiness: Readiness) {
        let mut state = self.state();
        if !matches!(state.readiness, Readiness::Stopping(_)) {
            state.readiness = readiness;
        }
    }

    /// Answers everything that waits with an error, because the shard that should have answered has stopped; subscriptions
    /// go on and read what they may have missed.
    pub fn interrupt(&self, reason: &str) {
        let (submits, queries) = {
            let mut state = self.state();
            state.submits_per_thread.clear();
            state.subscribers.values().flatten().for_each(|buffer| buffer.miss());
            (std::mem::take(&mut state.submits), std::mem::take(&mut state.queries))
        };
        let error = SubmitError::Interrupted(reason.to_owned());
        // Whoever does not listen any more has given up.
        for (_, answer) in submits.into_values() {
            let _ = answer.send(Err(error.clone()));
        }
        for answer in queries.into_values() {
            let _ = answer.send(Err(error.clone()));
        }
    }

    /// Ends everything: what waits gets an error, subscriptions end, and nothing is taken any more.
    pub(super) fn close(&self, reason: &str) {
        self.set_readiness(Readiness::Stopping(reason.to_owned()));
        self.interrupt(reason);
        self.state().subscribers.values().flatten().for_each(|buffer| buffer.end(reason));
    }

    /// As [`Shards::query`], for subscriptions, which have a bound of their own.
    pub(super) async fn ask(&self, query: Query) -> Result<Reply, SubmitError> {
        let (answer, answered) = oneshot::channel();
        let ticket = self.ticket();
        {
            let mut state = self.state();
            state.check_running()?;
            state.send(FromGateway::Query(ticket, query))?;
            state.queries.insert(ticket.request, answer);
        }
        self.answer(answered).await
    }

    async fn answer<T>(&self, answered: oneshot::Receiver<Result<T, SubmitError>>) -> Result<T, SubmitError> {
        let answer_ms_max = self.0.config.limits.answer_ms_max;
        match tokio::time::timeout(Duration::from_millis(answer_ms_max), answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Err(SubmitError::Interrupted("the gateway has stopped".to_owned())),
            Err(_) => Err(SubmitError::NoAnswer(answer_ms_max)),
        }
    }

    fn ticket(&self) -> Ticket {
        Ticket { gateway: self.0.config.gateway, request: self.0.next_request.fetch_add(1, Ordering::Relaxed) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn check_running(&self) -> Result<(), SubmitError> {
        match &self.readiness {
            Readiness::Starting | Readiness::Ready => Ok(()),
            Readiness::Failed(reason) | Readiness::Stopping(reason) => Err(SubmitError::Unavailable(reason.clone())),
        }
    }

    fn send(&self, item: FromGateway) -> Result<(), SubmitError> {
        self.send.send(item).map_err(|_| SubmitError::Unavailable("the shard does not run".to_owned()))
    }

    /// Says whether somebody listens to a thread. When no shard runs, the next one is told.
    fn say_listening(&self, thread: ThreadId, on: bool) {
        let _ = self.send.send(FromGateway::Listen { thread, on });
    }

    /// Takes what a shard tells.
    fn take(&mut self, gateway: u32, told: ToGateway) {
        match told {
            ToGateway::Answer(ticket, outcome) if ticket.gateway == gateway => {
                if let Some((thread, answer)) = self.submits.remove(&ticket.request) {
                    if let Some(count) = self.submits_per_thread.get_mut(&thread) {
                        *count -= 1;
                        if *count == 0 {
                            self.submits_per_thread.remove(&thread);
                        }
                    }
                    let _ = answer.send(Ok(outcome));
                }
            }
            ToGateway::Reply(ticket, reply) if ticket.gateway == gateway => {
                if let Some(answer) = self.queries.remove(&ticket.request) {
                    let _ = answer.send(Ok(reply));
                }
            }
            ToGateway::Answer(..) | ToGateway::Reply(..) => {}
            ToGateway::Awake(change) => self.awake += change,
            ToGateway::Output(output) => {
                for buffer in self.subscribers.get(&output.thread).into_iter().flatten() {
                    buffer.push(Live::Output(output.clone()));
                }
            }
            ToGateway::Chunks(chunks) => {
                for chunk in chunks {
                    for buffer in self.subscribers.get(&chunk.thread).into_iter().flatten() {
                        buffer.push(Live::Chunk(chunk.clone()));
                    }
                }
            }
        }
    }
}
