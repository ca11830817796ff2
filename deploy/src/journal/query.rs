//! Answers about what is durable: the fold of a thread's records, looked at.
//!
//! In: a thread's records. Out: the thread, or its outputs from a place on. Always: derived from the records, so the answer
//! is the same on every day and after every restart.

use super::chain::Ancestry;
use slackwater_core::effect::{Effect, Output};
use slackwater_core::id::{OutputId, ThreadId};
use slackwater_core::record::Committed;
use slackwater_core::thread::Thread;

/// How many threads one page has at most; each is read and folded.
pub(super) const THREADS_MAX: usize = 1000;

/// The thread that these records make.
pub(super) fn fold(id: ThreadId, ancestry: Ancestry, records: Vec<Committed>) -> Thread {
    let mut thread = Thread::inheriting(id, ancestry);
    for record in records {
        thread.apply(record);
    }
    thread
}

/// The outputs after the given one, at most `limit`, and whether these are all. No output shows what a thread inherits.
pub(super) fn outputs(id: ThreadId, records: Vec<Committed>, after: OutputId, limit: usize) -> (Vec<Output>, bool) {
    let mut thread = Thread::new(id);
    let mut outputs = Vec::new();
    for record in records {
        let told = thread.apply(record).effects.into_iter().filter_map(|effect| match effect {
            Effect::Tell(output) if output.id > after => Some(output),
            _ => None,
        });
        for output in told {
            if outputs.len() == limit {
                return (outputs, false);
            }
            outputs.push(output);
        }
    }
    (outputs, true)
}
