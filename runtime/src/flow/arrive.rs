//! Arrive: all sources of a shard become one stream of records.
//!
//! In: what the gateway, the model, the tools and the timers send. Out: records to commit, and what is never committed:
//! questions and pieces of completions. Always: each source keeps its order; nothing is lost or judged here.

use super::Port;
use crate::port::{FromGateway, FromModel, ToGateway, ToJournal};
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// What arrived.
pub struct Arrivals<L> {
    /// Records to commit.
    pub records: Port<Arrival, L>,
    /// Questions for the journal.
    pub queries: Port<ToJournal, L>,
    /// Pieces of completions for the clients.
    pub chunks: Port<ToGateway, L>,
}

/// Merges the sources.
pub fn arrive<'a, L>(
    gateway: Port<FromGateway, L>,
    model: Port<FromModel, L>,
    tool: Port<Arrival, L>,
    timer: Port<Arrival, L>,
) -> Arrivals<L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (submits, queries) = gateway.partition(q!(|item| item.is_submit()));
    let (answers, chunks) = model.partition(q!(|item| item.is_answer()));
    let records = submits
        .filter_map(q!(|item| item.into_submit()))
        .merge_ordered(
            answers.filter_map(q!(|item| item.into_answer())),
            nondet!(/** which source is heard first is the world's choice; the journal records the choice as the order */),
        )
        .merge_ordered(tool, nondet!(/** as above: the journal's order is the order */))
        .merge_ordered(timer, nondet!(/** as above: the journal's order is the order */));
    Arrivals {
        records,
        queries: queries.filter_map(q!(|item| item.into_query())),
        chunks: chunks.filter_map(q!(|item| item.into_chunk())),
    }
}
