//! The fold, by its rules, its promises and its properties.
//!
//! In: records, applied one after another as the journal would hand them over. Out: what the model sees, what the world is
//! asked and what clients are told. Always: nothing here has a clock, a disk or a dataflow; these are the rules alone.
//!
//! One file a family of rules, under `tests/fold/`: messages and completions (`turns`), calls and stops (`calls`), `sleeps`,
//! `asks`, `timeouts`, `children`, `events`, `bounds`, `terms`, `compact`, `heirs`, `long`; `promises` are the design's, by their names; `properties` hold for any records at all, which `chances` makes, and
//! `warm` for any that meet a thread at rest. `story`, `world`
//! and `tree` are how these tests speak: one thread told record by record, a world that answers it, and several threads; `races` lets a
//! summary race with everything else, in every order.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "fold/accounts.rs"]
mod accounts;
#[path = "fold/asks.rs"]
mod asks;
#[path = "fold/bounds.rs"]
mod bounds;
#[path = "fold/calls.rs"]
mod calls;
#[path = "fold/chances.rs"]
mod chances;
#[path = "fold/children.rs"]
mod children;
#[path = "fold/compact.rs"]
mod compact;
#[path = "fold/conserved.rs"]
mod conserved;
#[path = "fold/events.rs"]
mod events;
#[path = "fold/heirs.rs"]
mod heirs;
#[path = "fold/long.rs"]
mod long;
#[path = "fold/promises.rs"]
mod promises;
#[path = "fold/properties.rs"]
mod properties;
#[path = "fold/races.rs"]
mod races;
#[path = "fold/renumber.rs"]
mod renumber;
#[path = "fold/restart.rs"]
mod restart;
#[path = "fold/sleeps.rs"]
mod sleeps;
#[path = "fold/story.rs"]
mod story;
#[path = "fold/tape.rs"]
mod tape;
#[path = "fold/terms.rs"]
mod terms;
#[path = "fold/timeouts.rs"]
mod timeouts;
#[path = "fold/tree.rs"]
mod tree;
#[path = "fold/turns.rs"]
mod turns;
#[path = "fold/warm.rs"]
mod warm;
#[path = "fold/world.rs"]
mod world;
