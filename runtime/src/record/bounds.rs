//! Bounds: how much of everything one thread may have.
//!
//! In: a configuration. Out: [`Bounds`]. Always: a thread's bounds are a record of it, so that its replay is exact.

use serde::{Deserialize, Serialize};
use std::num::{NonZeroU16, NonZeroU32};

/// The bounds within which a thread works. They are a record, because another value of one replays a thread differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Bounds {
    /// How many calls of one turn are done; the rest get an error result. With 1 the model makes one call at a time.
    pub calls_per_turn_max: NonZeroU16,
    /// How many turns in a row may consist of nothing but refused calls before the thread stops with a visible error.
    pub refused_turns_max: NonZeroU32,
    /// How many inputs a thread keeps that its model has not seen. More are refused with `Refusal::QueueFull`.
    pub pending_max: NonZeroU32,
    /// How many levels below its root a thread is at most. With 0 no thread has children.
    pub depth_max: u16,
    /// How many children of a thread may be open at a time. Counted at each parent, because threads do not wait for each
    /// other: a count at the root would make every birth ask there.
    pub children_max: u32,
    /// How many subscriptions of a thread are active at a time; one more is cancelled as soon as it is made.
    pub subscriptions_max: u32,
    /// How many children handle the events of one subscription at a time.
    pub event_children_max: NonZeroU32,
    /// How many events of one subscription wait for such a child, or for a digest. More are refused.
    pub events_queued_max: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl Bounds {
    /// The bounds of a thread of which nothing else is said.
    pub const DEFAULT: Self = Self {
        calls_per_turn_max: NonZeroU16::new(16).expect("invariant: it is not 0"),
        refused_turns_max: NonZeroU32::new(8).expect("invariant: it is not 0"),
        pending_max: NonZeroU32::new(10_000).expect("invariant: it is not 0"),
        depth_max: 8,
        children_max: 10_000,
        subscriptions_max: 100,
        event_children_max: NonZeroU32::new(8).expect("invariant: it is not 0"),
        events_queued_max: 1_000,
    };

    /// The wider one of each bound of the two.
    pub fn widened(&self, other: &Self) -> Self {
        Self {
            calls_per_turn_max: self.calls_per_turn_max.max(other.calls_per_turn_max),
            refused_turns_max: self.refused_turns_max.max(other.refused_turns_max),
            pending_max: self.pending_max.max(other.pending_max),
            depth_max: self.depth_max.max(other.depth_max),
            children_max: self.children_max.max(other.children_max),
            subscriptions_max: self.subscriptions_max.max(other.subscriptions_max),
            event_children_max: self.event_children_max.max(other.event_children_max),
            events_queued_max: self.events_queued_max.max(other.events_queued_max),
        }
    }
}
