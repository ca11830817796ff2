//! What is run on a machine that is reached by SSH, for a move of threads.
//!
//! In: a shard, and what is to become of its directory there. Out: a script of a POSIX shell that does that on stable storage. Always: a
//! script of an earlier attempt changes nothing once a later one has begun there. A connection that was cut off may deliver it late, to a
//! cluster that runs again.

use super::home::aside;
use crate::host::directory::shard_directory;
use crate::host::plan::quoted;
use std::path::PathBuf;

/// What stands beside a shard's directory under its name: the new one, the same while it is being received, the old one, and what was
/// brought from another machine.
pub(super) const ASIDE: [&str; 4] = ["next", "part", "old", "from"];

/// How long a location has to end after its connection has, in tenths of a second.
const FAREWELL_DS: u32 = 50;

/// One of a cluster's attempts to move threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The cluster's id.
    pub(super) cluster: String,
    /// Higher than that of any attempt before.
    pub(super) number: u64,
}

/// What a script says that comes too late.
const REFUSE: &str = "echo 'a later attempt has begun there' >&2; exit 1";

/// A cluster's directory on another machine, for one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scripts {
    pub(super) directory: PathBuf,
    pub(super) attempt: Attempt,
}

impl Scripts {
    /// Begins the attempt there, so that none before it does anything more. Clears what stands aside, if told so.
    pub(super) fn begin(&self, clears: bool) -> String {
        let (place, file, Attempt { cluster, number }) = (quoted(&self.directory), quoted(&self.file()), &self.attempt);
        format!(
            "set -e; umask 077; mkdir -p {place}; {}; \
             if read -r cluster number 2>/dev/null < {file} && [ \"$cluster\" = {cluster} ] && [ \"$number\" -gt {number} ]; \
             then {REFUSE}; fi; echo {cluster} {number} > {file}.new; mv {file}.new {file}; {}",
            self.lock(),
            if clears { self.clear() } else { ":".to_owned() }
        )
    }

    /// Writes a shard's directory to the output, once no process of the shard is left.
    pub(super) fn fetch(&self, shard: u32) -> String {
        let there = quoted(&shard_directory(&self.directory, shard));
        let programs = quoted(&self.directory.join("bin"));
        let process = quoted(&self.directory.join("run").join(format!("shard-{shard}.pid")));
        // The connection of its last process has ended, and the process ends with it; but a machine that was cut off may not know yet.
        format!(
            "{}; left={FAREWELL_DS}; while own=$(cat {process} 2>/dev/null) && \
             case $(readlink /proc/$own/exe) in {programs}/*) true;; *) false;; esac; do \
             left=$((left - 1)); [ $left -gt 0 ] || kill -KILL $own; sleep 0.1; done; \
             test -d {there} || {{ echo 'its state is gone: '{there}' is not there' >&2; exit 1; }}; tar -cf - -C {there} .",
            self.check()
        )
    }

    /// Receives a shard's new directory from the input, and puts it aside once all of it is there.
    pub(super) fn put(&self, shard: u32) -> String {
        let [part, next] = ["part", "next"].map(|what| quoted(&aside(&self.directory, shard, what)));
        let (place, lock, check) = (quoted(&self.directory), self.lock(), self.check());
        // It is locked only at last: this may wait for what a connection that is cut off does not bring.
        format!(
            "set -e; umask 077; {check}; rm -rf {part}; mkdir {part}; tar -xf - -C {part}; \
             find {part} -exec sync {{}} + || sync; {lock}; {check}; rm -rf {next}; mv -T {part} {next}; sync {place} || sync"
        )
    }

    /// Puts the new directory of a shard in place of the old one; a shard that does not stay there has no new one.
    pub(super) fn exchange(&self, shard: u32, stays: bool) -> String {
        let place = quoted(&shard_directory(&self.directory, shard));
        let [next, old] = ["next", "old"].map(|what| quoted(&aside(&self.directory, shard, what)));
        // Where there is no new one any more, it is in its place already.
        let when = if stays { format!("[ -d {next} ]") } else { "true".to_owned() };
        format!(
            "set -e; {}; {}; if [ -d {place} ] && {when}; then mv -T {place} {old}; fi; \
             if [ -d {next} ]; then mv -T {next} {place}; fi; sync {} || sync",
            self.lock(),
            self.check(),
            quoted(&self.directory)
        )
    }

    /// Clears what stands aside, when the move is done.
    pub(super) fn end(&self) -> String {
        format!("set -e; {}; {}; {}", self.lock(), self.check(), self.clear())
    }

    fn clear(&self) -> String {
        let names = ASIDE.map(|what| format!("shard-[0-9]*.{what}")).join(" ");
        format!("cd {}; rm -rf {names}", quoted(&self.directory))
    }

    /// Sees to it that no other attempt does something there, until the script ends.
    fn lock(&self) -> String {
        format!("exec 9<{}; flock 9", quoted(&self.directory))
    }

    fn check(&self) -> String {
        let (file, Attempt { cluster, number }) = (quoted(&self.file()), &self.attempt);
        format!("[ \"$(cat {file} 2>/dev/null)\" = '{cluster} {number}' ] || {{ {REFUSE}; }}")
    }

