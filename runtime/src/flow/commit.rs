//! Commit: all that arrived in a tick goes to the journal as one batch.
//!
//! In: records, by source. Out: batches, none of them empty. Always: each source keeps its order; one tick is one batch, so
//! that one sync serves all who arrived together.

use super::Port;
use super::awake::Moment;
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// Gathers each tick's records into one batch.
pub fn commit<'a, L>(
    inputs: Port<Arrival, L>,
    completions: Port<Arrival, L>,
    tools: Port<Arrival, L>,
    timers: Port<Arrival, L>,
    posts: Port<Arrival, L>,
) -> Port<Vec<Arrival>, L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    sliced! {
        let inputs = use::batch(inputs, nondet!(/** a batch is only the unit of a sync: which source is heard first is the world's choice, and the journal records it as the order */));
        let completions = use::batch(completions, nondet!(/** as above */));
        let tools = use::batch(tools, nondet!(/** as above */));
        let timers = use::batch(timers, nondet!(/** as above */));
        let posts = use::batch(posts, nondet!(/** as above */));
        let mut gathered = use::state(|l| l.singleton(q!(Gathered::default())));
        let gathered = gathered.by_mut();
        let end = inputs.location().singleton(q!(Moment::TickEnd)).into_stream();
        let records = inputs.chain(completions).chain(tools).chain(timers).chain(posts);
        records.map(q!(|record| Moment::Item(record))).chain(end).flat_map_ordered(q!(|moment| gathered.step(moment)))
    }
}

/// All sources as one stream, for an operator that stands before the commit.
pub fn gather<'a, L>(
    inputs: Port<Arrival, L>,
    completions: Port<Arrival, L>,
    tools: Port<Arrival, L>,
    timers: Port<Arrival, L>,
    posts: Port<Arrival, L>,
) -> Port<Arrival, L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    sliced! {
        let inputs = use::batch(inputs, nondet!(/** which source is heard first is the world's choice, and the journal records it as the order */));
        let completions = use::batch(completions, nondet!(/** as above */));
        let tools = use::batch(tools, nondet!(/** as above */));
        let timers = use::batch(timers, nondet!(/** as above */));
        let posts = use::batch(posts, nondet!(/** as above */));
        inputs.chain(completions).chain(tools).chain(timers).chain(posts)
    }
}

/// Gathers what an operator has let through in a tick into one batch.
pub fn batch<'a, L>(arrivals: Port<Arrival, L>) -> Port<Vec<Arrival>, L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    sliced! {
        let records = use::batch(arrivals, nondet!(/** a batch is only the unit of a sync */));
        let mut gathered = use::state(|l| l.singleton(q!(Gathered::default())));
        let gathered = gathered.by_mut();
        let end = records.location().singleton(q!(Moment::TickEnd)).into_stream();
        records.map(q!(|record| Moment::Item(record))).chain(end).flat_map_ordered(q!(|moment| gathered.step(moment)))
    }
}

/// The records of a tick, until it ends.
#[derive(Clone, Debug, Default)]
pub struct Gathered(Vec<Arrival>);

impl Gathered {
    /// Keeps a record; gives all of them away when the tick ends, if there is any.
    pub fn step(&mut self, moment: Moment<Arrival>) -> Option<Vec<Arrival>> {
        match moment {
            Moment::Item(record) => {
                self.0.push(record);
                None
            }
            Moment::TickEnd => (!self.0.is_empty()).then(|| std::mem::take(&mut self.0)),
        }
    }
}
