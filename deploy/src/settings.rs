//! The settings: everything that can be configured, as one table.
//!
//! In: TOML. Out: [`Settings`]. Always: every field has a default; a field that is not known is an error; a secret is shown to
//! nobody.

use crate::host::memory::WARM_MAX_BYTES;
use crate::{gateway, journal, model, tool};
use serde::Deserialize;
use slackwater_core::record::Bounds;
use std::fmt;
use std::path::PathBuf;

/// Where everything is kept when nothing else is said.
pub const DEFAULT_DIRECTORY: &str = "slackwater-data";

/// Everything that can be configured.
#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Settings {
    /// Where everything is kept.
    pub directory: PathBuf,
    /// What every agent is told, and may keep.
    pub agent: Agent,
    /// Which model answers.
    pub model: model::Config,
    /// Which tools there are.
    pub tool: tool::Config,
    /// Which calls wait for a person's approval.
    pub approvals: tool::Approvals,
    /// Where the gateway listens and whom it trusts.
    pub gateway: gateway::Config,
    /// How the journal is kept.
    pub journal: journal::Options,
}

/// What every agent is told, and what they may keep in memory together.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Agent {
    /// The system text.
    pub system: String,
    /// The bounds of each thread.
    pub limits: Bounds,
    /// How many bytes of threads that rest stay in memory for some seconds, so that one that goes on soon need not be read
    /// again; 0 for none.
    pub warm_max_bytes: usize,
}

impl Default for Agent {
    fn default() -> Self {
        Self { system: String::new(), limits: Bounds::DEFAULT, warm_max_bytes: WARM_MAX_BYTES }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            directory: DEFAULT_DIRECTORY.into(),
            agent: Agent::default(),
            model: model::Config::default(),
            tool: tool::Config::default(),
            approvals: tool::Approvals::default(),
            gateway: gateway::Config::default(),
            journal: journal::Options::default(),
        }
    }
}

impl fmt::Debug for Settings {
    /// Shows all but the gateway's keys; a model's key hides itself.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys =
            self.gateway.keys.iter().map(|key| key.split(':').next().unwrap_or_default().to_owned() + ":(secret)");
        let gateway = gateway::Config { keys: keys.collect(), ..self.gateway.clone() };
        f.debug_struct("Settings")
            .field("directory", &self.directory)
            .field("agent", &self.agent)
            .field("model", &self.model)
            .field("tool", &self.tool)
            .field("approvals", &self.approvals)
            .field("gateway", &gateway)
            .field("journal", &self.journal)
            .finish()
    }
}
