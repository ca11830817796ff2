//! What a person is told of a cluster that starts or whose threads are moved, as it happens.
//!
//! In: what its supervisor says, again and again. Out: a line for each thing that has changed. Always: nothing is said twice.

use crate::output;
use slackwater::host::directory;
use slackwater::host::plan::{Phase, Plan, State};
use std::path::PathBuf;

pub(super) struct Teller {
    directory: PathBuf,
    /// What was said of each cell.
    said: Vec<(Phase, u64, Option<String>)>,
}

impl Teller {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory, said: Vec::new() }
    }

    /// Says what has changed.
    pub(super) fn tell(&mut self, state: &State) {
        // A move changes how many there are.
        self.said.truncate(state.cells.len());
        let is_moving = |phase: Phase| phase == Phase::Moving;
        if state.cells.iter().any(|cell| is_moving(cell.phase)) && !self.said.iter().any(|said| is_moving(said.0)) {
            output::line("the threads are being moved; the gateways are back when they are");
        }
        for (number, cell) in state.cells.iter().enumerate() {
            let now = (cell.phase, cell.restarts, cell.why.clone());
            if self.said.get(number) == Some(&now) {
                continue;
            }
            match self.said.get_mut(number) {
                Some(said) => *said = now,
                None => self.said.push(now),
            }
            let why = cell.why.as_deref().unwrap_or_default();
            match cell.phase {
                Phase::Ready if cell.restarts == 0 => {
                    output::line(format!("ready: {}", self.address(number)));
                }
                Phase::Ready => output::line(format!(
                    "cell {number}: {why}; ready again after {} ms",
                    cell.restart_ms.unwrap_or_default()
                )),
                Phase::Compiling => output::line(format!("cell {number}: compiling the locations")),
                Phase::Failing => {
                    output::line(format!("cell {number} cannot be started, and this is tried again: {why}"));
                }
                Phase::Moving if number == 0 && !why.is_empty() => {
                    output::line(format!("the threads cannot be moved, and this is tried again: {why}"));
                }
                Phase::Starting | Phase::Stopped | Phase::Moving => {}
            }
        }
    }

    /// Where a cell's gateway is.
    fn address(&self, cell: usize) -> String {
        let plan: Option<Plan> = directory::read(&directory::plan_file(&self.directory)).ok().flatten();
        let cell = plan.as_ref().and_then(|plan| plan.cells.get(cell));
        cell.map(|cell| format!("http://{}", cell.reached_at)).unwrap_or_default()
    }
}

/// How many of something there are.
pub(super) fn counted(count: usize, what: &str) -> String {
    if count == 1 { format!("{count} {what}") } else { format!("{count} {what}s") }
}
