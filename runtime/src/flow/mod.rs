//! The agent loop as a dataflow: everything that enters a shard, and everything that leaves it.
//!
//! In: one stream from each adapter. Out: one stream to each adapter. Always: nothing is acted on before it is committed; the
//! order in the journal is each thread's order, whatever the ticks; a flow opens nothing and knows no host.
//!
//! The steps in the order in which a record passes through them, one file each: [`arrive`], [`commit`], [`join`],
//! [`fan_out`]. [`route`] says which shard of a cluster owns a thread, [`awake`] is the state that `join` keeps,
//! [`warm`] the part
//! of it that rests, [`listen`] keeps from a gateway of a cluster what nobody there wants to know, and [`operator`] is what a
//! user's crate puts between the steps.

use crate::id::Ticket;
use crate::port::{Chunk, FromGateway, FromJournal, FromModel, Query, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use crate::record::Arrival;
use hydro_lang::live_collections::stream::{ExactlyOnce, TotalOrder};
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;
use operator::{Operated, Operators, Place};

pub mod arrive;
pub mod awake;
pub mod commit;
pub mod fan_out;
pub mod join;
pub mod listen;
pub mod operator;
pub mod route;
pub mod warm;

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
    /// What threads of this shard send each other: the host joins it to the output of this name, because a flow is no loop.
    pub posts: Port<Arrival, L>,
}

/// What leaves a shard. An adapter with two streams takes them in any order relative to each other: a recall names the
/// records it wants, a chunk the prompt it is of, and a question is about what is durable when it is read.
pub struct Outputs<L> {
    /// For the gateway: answers and outputs.
    pub gateway: Port<ToGateway, L>,
    /// For the gateway: pieces of completions, as many at a time as the model had.
    pub chunks: Port<Vec<Chunk>, L>,
    /// For the journal: batches to append.
    pub appends: Port<Vec<Arrival>, L>,
    /// For the journal: threads to recall, threads that rest.
    pub journal: Port<ToJournal, L>,
    /// For the journal: questions.
    pub queries: Port<(Ticket, Query), L>,
    /// For the model: prompts and cuts.
    pub model: Port<ToModel, L>,
    /// For the tools: calls and cancellations.
    pub tool: Port<ToTool, L>,
    /// For the timers: those to arm and to forget.
    pub timer: Port<ToTimer, L>,
    /// For the input of this name, in its order: a tree is at one shard.
    pub posts: Port<Arrival, L>,
}

/// The agent loop of one shard.
pub fn agent_loop<'a, L>(inputs: Inputs<L>) -> Outputs<L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (messages, queries) = arrive::from_gateway(inputs.gateway);
    let (completions, chunks) = arrive::from_model(inputs.model);
    let appends = commit::commit(messages, completions, inputs.tool, inputs.timer, inputs.posts);
    let world = join::join(inputs.journal);
    let fan_out::FannedOut { gateway, journal, model, tool, timer, posts } = fan_out::fan_out(world);
    Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts }
}

/// The agent loop of one shard with a user's operators at its seams.
pub fn agent_loop_with<'a, L: Place<'a>>(inputs: Inputs<L>, operators: &impl Operators) -> Operated<L> {
    let (messages, queries) = arrive::from_gateway(inputs.gateway);
    let (completions, chunks) = arrive::from_model(inputs.model);
    let arrivals = commit::gather(messages, completions, inputs.tool, inputs.timer, inputs.posts);
    let arrivals = operators.on_arrival(arrivals);
    let (taken, answers) = operator::judge(arrivals.on);
    let appends = commit::batch(taken);
    let world = join::join(inputs.journal);
    let fan_out::FannedOut { gateway, journal, model, tool, timer, posts } = fan_out::fan_out(world);
    let (model, tool, gateway) = (operators.on_prompt(model), operators.on_call(tool), operators.on_output(gateway));
    let notes = [arrivals.notes, model.notes, tool.notes, gateway.notes].map(|seam| operator::notes(seam, &appends));
    let (gateway, model, tool, chunks) = (gateway.on, model.on, tool.on, operators.on_chunk(chunks));
    Operated {
        outputs: Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts },
        answers,
        notes,
    }
}
