//! The hosts: where the flow runs.

pub mod embedded;
