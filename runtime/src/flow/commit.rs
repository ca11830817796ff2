//! Commit: a tick's records go to the journal as one batch.
//!
//! In: records. Out: batches, none of them empty. Always: the order of the records is kept; one tick is one batch, so that
//! one sync serves all who arrived together.

use super::Port;
use crate::port::ToJournal;
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// Gathers each tick's records into one batch.
pub fn commit<'a, L>(records: Port<Arrival, L>) -> Port<ToJournal, L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    sliced! {
        let tick = use::batch(records, nondet!(/** a batch is only the unit of a sync: its records keep their order and are applied one by one */));
        tick.collect_vec().into_stream().filter_map(q!(|batch| crate::port::ToJournal::append(batch)))
    }
}
