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
    /// After how many bytes of the log the index is written down, so that an opening reads no more of the log than twice
    /// this, or than the index is long: 64 KiB to 1 GiB.
    pub checkpoint_bytes: u64,
    /// How long a full segment is left alone before the threads in it that rest are packed, in milliseconds; 0 for never.
    pub pack_after_ms: u64,
    /// How much is read and written at most for packing, in bytes a second: 64 KiB to 1 GiB.
    pub pack_bytes_per_second: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_max_bytes: 64 << 20,
            group_max_bytes: 4 << 20,
            checkpoint_bytes: 32 << 20,
            pack_after_ms: 30_000,
            pack_bytes_per_second: 16 << 20,
        }
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
        within("group_max_bytes", self.group_max_bytes as u64, 4 << 10, 256 << 20)?;
        within("checkpoint_bytes", self.checkpoint_bytes, 64 << 10, 1 << 30)?;
        within("pack_bytes_per_second", self.pack_bytes_per_second, 64 << 10, 1 << 30)
    }
}
