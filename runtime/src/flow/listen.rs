//! Listen: a gateway is told what somebody there wants to know.
//!
//! In: what a gateway asks of a shard, and what the shard tells it. Out: the same, less outputs and pieces of completions of
//! threads that nobody listens to. Always: answers pass; a question that is asked after somebody began to listen goes on
//! after the shard knows of it, so that what is not in its answer is told; the order of each stream is kept.
//!
//! An agent mostly works while nobody looks. Without this every piece of every completion would cross the network.

use super::Port;
use super::operator::Place;
use crate::id::ThreadId;
use crate::port::{Chunk, FromGateway, ToGateway};
use hydro_lang::prelude::*;
use std::collections::BTreeSet;

/// What goes on to the shard, and what goes back to the gateway.
pub fn listen<'a, L: Place<'a>>(
    asked: Port<FromGateway, L>,
    told: Port<ToGateway, L>,
    chunks: Port<Vec<Chunk>, L>,
) -> (Port<FromGateway, L>, Port<ToGateway, L>) {
    let passed = sliced! {
        let asked = use::batch(asked, nondet!(/** who begins to listen in the moment in which something is told may still hear it or not; the question that follows, which passes here too, is answered with all that was told before */));
        let told = use::batch(told, nondet!(/** as above */));
        let chunks = use::batch(chunks, nondet!(/** as above; a piece names its prompt, so its place among outputs says nothing */));
        let mut listeners = use::state(|l| l.singleton(q!(Listeners::default())));
        let listeners = listeners.by_mut();
        let asked = asked.map(q!(|asked| Passing::Asked(asked)));
        let told = told.map(q!(|told| Passing::Told(told)));
        let chunks = chunks.map(q!(|chunks| Passing::chunks(chunks)));
        asked.chain(told).chain(chunks).flat_map_ordered(q!(|passing| listeners.step(passing)))
    };
    let (asked, told) = passed.partition(q!(|passing| passing.is_asked()));
    (asked.filter_map(q!(|passing| passing.into_asked())), told.filter_map(q!(|passing| passing.into_told())))
}

/// What passes between a gateway and a shard, in either direction.
#[derive(Clone, Debug, PartialEq)]
pub enum Passing {
    /// To the shard.
    Asked(FromGateway),
    /// To the gateway.
    Told(ToGateway),
}

impl Passing {
    /// Pieces of completions, to the gateway.
    pub fn chunks(chunks: Vec<Chunk>) -> Self {
        Passing::Told(ToGateway::Chunks(chunks))
    }

    /// Whether it is for the shard.
    pub fn is_asked(&self) -> bool {
        matches!(self, Passing::Asked(_))
    }

    /// The item, if it is for the shard.
    pub fn into_asked(self) -> Option<FromGateway> {
        match self {
            Passing::Asked(asked) => Some(asked),
            Passing::Told(_) => None,
        }
    }

    /// The item, if it is for the gateway.
    pub fn into_told(self) -> Option<ToGateway> {
        match self {
            Passing::Asked(_) => None,
            Passing::Told(told) => Some(told),
        }
    }
}

/// The threads of a shard that somebody at its gateway listens to: as many as there are subscriptions at most.
#[derive(Clone, Debug, Default)]
pub struct Listeners(BTreeSet<ThreadId>);

impl Listeners {
    /// What goes on.
    pub fn step(&mut self, mut passing: Passing) -> Option<Passing> {
        let goes_on = match &mut passing {
            Passing::Asked(FromGateway::Listen { thread, on }) => {
                if *on {
                    self.0.insert(*thread);
                } else {
                    self.0.remove(thread);
                }
                false
            }
            Passing::Told(ToGateway::Output(output)) => self.0.contains(&output.thread),
            Passing::Told(ToGateway::Chunks(chunks)) => {
                chunks.retain(|chunk| self.0.contains(&chunk.thread));
                !chunks.is_empty()
            }
            Passing::Asked(_) | Passing::Told(_) => true,
        };
        goes_on.then_some(passing)
    }
}
