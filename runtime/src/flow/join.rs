//! Join: committed records meet their thread, and the fold is applied.
//!
//! In: what the journal sends. Out: what the world is asked. Always: only what is committed gets here, so every effect is of
//! a record that is on stable storage.

use super::Port;
use super::awake::{Awake, Moment, ToWorld};
use crate::port::FromJournal;
use hydro_lang::location::{Location, TopLevel};
use hydro_lang::prelude::*;

/// Applies what is committed to the threads it belongs to.
pub fn join<'a, L>(journal: Port<FromJournal, L>) -> Port<ToWorld, L>
where
    L: Location<'a, DropConsistency = L> + TopLevel<'a>,
{
    sliced! {
        let tick = use::batch(journal, nondet!(/** the journal's order fixes each thread's order; a tick only decides which records share a prompt, and the prompt names what it has seen */));
        let mut awake = use::state(|l| l.singleton(q!(Awake::default())));
        let awake = awake.by_mut();
        let end = tick.location().singleton(q!(Moment::TickEnd)).into_stream();
        tick.map(q!(|item| Moment::Item(item))).chain(end).flat_map_ordered(q!(|moment| awake.step(moment)))
    }
}
