//! How the story looks at the world.
//!
//! In: answers, processes, files. Out: what they say, or the failure of the demo with what was seen. Always: within a bound.

use crate::command::Failure;
use crate::command::client::Client;
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// How long each step may take.
const STEP_MS: u64 = 15_000;

/// Asks until the answer fits.
pub(super) async fn until(
    client: &Client,
    path: &str,
    fault: &str,
    fits: impl Fn(&Value) -> bool,
) -> Result<Value, Failure> {
    let deadline = tokio::time::Instant::now() + Duration::from_millis(STEP_MS);
    loop {
        let answer = client.get(path).await.map_err(Failure::because)?;
        if fits(&answer) {
            return Ok(answer);
        }
        check(tokio::time::Instant::now() < deadline, fault, &answer)?;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits, but not for ever.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> Result<T, Failure> {
    let bounded = tokio::time::timeout(Duration::from_millis(STEP_MS), future).await;
    bounded.map_err(|_| Failure::Failed(format!("the demo has failed: not seen within {STEP_MS} ms that {what}")))
}

/// Ends the story when something does not hold.
pub(super) fn check(holds: bool, fault: &str, seen: &Value) -> Result<(), Failure> {
    if holds { Ok(()) } else { Err(Failure::Failed(format!("the demo has failed: {fault}. Seen: {seen}"))) }
}

/// A field that is a text.
pub(super) fn text(value: &Value, field: &str) -> String {
    value[field].as_str().unwrap_or_default().to_owned()
}

/// How many processes have this one as their parent (proc(5): the fourth field of `stat`, after the name in parentheses).
pub(super) fn children_of(process: u32) -> Result<usize, Failure> {
    let parent = process.to_string();
    let is_child =
        |stat: &str| stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)) == Some(&parent);
    let entries = std::fs::read_dir("/proc").map_err(Failure::because)?;
    // A process that has just ended has no entry any more.
    let stats = entries.flatten().filter_map(|entry| std::fs::read_to_string(entry.path().join("stat")).ok());
    Ok(stats.filter(|stat| is_child(stat)).count())
}

/// How long the journal is.
pub(super) fn journal_bytes(directory: &Path) -> Result<u64, Failure> {
    let entries = std::fs::read_dir(directory).map_err(Failure::because)?;
    let segments = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|end| end == "segment"));
    Ok(segments.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum())
}

/// How much memory a process has resident (proc(5): the second field of `statm`, in pages).
pub(super) fn resident_bytes(process: u32) -> u64 {
    let statm = std::fs::read_to_string(format!("/proc/{process}/statm")).unwrap_or_default();
    let pages = statm.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.unwrap_or_default() * rustix::param::page_size() as u64
}
