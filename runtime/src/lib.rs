//! What an agent is: its records, the fold over them, and the dataflow that joins the two. No sockets, no files, no clock.
//!
//! The words, in the order in which they build on each other: [`id`], [`record`], [`history`], [`effect`], [`port`]. The
//! fold is [`thread`], the built-in tools are [`tools`], the dataflow is [`flow`]. Build scripts use `build` (a feature).

#[cfg(stageleft_runtime)]
hydro_lang::setup!();

#[cfg(stageleft_runtime)]
#[cfg(feature = "build")]
pub mod build;
pub mod effect;
pub mod flow;
pub mod history;
pub mod id;
pub mod port;
pub mod record;
pub mod thread;
pub mod tools;
