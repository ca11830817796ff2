//! The scenario: what users do, and how free its order is.
//!
//! In: inputs, one by one. Out: the same. Always: an input is named by its place.

use crate::gateway::name::Address;
use slackwater_core::record::Decision;

#[derive(Clone, Debug)]
pub(super) struct Input {
    pub(super) address: Address,
    pub(super) what: What,
    pub(super) start: Start,
    /// Whether it may not come at all.
    pub(super) maybe: bool,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Message(String),
    Stop,
    StopAll,
    /// The answer to a question, which is made when there is one.
    Decision(Decision),
}

/// From when on an input is sent. It may arrive any time later, except for one with a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    AnyTime,
    /// When the one before it was acknowledged.
    Acknowledged,
    /// It arrives at this time, in milliseconds since the beginning.
    At(u64),
    /// When nothing moves any more.
    Quiet,
    /// When the thread asks something.
    Asked,
}
