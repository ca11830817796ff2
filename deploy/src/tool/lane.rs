//! A lane: the calls of one source.
//!
//! In: dispatches, choices and cancellations. Out: one record for each dispatch or choice that was not cancelled. Always: so
//! many at a time, the rest in order; the same one twice at a time is done once; a call that panics is answered all the same.

use super::outbox::{Outbox, failed, refused};
use slackwater_core::effect::{Dispatch, Respond};
use slackwater_core::id::{CallId, Number, ThreadId};
use slackwater_core::port::ToTool;
use slackwater_core::record::Record;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

/// The name of a job in this process: the call, and the question whose answer it is.
type Key = (ThreadId, CallId, Option<Number>);

/// Something that is answered by one record.
#[derive(Clone, Debug)]
pub(super) enum Job {
    /// A call to be done.
    Call(Dispatch),
    /// A choice to be told.
    Respond(Respond),
}

impl Job {
    fn key(&self) -> Key {
        match self {
            Job::Call(dispatch) => (dispatch.thread, dispatch.call, None),
            Job::Respond(respond) => (respond.thread, respond.call, Some(respond.question)),
        }
    }

    /// Whether it is of this call.
    pub(super) fn is_of(&self, thread: ThreadId, call: CallId) -> bool {
        let (of_thread, of_call, _) = self.key();
        (of_thread, of_call) == (thread, call)
    }
}

/// Does the jobs that are asked for until nobody can ask any more; then drops those under way. `perform` does one; `tell`
/// tells the source what is not answered here (cancellations, threads that have closed, questions after a start) and must not
/// wait itself.
pub(super) async fn run<P, F, T>(
    mut asks: mpsc::UnboundedReceiver<ToTool>,
    at_a_time: usize,
    outbox: Outbox,
    perform: P,
    tell: T,
) where
    P: Fn(Job) -> F,
    F: Future<Output = Record> + Send + 'static,
    T: Fn(ToTool),
{
    let mut waiting: VecDeque<Job> = VecDeque::new();
    let mut known: HashSet<Key> = HashSet::new();
    let mut under_way: HashMap<Key, AbortHandle> = HashMap::new();
    let mut running: JoinSet<Record> = JoinSet::new();
    loop {
        while under_way.len() < at_a_time.max(1)
            && let Some(job) = waiting.pop_front()
        {
            under_way.insert(job.key(), running.spawn(perform(job)));
        }
        tokio::select! {
            ask = asks.recv() => match ask {
                None => return running.shutdown().await,
                Some(ToTool::Dispatch(dispatch)) => begin(Job::Call(dispatch), &mut known, &mut waiting),
                Some(ToTool::Respond(respond)) => begin(Job::Respond(respond), &mut known, &mut waiting),
                Some(ToTool::Cancel(dispatch)) => {
                    let is_of = |key: &Key| (key.0, key.1) == (dispatch.thread, dispatch.call);
                    known.retain(|key| !is_of(key));
                    waiting.retain(|job| !is_of(&job.key()));
                    under_way.retain(|key, task| {
                        if is_of(key) {
                            task.abort();
                        }
                        !is_of(key)
                    });
                    tell(ToTool::Cancel(dispatch));
                }
                Some(notice @ (ToTool::Close(_) | ToTool::Check(_))) => tell(notice),
                Some(ToTool::Refuse(dispatch, why)) => outbox.put(dispatch.thread, refused(dispatch.call, why)),
            },
            Some(ended) = running.join_next_with_id() => {
                let id = match &ended {
                    Ok((id, _)) => *id,
                    Err(error) => error.id(),
                };
                // One that was cancelled is not there any more: nobody waits for its record.
                if let Some(key) = under_way.iter().find(|(_, task)| task.id() == id).map(|(key, _)| *key) {
                    under_way.remove(&key);
                    known.remove(&key);
                    outbox.put(key.0, match ended {
                        Ok((_, record)) => record,
                        Err(error) => failed(key.1, "tool", panicked(error)),
                    });
                }
            }
        }
    }
}

fn begin(job: Job, known: &mut HashSet<Key>, waiting: &mut VecDeque<Job>) {
    if known.insert(job.key()) {
        waiting.push_back(job);
    }
}

