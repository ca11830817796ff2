//! A lane: the calls of one source.
//!
//! In: dispatches and cancellations. Out: one record for each dispatch that was not cancelled. Always: so many at a time, the
//! rest in order; the same call twice at a time is done once; a call that panics is answered all the same.

use super::outbox::{Outbox, RUNTIME, failed};
use slackwater_core::effect::Dispatch;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::ToTool;
use slackwater_core::record::Record;
use std::collections::{HashMap, HashSet, VecDeque};
use std::future::Future;
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinError, JoinSet};

type Key = (ThreadId, CallId);

/// The name of a call in this process.
fn key(dispatch: &Dispatch) -> Key {
    (dispatch.thread, dispatch.call)
}

/// Does the calls that are asked for until nobody can ask any more; then drops those under way. `perform` does a call;
/// `cancelled` tells the source that nobody waits for one and must not wait itself.
pub(super) async fn run<P, F, C>(
    mut asks: mpsc::UnboundedReceiver<ToTool>,
    at_a_time: usize,
    outbox: Outbox,
    perform: P,
    cancelled: C,
) where
    P: Fn(Dispatch) -> F,
    F: Future<Output = Record> + Send + 'static,
    C: Fn(Dispatch),
{
    let mut waiting: VecDeque<Dispatch> = VecDeque::new();
    let mut known: HashSet<Key> = HashSet::new();
    let mut under_way: HashMap<Key, AbortHandle> = HashMap::new();
    let mut running: JoinSet<Record> = JoinSet::new();
    loop {
        while under_way.len() < at_a_time.max(1)
            && let Some(dispatch) = waiting.pop_front()
        {
            let key = key(&dispatch);
            under_way.insert(key, running.spawn(perform(dispatch)));
        }
        tokio::select! {
            ask = asks.recv() => match ask {
                None => return running.shutdown().await,
                Some(ToTool::Dispatch(dispatch)) => {
                    if known.insert(key(&dispatch)) {
                        waiting.push_back(dispatch);
                    }
                }
                Some(ToTool::Cancel(dispatch)) => {
                    let key = key(&dispatch);
                    if known.remove(&key) {
                        match under_way.remove(&key) {
                            Some(task) => task.abort(),
                            None => waiting.retain(|other| (other.thread, other.call) != key),
                        }
                    }
                    cancelled(dispatch);
                }
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
                        Err(error) => failed(key.1, RUNTIME, panicked(error)),
                    });
                }
            }
        }
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
