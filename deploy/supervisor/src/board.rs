//! The board: what the supervisor says of its cells, for `slackwater cluster status` and for whoever waits for the start.
//!
//! In: what happens. Out: `run/state.json`. Always: a reader finds the whole state, the last or the one before.

use slackwater::host::directory;
use slackwater::host::plan::{CellState, Plan, State};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

pub(crate) struct Board {
    path: PathBuf,
    state: Mutex<State>,
}

impl Board {
    pub(crate) fn new(plan: &Plan) -> Self {
        let cells = vec![CellState::default(); plan.cells.len()];
        let state = Mutex::new(State { supervisor: std::process::id(), cells });
        let board = Self { path: directory::state_file(&plan.directory), state };
        board.set(0, |_| {});
        board
    }

    /// Changes what is said of a cell.
    pub(crate) fn set(&self, cell: usize, change: impl FnOnce(&mut CellState)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = state.cells.get_mut(cell) {
            change(cell);
        }
        // It need not survive a crash of the machine, and a sync would hold a restart up.
        let aside = self.path.with_extension("new");
        let text = serde_json::to_vec_pretty(&*state).unwrap_or_default();
        if let Err(error) = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, &self.path)) {
            eprintln!("slackwater: {}: {error}", self.path.display());
        }
    }

    /// Says that these shards have run. One at a time changes the manifest.
    pub(crate) fn know(&self, plan: &Plan, shards: impl Iterator<Item = u32>) -> anyhow::Result<()> {
        let _one = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(slackwater::host::plan::know(&plan.directory, shards)?)
    }
}
