//! The processor of a location: where its threads may run.
//!
//! In: the number that the launcher gave it. Out: this process, bound to one processor. Always: to one of those that the system
//! lets it use; more locations than there are processors share them in turn.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::io;

/// Names the processor that a location is bound to, counted from 0 over those that it may use, and from the beginning again
/// when there are not so many. Without it the location runs where the system puts it.
pub const PROCESSOR_VARIABLE: &str = "SLACKWATER_PROCESSOR";

/// Binds all threads of this process, and those that they will start.
///
/// # Errors
/// When the system does not allow it.
pub fn bind(number: u32) -> io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let may_use: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|processor| allowed.is_set(*processor)).collect();
    let mut one = CpuSet::new();
    // A thread that runs has a processor.
    one.set(may_use[number as usize % may_use.len().max(1)]);
    for task in std::fs::read_dir("/proc/self/task")?.flatten() {
        let thread = task.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        match sched_setaffinity(thread, &one) {
            // It has ended in this moment.
            Err(rustix::io::Errno::SRCH) => {}
            outcome => outcome?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;
    use std::process::Command;

    /// Is set in the process that binds itself: it may not be the tests' own.
    const ALONE: &str = "SLACKWATER_TEST_BINDS";

    #[test]
    fn a_process_is_bound_to_one_of_the_processors_that_it_may_use() {
        let may_use = |set: &CpuSet| (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect::<Vec<_>>();
        let before = may_use(&sched_getaffinity(None).unwrap());
        if let Some(number) = std::env::var_os(ALONE) {
            let number: usize = number.to_str().unwrap().parse().unwrap();
            let (go, wait) = std::sync::mpsc::channel::<()>();
            let older = std::thread::spawn(move || wait.recv().map(|()| sched_getaffinity(None).unwrap()));
            bind(number as u32).unwrap();
            go.send(()).unwrap();
            let newer = std::thread::spawn(|| sched_getaffinity(None).unwrap());
            for set in [sched_getaffinity(None).unwrap(), older.join().unwrap().unwrap(), newer.join().unwrap()] {
                assert_eq!(may_use(&set), [before[number % before.len()]]);
            }
            return;
        }
        for number in ["0", "1", "1023"] {
            let name = "host::processor::tests::a_process_is_bound_to_one_of_the_processors_that_it_may_use";
            let mut command = Command::new(std::env::current_exe().unwrap());
            let said = command.args(["--exact", name]).env(ALONE, number).output().unwrap();
            let out = String::from_utf8_lossy(&said.stdout).into_owned();
            assert!(said.status.success() && out.contains("1 passed"), "{out}");
        }
    }
}
