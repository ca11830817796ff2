//! The agent loop as a dataflow: everything that enters a shard, and everything that leaves it.
//!
//! In: one stream from each adapter. Out: one stream to each adapter. Always: nothing is acted on before it is committed; the
//! order in the journal is each thread's order, whatever the ticks; a flow opens nothing and knows no host.
//!
//! The steps in the order in which a record passes through them, one file each: [`arrive`], [`commit`], [`join`],
//! [`fan_out`]. [`route`] says which shard of a cluster owns a thread, [`awake`] is the state that `join` keeps.

use crate::port::{FromGateway, FromJournal, FromModel, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use crate::record::Arrival;
use hydro_lang::live_collections::stream::{ExactlyOnce, TotalOrder};
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

pub mod arrive;
pub mod awake;
pub mod commit;
pub mod fan_out;
pub mod join;
pub mod route;

/// A stream of a shard: ordered, each item once.
pub type Port<T, L> = Stream<T, L, Unbounded, TotalOrder, ExactlyOnce>;

/// What enters a shard, by adapter.
pub struct Inputs<L> {
    /// Inputs and questions of clients and tools.
    pub gateway: Port<FromGateway, L>,
    /// What is on stable storage, and what was recalled from it.
    pub journal: Port<FromJournal, L>,
    /// Pieces of completions, and completions.
    pub model: Port<FromModel, L>,
    /// What tools say without the gateway: that they took a call over, results of local tools.
    pub tool: Port<Arrival, L>,
    /// Timers that came due.
    pub timer: Port<Arrival, L>,
}

/// What leaves a shard, by adapter.
pub struct Outputs<L> {
    /// Answers, outputs for clients, pieces of completions.
    pub gateway: Port<ToGateway, L>,
    /// Batches to append, threads to recall, threads that rest, questions.
    pub journal: Port<ToJournal, L>,
    /// Prompts and cuts.
    pub model: Port<ToModel, L>,
    /// Calls and cancellations.
    pub tool: Port<ToTool, L>,
    /// Timers to arm and to forget.
    pub timer: Port<ToTimer, L>,
}

/// The agent loop of one shard.
pub fn agent_loop<'a, L>(inputs: Inputs<L>) -> Outputs<L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let arrive::Arrivals { records, queries, chunks } =
        arrive::arrive(inputs.gateway, inputs.model, inputs.tool, inputs.timer);
    let appends = commit::commit(records);
    let world = join::join(inputs.journal);
    fan_out::fan_out(world, appends, queries, chunks)
}
