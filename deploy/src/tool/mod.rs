//! tool

pub mod wire;
