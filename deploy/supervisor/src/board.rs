//! The board: what the supervisor says of its cells, for `slackwater cluster status` and for whoever waits for the start.
//!
//! In: what happens. Out: `run/state.json`. Always: a reader finds the whole state, the last or the one before.

use slackwater::host::directory;
use slackwater::host::plan::{CellState, LastMove, Phase, Plan, State};
use slackwater::host::rebalance::Moved;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) struct Board {
    path: PathBuf,
    inside: Mutex<Inside>,
}

struct Inside {
    state: State,
    /// When the cells were ended, if their threads are being moved and not all are ready again.
    ended: Option<Instant>,
}

impl Board {
    pub(crate) fn new(plan: &Plan) -> Self {
        let state = State { supervisor: std::process::id(), cells: Vec::new(), moves: 0, last_move: None };
        let inside = Mutex::new(Inside { state, ended: None });
        let board = Self { path: directory::state_file(&plan.directory), inside };
        board.begin(plan);
        board
    }

    /// The cells of this plan are started.
    pub(crate) fn begin(&self, plan: &Plan) {
        self.change(|inside| inside.state.cells = vec![CellState::default(); plan.cells.len()]);
    }

    /// Changes what is said of a cell.
    pub(crate) fn set(&self, cell: usize, change: impl FnOnce(&mut CellState)) {
        self.change(|inside| inside.state.cells.get_mut(cell).map(change));
    }

    /// Changes what is said of all cells.
    pub(crate) fn set_all(&self, change: impl Fn(&mut CellState)) {
        self.change(|inside| inside.state.cells.iter_mut().for_each(change));
    }

    /// A cell has ended, and is not started again by itself.
    pub(crate) fn ended(&self, cell: usize) {
        self.change(|inside| {
            let phase = if inside.ended.is_some() { Phase::Moving } else { Phase::Stopped };
            if let Some(cell) = inside.state.cells.get_mut(cell) {
                *cell = CellState { phase, processes: Vec::new(), ..cell.clone() };
            }
        });
    }

    /// All cells are being ended, so that their threads can be moved.
    pub(crate) fn moving(&self) {
        self.change(|inside| {
            inside.ended = Some(Instant::now());
            inside.state.last_move = None;
            inside.state.cells.iter_mut().for_each(|cell| cell.phase = Phase::Moving);
        });
    }

    /// What came of moving the threads.
    pub(crate) fn outcome(&self, moved: Moved, error: Option<String>) {
        self.change(|inside| {
            inside.state.moves += 1;
            inside.state.last_move = Some(LastMove { moved, error, pause_ms: None });
        });
    }

    fn change<T>(&self, change: impl FnOnce(&mut Inside) -> T) {
        let mut inside = self.lock();
        change(&mut inside);
        let Inside { state, ended } = &mut *inside;
        if let (Some(begun), Some(last)) = (*ended, &mut state.last_move)
            && state.cells.iter().all(|cell| cell.phase == Phase::Ready)
        {
            last.pause_ms = Some(begun.elapsed().as_millis() as u64);
            *ended = None;
        }
        // It need not survive a crash of the machine, and a sync would hold a restart up.
        let aside = self.path.with_extension("new");
        let text = serde_json::to_vec_pretty(state).unwrap_or_default();
        if let Err(error) = std::fs::write(&aside, text).and_then(|()| std::fs::rename(&aside, &self.path)) {
            eprintln!("slackwater: {}: {error}", self.path.display());
        }
    }

    /// Says that these shards have run. One at a time changes the manifest.
    pub(crate) fn know(&self, plan: &Plan, shards: impl Iterator<Item = u32>) -> anyhow::Result<()> {
        let _one = self.lock();
        Ok(slackwater::host::plan::know(&plan.directory, shards)?)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
