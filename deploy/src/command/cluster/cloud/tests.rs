#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
use super::*;
