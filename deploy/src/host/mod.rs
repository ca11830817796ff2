//! The hosts: where the flow runs, with the adapters around it.

#[cfg(stageleft_runtime)]
pub mod embedded;
#[cfg(stageleft_runtime)]
pub mod runtime;
