//! Tool servers behind a whole runtime: what a scripted agent does through them, and what becomes of it.
//!
//! In: the published servers `rap-steering-server` and `sandbox-local` 0.2, unchanged (`tests/peers/rap.sh` installs them), as a
//! URL and as a command that is supervised. Out: what is on disk afterwards, theirs and ours. Always: results come through
//! the gateway, by the capability of their call; every process that is started here is ended here.
//!
//! | part | what |
//! | --- | --- |
//! | `agent` | a runtime with one server, and an agent that follows a plan |
//! | `steering` | steering files are listed and loaded |
//! | `sandbox` | a repository is cloned, searched, read, edited, and a command runs in it |
//! | `arguments` | wrong arguments are told, mended, and in the end not asked for any more |

#![allow(clippy::unwrap_used, missing_docs, unreachable_pub, reason = "a test that cannot go on should stop")]

#[path = "rap/agent.rs"]
mod agent;
#[path = "rap/arguments.rs"]
mod arguments;
#[path = "support/kills.rs"]
mod kills;
#[path = "support/peers.rs"]
mod peers;
#[path = "rap/sandbox.rs"]
mod sandbox;
#[path = "rap/steering.rs"]
mod steering;
