//! Fan out: each thing that is asked of the world goes to the adapter that does it.
//!
//! In: what the threads ask, and what by-passes them. Out: one stream an adapter. Always: each adapter sees its items in the
//! order in which the threads asked.

use super::awake::ToWorld;
use super::{Outputs, Port};
use crate::port::{ToGateway, ToJournal};
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// Splits by adapter.
pub fn fan_out<'a, L>(
    world: Port<ToWorld, L>,
    appends: Port<ToJournal, L>,
    queries: Port<ToJournal, L>,
    chunks: Port<ToGateway, L>,
) -> Outputs<L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (gateway, world) = world.partition(q!(|item| item.is_for_gateway()));
    let (journal, world) = world.partition(q!(|item| item.is_for_journal()));
    let (model, world) = world.partition(q!(|item| item.is_for_model()));
    let (tool, timer) = world.partition(q!(|item| item.is_for_tool()));
    Outputs {
        gateway: gateway.filter_map(q!(|item| item.into_gateway())).merge_ordered(
            chunks,
            nondet!(/** a chunk is void once its turn is told, and says which turn it belongs to */),
        ),
        journal: journal
            .filter_map(q!(|item| item.into_journal()))
            .merge_ordered(
                appends,
                nondet!(/** a recall names the records it wants by number, a rest the last one it saw */),
            )
            .merge_ordered(queries, nondet!(/** a question is about what is durable when it is read */)),
        model: model.filter_map(q!(|item| item.into_model())),
        tool: tool.filter_map(q!(|item| item.into_tool())),
        timer: timer.filter_map(q!(|item| item.into_timer())),
    }
}
