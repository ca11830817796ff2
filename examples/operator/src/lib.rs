//! Operators of a house: an audit trail, and a limit to what each tenant may send.
//!
//! `operators` is what goes into the loop, `embedded` runs it in one process. `examples/embedded.rs` and
//! `examples/cluster.rs` start it, `tests/simulated.rs` tries it in the simulator.

#[cfg(stageleft_runtime)]
hydro_lang::setup!();

pub mod operators;

#[cfg(stageleft_runtime)]
pub mod embedded {
    //! The loop with this crate's operators, as `build.rs` has generated it.
    slackwater::operated_shard!();
}
