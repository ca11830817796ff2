//! Terms: what is particular to one child among the agents of a runtime.
//!
//! In: what its parent's model asked for. Out: [`Terms`]. Always: a child has no wider terms than its parent.

use serde::{Deserialize, Serialize};

/// The terms on which a child works.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The model that answers it, by the provider's name; the one of every agent if none is named.
    pub model: Option<String>,
    /// The tools that it may call beside the built-in ones; all if none are named.
    pub tools: Option<Vec<String>>,
    /// The tokens, of prompts and answers together, that its completions may take; then it is closed. No bound if none is named.
    pub budget_tokens: Option<u64>,
}
