//! Operators: what a user's crate puts into the loop, as ordinary functions from stream to stream at four named seams.
//!
//! In: the stream that passes a seam. Out: the same stream, changed, and notes for whoever reads them. Always: what comes in
//! is in total order, each item once, and so is what goes out; what an operator refuses is answered, with the operator's
//! reason; a seam that is left alone costs nothing.
//!
//! `deploy/docs/operators.md` is the guide, `examples/operator` the example.

use super::{Outputs, Port};
use crate::effect::{Declined, Outcome};
use crate::port::{Chunk, ToGateway, ToModel, ToTool};
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;
use serde::{Deserialize, Serialize};

/// A location that a loop can be at: a process, or each member of a cluster.
pub trait Place<'a>: Location<'a, DropConsistency = Self> + TopLevel<'a> {}

impl<'a, L> Place<'a> for L where L: Location<'a, DropConsistency = L> + TopLevel<'a> {}

/// The seams of the loop. A seam that is not written is left alone.
///
/// One set of operators is built at several kinds of places (a process when embedded, a cluster's members), so each seam is
/// a generic function.
pub trait Operators {
    /// Everything that is about to be committed, of all sources, in the order in which it will be. An operator may change
    /// what is recorded, and may refuse what somebody waits for ([`Verdict::Refuse`]). It must not lose an arrival: a
    /// completion or a result that is gone leaves its thread waiting for ever.
    fn on_arrival<'a, L: Place<'a>>(&self, arrivals: Port<Arrival, L>) -> Seam<Verdict, L> {
        Seam::of(arrivals.map(q!(|arrival| Verdict::Take(arrival))))
    }

    /// Prompts and cuts on their way to the model. An operator may change what the model is shown, refuse a prompt
    /// ([`ToModel::Refuse`]), or hold one back until a later item comes. It must keep a prompt before its cut.
    fn on_prompt<'a, L: Place<'a>>(&self, prompts: Port<ToModel, L>) -> Seam<ToModel, L> {
        Seam::of(prompts)
    }

    /// Calls and cancellations on their way to the tools. An operator may change a call's arguments or refuse it
    /// ([`ToTool::Refuse`]); the model is then told why.
    fn on_call<'a, L: Place<'a>>(&self, calls: Port<ToTool, L>) -> Seam<ToTool, L> {
        Seam::of(calls)
    }

    /// Answers, outputs and replies on their way to the gateway. An operator may change what clients are shown. It must
    /// keep answers and replies: somebody waits for each.
    fn on_output<'a, L: Place<'a>>(&self, told: Port<ToGateway, L>) -> Seam<ToGateway, L> {
        Seam::of(told)
    }

    /// The pieces in which a completion is shown while it streams: what is withheld from clients in
    /// [`Operators::on_output`] must be withheld here, too. Pieces that were there at the same time come together, in their order.
    fn on_chunk<'a, L: Place<'a>>(&self, chunks: Port<Vec<Chunk>, L>) -> Port<Vec<Chunk>, L> {
        chunks
    }
}

/// What an operator makes of the stream at a seam.
pub struct Seam<T, L> {
    /// What goes on.
    pub on: Port<T, L>,
    /// Lines for whoever reads the host's notes, such as an audit log.
    pub notes: Option<Port<String, L>>,
}

impl<T, L> Seam<T, L> {
    /// A stream that goes on, without notes.
    pub fn of(on: Port<T, L>) -> Self {
        Self { on, notes: None }
    }

    /// The same with these notes.
    pub fn noting(self, notes: Port<String, L>) -> Self {
        Self { notes: Some(notes), ..self }
    }
}

/// What an operator says of an arrival.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Verdict {
    /// It is to be committed.
    Take(Arrival),
    /// It is not, and its sender is told why. One that nobody waits for an answer to (it has no ticket) is committed all the
    /// same: nothing is dropped silently.
    Refuse(Arrival, Declined),
}

impl Verdict {
    /// Whether the arrival is committed.
    pub fn takes(&self) -> bool {
        match self {
            Verdict::Take(_) => true,
            Verdict::Refuse(arrival, _) => arrival.ticket.is_none(),
        }
    }

    /// The arrival.
    pub fn into_arrival(self) -> Arrival {
        match self {
            Verdict::Take(arrival) | Verdict::Refuse(arrival, _) => arrival,
        }
    }

    /// What its sender is told, if it is refused.
    pub fn into_answer(self) -> Option<ToGateway> {
        match self {
            Verdict::Take(_) => None,
            Verdict::Refuse(arrival, why) => {
                arrival.ticket.map(|ticket| ToGateway::Answer(ticket, Outcome::Declined(why)))
            }
        }
    }
}

/// What leaves a shard whose loop has operators.
pub struct Operated<L> {
    /// What leaves every shard.
    pub outputs: Outputs<L>,
    /// For the gateway: what those are told whose input an operator has refused.
    pub answers: Port<ToGateway, L>,
    /// What the operators have noted at the four seams, in their order: arrivals, prompts, calls, outputs.
    pub notes: [Port<String, L>; 4],
}

/// Tells what is to be committed from what is refused.
pub fn judge<'a, L: Place<'a>>(verdicts: Port<Verdict, L>) -> (Port<Arrival, L>, Port<ToGateway, L>) {
    let (taken, refused) = verdicts.partition(q!(|verdict| verdict.takes()));
    (taken.map(q!(|verdict| verdict.into_arrival())), refused.filter_map(q!(|verdict| verdict.into_answer())))
}

/// The notes of a seam; none, if its operator takes none.
pub fn notes<'a, T, L: Place<'a>>(seam: Option<Port<String, L>>, beside: &Port<T, L>) -> Port<String, L> {
    seam.unwrap_or_else(|| beside.location().source_iter(q!(std::iter::empty::<String>())).into())
}