    /// The last attempt that has begun there.
    fn file(&self) -> PathBuf {
        self.directory.join("move")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

    use super::*;
    use std::collections::BTreeMap;
    use std::io::Write as _;
    use std::path::Path;
    use std::process::{Child, Command, Stdio};

    fn scripts(directory: &Path, cluster: &str, number: u64) -> Scripts {
        Scripts { directory: directory.join("a place, it's"), attempt: Attempt { cluster: cluster.to_owned(), number } }
    }

    fn start(script: &str) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Gives a script its input. Whether it has done what it should, and what it has said of it.
    fn end(mut script: Child, input: &[u8]) -> (bool, String) {
        // Who refuses does not read.
        let _ = script.stdin.take().unwrap().write_all(input);
        let told = script.wait_with_output().unwrap();
        (told.status.success(), String::from_utf8_lossy(&told.stderr).into_owned())
    }

    fn run(script: &str, input: &[u8]) -> bool {
        let (done, words) = end(start(script), input);
        assert!(done || words.contains("a later attempt has begun there"), "{script}: {words}");
        done
    }

    /// A shard's directory that has one file, as `put` receives it.
    fn packed(text: &str) -> Vec<u8> {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("journal"), text).unwrap();
        Command::new("tar").args(["-cf", "-", "-C"]).arg(place.path()).arg(".").output().unwrap().stdout
    }

    /// What is in a directory, the names with the texts.
    fn tree(place: &Path) -> BTreeMap<PathBuf, String> {
        let mut found = BTreeMap::new();
        for entry in std::fs::read_dir(place).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => found.extend(tree(&path)),
                false => _ = found.insert(path.clone(), std::fs::read_to_string(&path).unwrap()),
            }
        }
        found
    }

    #[test]
    fn a_shard_is_replaced_and_one_goes_away() {
        let place = tempfile::tempdir().unwrap();
        let scripts = scripts(place.path(), "c", 1);
        let shard = |shard| shard_directory(&scripts.directory, shard);
        for number in 0..2 {
            std::fs::create_dir_all(shard(number)).unwrap();
            std::fs::write(shard(number).join("journal"), "old").unwrap();
        }
        std::fs::create_dir(aside(&scripts.directory, 7, "part")).unwrap();
        assert!(run(&scripts.begin(true), b""));
        assert!(!aside(&scripts.directory, 7, "part").exists(), "what an earlier attempt has left is gone");
        assert!(run(&scripts.put(0), &packed("new")));
        // Each step may be done again.
        for _ in 0..2 {
            assert!(run(&scripts.exchange(0, true), b"") && run(&scripts.exchange(1, false), b""));
        }
        assert!(run(&scripts.end(), b""));
        let file = scripts.directory.join("move");
        let left = [(file, "c 1\n".to_owned()), (shard(0).join("journal"), "new".to_owned())];
        assert_eq!(tree(place.path()), BTreeMap::from(left));
    }

    /// In each state of a later attempt, and when that is done.
    #[test]
    fn what_comes_too_late_changes_nothing() {
        let place = tempfile::tempdir().unwrap();
        let (early, late) = (scripts(place.path(), "c", 9), scripts(place.path(), "c", 10));
        for shard in 0..2 {
            std::fs::create_dir_all(shard_directory(&late.directory, shard)).unwrap();
            std::fs::write(shard_directory(&late.directory, shard).join("journal"), "old").unwrap();
        }
        assert!(run(&early.begin(true), b""));
        let waits = start(&early.put(0));
        while !aside(&early.directory, 0, "part").exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        let new = packed("new");
        for (script, input) in [
            (late.begin(true), &b""[..]),
            (late.put(0), &new),
            (late.exchange(0, true), b""),
            (late.exchange(1, false), b""),
            (late.end(), b""),
        ] {
            assert!(run(&script, input), "{script}");
            let before = tree(place.path());
            let stale = packed("stale");
            for script in [
                early.begin(true),
                early.begin(false),
                early.fetch(0),
                early.put(0),
                early.put(1),
                early.exchange(0, true),
                early.exchange(0, false),
                early.exchange(1, false),
                early.end(),
            ] {
                assert!(!run(&script, &stale), "{script}");
                assert_eq!(tree(place.path()), before, "{script}");
            }
        }
        let before = tree(place.path());
        let (done, words) = end(waits, &packed("stale"));
        assert!(!done, "what began before, and came to its end too late: {words}");
        assert_eq!(tree(place.path()), before);
        // Another cluster that was given the place begins anew.
        assert!(run(&scripts(place.path(), "d", 1).begin(true), b""));
    }

    /// What was received before the end is no journal.
    #[test]
    fn half_a_directory_is_not_put_aside() {
        let place = tempfile::tempdir().unwrap();
        let scripts = scripts(place.path(), "c", 1);
        assert!(run(&scripts.begin(true), b""));
        let whole = packed(&"new".repeat(10_000));
        let (done, words) = end(start(&scripts.put(0)), &whole[..whole.len() / 2]);
        assert!(!done && !aside(&scripts.directory, 0, "next").exists(), "{words}");
    }
}
