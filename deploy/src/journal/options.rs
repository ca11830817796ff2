//! How a journal is kept.
//!
//! In: the configuration file. Out: [`Options`]. Always: the defaults are right for nearly everybody.

use super::error::JournalError;
use serde::{Deserialize, Serialize};

/// The options of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// How long a segment becomes, in bytes: 4 KiB to 1 GiB. Only a single record that is longer makes it longer.
    pub segment_max_bytes: u64,
    /// How much is written and synced at once, in bytes: 4 KiB to 256 MiB. A single record may be longer.
    pub group_max_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { segment_max_bytes: 64 << 20, group_max_bytes: 4 << 20 }
    }
}

impl Options {
    /// Checks the values.
    ///
    /// # Errors
    /// Names the option that cannot work.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        let within = |name, value: u64, low: u64, high: u64| {
            if (low..=high).contains(&value) {
                return Ok(());
            }
            Err(JournalError::Option { name, what: format!("{value} is not within {low} to {high} bytes") })
        };
        within("segment_max_bytes", self.segment_max_bytes, 4 << 10, 1 << 30)?;
        within("group_max_bytes", self.group_max_bytes as u64, 4 << 10, 256 << 20)
    }
}