fn panicked(error: JoinError) -> String {
    let why = error.try_into_panic().ok().and_then(|panic| {
        panic.downcast_ref::<String>().cloned().or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
    });
    format!(
        "The tool failed by a fault of its own ({}). It may have done part of its work. Do not repeat the call unchanged; go on without it or tell the user.",
        why.as_deref().unwrap_or("it said no more")
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use proptest::prelude::*;
    use slackwater_core::record::Arrival;
    use std::collections::BTreeMap;
    use std::sync::{Arc, Mutex};

    const AT_A_TIME: usize = 3;

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Dispatch(u64),
        Cancel(u64),
        /// The source goes on for so many polls.
        Time(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            5 => (0..8u64).prop_map(Step::Dispatch),
            2 => (0..8u64).prop_map(Step::Cancel),
            3 => (1..6u8).prop_map(Step::Time),
        ];
        proptest::collection::vec(step, 0..60)
    }

    fn ask(number: u64) -> Dispatch {
        Dispatch {
            thread: ThreadId::from_bytes([1; 16]),
            call: CallId { number, index: 0 },
            name: "t".to_owned(),
            arguments: String::new(),
            approved: false,
            ancestors: Vec::new(),
        }
    }

    /// How often each call was begun, and which are under way.
    #[derive(Default)]
    struct Seen {
        begun: BTreeMap<u64, usize>,
        under_way: Vec<u64>,
    }

    struct UnderWay(Arc<Mutex<Seen>>, u64);

    impl Drop for UnderWay {
        fn drop(&mut self) {
            self.0.lock().unwrap().under_way.retain(|number| *number != self.1);
        }
    }

    async fn work(seen: Arc<Mutex<Seen>>, number: u64) -> Record {
        {
            let mut seen = seen.lock().unwrap();
            seen.under_way.push(number);
            *seen.begun.entry(number).or_default() += 1;
        }
        let _under_way = UnderWay(seen, number);
        for _ in 0..number {
            tokio::task::yield_now().await;
        }
        assert!(number != 5, "this one panics");
        Record::Accepted(CallId { number, index: 0 })
    }

    async fn run_steps(steps: Vec<Step>) -> Result<(), TestCaseError> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let (asks, receive) = mpsc::unbounded_channel();
        let (send, mut arrivals) = mpsc::unbounded_channel::<Arrival>();
        let told: Arc<Mutex<usize>> = Arc::default();
        let (of_work, of_cancel) = (seen.clone(), told.clone());
        let lane = tokio::spawn(run(
            receive,
            AT_A_TIME,
            Outbox::new(send),
            move |job| work(of_work.clone(), job.key().1.number),
            move |_| *of_cancel.lock().unwrap() += 1,
        ));
        let mut last: BTreeMap<u64, Step> = BTreeMap::new();
        let mut cancelled: BTreeMap<u64, usize> = BTreeMap::new();
        for step in steps {
            match step {
                Step::Dispatch(number) => {
                    last.insert(number, step);
                    asks.send(ToTool::Dispatch(ask(number))).unwrap();
                }
                Step::Cancel(number) => {
                    last.insert(number, step);
                    *cancelled.entry(number).or_default() += 1;
                    asks.send(ToTool::Cancel(ask(number))).unwrap();
                }
                Step::Time(polls) => {
                    for _ in 0..polls {
                        tokio::task::yield_now().await;
                    }
                }
            }
            let under_way = seen.lock().unwrap().under_way.clone();
            let distinct: HashSet<&u64> = under_way.iter().collect();
            prop_assert_eq!(distinct.len(), under_way.len(), "a call is done twice at a time: {:?}", under_way);
        }
        // Nothing takes more polls than all calls one after another.
        for _ in 0..2_000 {
            tokio::task::yield_now().await;
        }
        drop(asks);
        lane.await.unwrap();
        let mut records: BTreeMap<u64, usize> = BTreeMap::new();
        while let Some(arrival) = arrivals.recv().await {
            let number = match arrival.record {
                Record::Accepted(call) => call.number,
                Record::Result(result) => {
                    prop_assert!(result.is_error && result.call.number == 5, "{:?}", result);
                    5
                }
                other => panic!("{other:?}"),
            };
            *records.entry(number).or_default() += 1;
        }
        let seen = seen.lock().unwrap();
        prop_assert_eq!(*told.lock().unwrap(), cancelled.values().sum::<usize>());
        prop_assert!(seen.under_way.is_empty());
        for (number, step) in last {
            let (begun, answered) =
                (seen.begun.get(&number).copied().unwrap_or(0), records.get(&number).copied().unwrap_or(0));
            let dropped = cancelled.get(&number).copied().unwrap_or(0);
            prop_assert!(answered <= begun && begun <= answered + dropped, "{number}: {begun} {answered} {dropped}");
            if matches!(step, Step::Dispatch(_)) {
                prop_assert!(answered >= 1, "{number} was never answered");
            }
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn every_call_that_is_not_cancelled_gets_one_record(steps in steps()) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(run_steps(steps))?;
        }
    }
}
