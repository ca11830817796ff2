//! Arrive: what is to become a record is told from what is not.
//!
//! In: what the gateway and the model send. Out: records, and what by-passes the journal: questions, and pieces of
//! completions. Always: each source keeps its order; nothing is lost or judged here.

use super::Port;
use crate::id::Ticket;
use crate::port::{Chunk, FromGateway, FromModel, Query};
use crate::record::Arrival;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// Tells a gateway's inputs from its questions.
pub fn from_gateway<'a, L>(gateway: Port<FromGateway, L>) -> (Port<Arrival, L>, Port<(Ticket, Query), L>)
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (submits, queries) = gateway.partition(q!(|item| item.is_submit()));
    (submits.filter_map(q!(|item| item.into_submit())), queries.filter_map(q!(|item| item.into_query())))
}

/// Tells a model's answers from the pieces that it streams.
pub fn from_model<'a, L>(model: Port<FromModel, L>) -> (Port<Arrival, L>, Port<Vec<Chunk>, L>)
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    let (answers, chunks) = model.partition(q!(|item| item.is_answer()));
    (answers.filter_map(q!(|item| item.into_answer())), chunks.filter_map(q!(|item| item.into_chunks())))
}
