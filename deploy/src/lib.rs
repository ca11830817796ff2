//! Where agents live: the journal, the adapters to the world, and the hosts that run the flow of `slackwater-core`.

#[cfg(stageleft_runtime)]
hydro_lang::setup!();

pub mod capability;
pub mod catalog;
pub mod gateway;
pub mod host;
pub mod journal;
pub mod model;
pub mod port;
pub mod timer;
pub mod tool;

pub use slackwater_core as core;
