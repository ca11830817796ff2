//! Programs that others wrote and `tests/peers/*.sh` install.
//!
//! In: a program's place among the peers. Out: where it is. Always: one that is not installed is a failure that says how to
//! install it.

use std::path::{Path, PathBuf};

/// An installed program; `script` installs it.
pub fn peer(program: &str, script: &str) -> PathBuf {
    let peers = std::env::var_os("SLACKWATER_PEERS")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"), PathBuf::from);
    let path = peers.join(program);
    assert!(path.exists(), "{} is not installed; run: bash tests/peers/{script}", path.display());
    path
}
