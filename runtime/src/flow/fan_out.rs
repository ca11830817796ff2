//! Fan out: each thing that is asked of the world goes to the adapter that does it.
//!
//! In: what the threads ask. Out: one stream an adapter. Always: each adapter sees its items in the order in which the
//! threads asked.

use super::Port;
use super::awake::ToWorld;
use crate::port::{ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// What the threads ask, by adapter.
pub struct FannedOut<L> {
    /// Answers and outputs.
    pub gateway: Port<ToGateway, L>,
    /// Threads to recall, threads that rest.
    pub journal: Port<ToJournal, L>,
    /// Prompts and cuts.
    pub model: Port<ToModel, L>,
    /// Calls and cancellations.
    pub tool: Port<ToTool, L>,
    /// Timers to arm and to forget.
    pub timer: Port<ToTimer, L>,
    /// What threads send each other.
    pub posts: Port<Arrival, L>,
}

/// Splits by adapter.
pub fn fan_out<'a, L>(world: Port<ToWorld, L>) -> FannedOut<L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (gateway, world) = world.partition(q!(|item| item.is_for_gateway()));
    let (journal, world) = world.partition(q!(|item| item.is_for_journal()));
    let (model, world) = world.partition(q!(|item| item.is_for_model()));
    let (tool, world) = world.partition(q!(|item| item.is_for_tool()));
    let (posts, timer) = world.partition(q!(|item| item.is_post()));
    FannedOut {
        gateway: gateway.filter_map(q!(|item| item.into_gateway())),
        journal: journal.filter_map(q!(|item| item.into_journal())),
        model: model.filter_map(q!(|item| item.into_model())),
        tool: tool.filter_map(q!(|item| item.into_tool())),
        timer: timer.filter_map(q!(|item| item.into_timer())),
        posts: posts.filter_map(q!(|item| item.into_post())),
    }
}
