//! the flow
