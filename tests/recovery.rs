//! Recovery and hard times: restarts, disks that fail, floods, and what it costs to rest.
//!
//! In: whole runtimes, most of them as real processes. Out: what must be true of them. Always: every wait is for something
//! that can be seen, and ends in a failure when it does not come.
//!
//! | part | what |
//! | --- | --- |
//! | `restart` | who is awakened after a kill, and what is done again |
//! | `asks` | questions to people that outlive the process that asked them, and calls that take too long |
//! | `disk` | a disk that is full, that may not be written, that fails to sync |
//! | `rest` | what a thread costs that waits |
//! | `bounds` | floods, and the end under load |

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on should stop")]

#[path = "recovery/asks.rs"]
mod asks;
#[path = "recovery/bounds.rs"]
mod bounds;
#[path = "recovery/disk.rs"]
mod disk;
#[path = "support/kills.rs"]
mod kills;
#[path = "recovery/rest.rs"]
mod rest;
#[path = "recovery/restart.rs"]
mod restart;
