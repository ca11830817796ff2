//! The hosts: where the flow runs, with the adapters around it.

pub mod cluster;
pub mod containers;
#[cfg(stageleft_runtime)]
pub mod directory;
#[cfg(stageleft_runtime)]
pub mod embedded;
#[cfg(stageleft_runtime)]
pub mod layout;
#[cfg(stageleft_runtime)]
pub mod memory;
#[cfg(stageleft_runtime)]
pub mod plan;
#[cfg(stageleft_runtime)]
pub mod processor;
#[cfg(stageleft_runtime)]
pub mod rebalance;
#[cfg(stageleft_runtime)]
pub mod runtime;
#[cfg(stageleft_runtime)]
pub mod sidecar;

/// How long the tools have to be found before the first prompt is sent without those that were not.
#[cfg(stageleft_runtime)]
const TOOLS_READY_MS: u64 = 10_000;
