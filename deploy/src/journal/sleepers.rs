//! The sleepers: the threads that rest and have timers, as an opening finds them.
//!
//! In: rest hints. Out: the same, one after another. Always: a thread with one timer, as nearly all are, takes 48 bytes here
//! and nothing beside.

use slackwater_core::id::{CallId, Number, ThreadId};
use slackwater_core::port::Rest;

/// A thread that sleeps until one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sleeper {
    thread: ThreadId,
    through: Number,
    call: CallId,
    due_ms: u64,
}

/// Rest hints with timers.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Sleepers {
    one: Vec<Sleeper>,
    /// Those with more than one timer.
    more: Vec<Rest>,
}

impl Sleepers {
    /// Adds a rest; one without timers is no sleeper.
    pub(super) fn push(&mut self, rest: Rest) {
        match rest.timers[..] {
            [] => {}
            [(call, due_ms)] => self.one.push(Sleeper { thread: rest.thread, through: rest.through, call, due_ms }),
            _ => self.more.push(rest),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.one.len() + self.more.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Leaves only those for which this is so.
    pub(super) fn retain(&mut self, holds: impl Fn(ThreadId, Number) -> bool) {
        self.one.retain(|sleeper| holds(sleeper.thread, sleeper.through));
        self.more.retain(|rest| holds(rest.thread, rest.through));
    }

    /// Puts them in the order of their threads; those with one timer come first.
    pub(super) fn sort(&mut self) {
        self.one.sort_unstable_by_key(|sleeper| sleeper.thread);
        self.more.sort_unstable_by_key(|rest| rest.thread);
    }

    /// A sleeper by its place.
    pub(super) fn get(&self, place: usize) -> Option<Rest> {
        match self.one.get(place) {
            Some(&Sleeper { thread, through, call, due_ms }) => {
                Some(Rest { thread, through, timers: vec![(call, due_ms)] })
            }
            None => self.more.get(place - self.one.len()).cloned(),
        }
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Rest> + '_ {
        (0..self.len()).filter_map(|place| self.get(place))
    }
}
