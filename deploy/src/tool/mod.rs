//! The tools: who does a call that a model made.
//!
//! In: dispatches and cancellations. Out: `Record::Accepted` and `Record::Result`. Always: a dispatch is answered exactly
//! once for as long as the process lives, and one that is repeated has the same name.

pub mod wire;
