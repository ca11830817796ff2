//! The demo of the first path, told of a cluster of three shards on this machine.
//!
//! In: the program. Out: what it shows. Always: it ends as the demo of one process does, with the shard that has the agent
//! killed in the middle, and leaves nothing behind.

use std::process::{Command, Stdio};

#[test]
fn the_demo_sees_every_step_against_three_shards() {
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
    command.args(["demo", "--shards", "3"]).env("TMPDIR", place.path()).stdin(Stdio::null());
    let said = command.output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success(), "{out}\n{err}");
    // What it shows of one process, and what only a cluster can show.
    for step in ["on disk, as record 1", "awake threads: 0", "kill -9", "still record 1", "build passed", "is sound"] {
        assert!(out.contains(step), "{step}:\n{out}");
    }
    for step in ["gateway 0 is process", "shard 2 is process", "which has the agent, is gone", "was ready again after"]
    {
        assert!(out.contains(step), "{step}:\n{out}");
    }
    assert_eq!(out.matches('\u{2713}').count(), 6, "{out}");
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "its directory is gone");
}
