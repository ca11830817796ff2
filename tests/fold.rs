//! The fold, by its rules, its promises and its properties.
//!
//! In: records, applied one after another as the journal would hand them over. Out: what the model sees, what the world is
//! asked and what clients are told. Always: nothing here has a clock, a disk or a dataflow; these are the rules alone.
//!
//! One file a family of rules, under `tests/fold/`: messages and completions (`turns`), calls and stops (`calls`), `sleeps`,
//! `children`, `events`, `bounds`; `promises` are the design's, by their names; `properties` hold for any records at all, and
//! `warm` for any that meet a thread at rest. `story`, `world`
//! and `tree` are how these tests speak: one thread told record by record, a world that answers it, and several threads.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "fold/bounds.rs"]
mod bounds;
#[path = "fold/calls.rs"]
mod calls;
#[path = "fold/children.rs"]
mod children;
#[path = "fold/events.rs"]
mod events;
#[path = "fold/promises.rs"]
mod promises;
#[path = "fold/properties.rs"]
mod properties;
#[path = "fold/restart.rs"]
mod restart;
#[path = "fold/sleeps.rs"]
mod sleeps;
#[path = "fold/story.rs"]
mod story;
#[path = "fold/tree.rs"]
mod tree;
#[path = "fold/turns.rs"]
mod turns;
#[path = "fold/warm.rs"]
mod warm;
#[path = "fold/world.rs"]
mod world;
