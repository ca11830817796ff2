//! `slackwater demo`: it sees what it says, and leaves nothing behind.

use crate::program::{Place, said, signal};
use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

#[test]
fn the_demo_sees_every_step() {
    let place = Place::new();
    let said = place.run_with(&["demo"], &[("TMPDIR", place.path("").to_str().unwrap())], "");
    assert_eq!(said.status, 0, "{}\n{}", said.out, said.err);
    for step in ["on disk, as record 1", "awake threads: 0", "kill -9", "still record 1", "build passed", "sound"] {
        assert!(said.out.contains(step), "{step}:\n{}", said.out);
    }
    assert!(!said.out.contains('\x1b'), "no colours in a pipe");
    assert!(place.names().is_empty(), "{:?}", place.names());
}

#[test]
fn an_interrupted_demo_leaves_nothing_behind() {
    for name in ["INT", "TERM", "KILL"] {
        let place = Place::new();
        let mut command = place.command(&["demo"]);
        let mut child = command.env("TMPDIR", place.path("")).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let mut children = Vec::new();
        for line in out.by_ref().take_while(|line| !line.contains("you ")) {
            let id = line.split("process ").nth(1).and_then(|rest| rest.split(',').next()?.parse::<u32>().ok());
            children.extend(id);
        }
        assert_eq!(children.len(), 2, "the tools and the runtime");
        signal(child.id(), name);
        let said = said(child);
        assert_ne!(said.status, 0, "{name}: {}", said.err);
        let alive = |id: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            // A zombie has ended; who is to collect it is not ours to say.
            !stat.is_empty() && stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().next()) != Some("Z")
        };
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while children.iter().any(alive) {
            assert!(std::time::Instant::now() < deadline, "{name}: {children:?} still run");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        if name != "KILL" {
            assert!(place.names().is_empty(), "{name}: {:?}", place.names());
        }
    }
}
