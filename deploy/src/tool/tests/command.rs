//! Commands that are servers, and commands that are not. A small shell script says the port of a server in the test.

use super::*;
use std::path::Path;

fn command(directory: &Path, script: &str) -> ServerConfig {
    ServerConfig {
        name: Some("script".into()),
        command: Some(["sh", "-c", script].map(str::to_owned).to_vec()),
        cwd: Some(directory.to_owned()),
        env: [("WORD".to_owned(), "tide".to_owned())].into(),
        ..ServerConfig::default()
    }
}

fn port(server: &TestServer) -> &str {
    server.base.rsplit(':').next().unwrap()
}

fn lines(path: &Path) -> Vec<String> {
    std::fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}

/// Whether a process runs; one that has ended and was not waited for does not.
fn runs(process: &str) -> bool {
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

#[tokio::test]
async fn a_command_is_started_as_a_server_and_ended_with_all_it_started() {
    let server = TestServer::with_tools(&["build"], &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "trap '' TERM; sleep 600 & echo $! > child; echo \"$RAP_EMBEDDED $WORD\" > said; echo noise >&2; echo '{{\"port\": {}}}'; echo more; wait; sleep 600",
        port(&server)
    );
    let mut running = run(config(&[command(directory.path(), &script)]), Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    running.call(1, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    assert_eq!(lines(&directory.path().join("said")), ["1 tide"]);
    let child = lines(&directory.path().join("child")).remove(0);
    assert!(runs(&child));
    running.tools.stop().await;
    until(|| !runs(&child)).await;
}

#[test]
fn a_command_ends_with_a_runtime_that_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let running = runtime.block_on(async {
        let server = TestServer::with_tools(&["build"], &[]).await;
        let script = format!("echo $$ > shell; echo '{{\"port\": {}}}'; sleep 600", port(&server));
        let mut running = run(config(&[command(directory.path(), &script)]), Vec::new());
        assert_eq!(running.tools.ready(PATIENCE).await, []);
        running
    });
    let shell = lines(&directory.path().join("shell")).remove(0);
    assert!(runs(&shell));
    drop(runtime);
    drop(running);
    // Ended, if not yet waited for: the runtime that would have is gone.
    let deadline = std::time::Instant::now() + PATIENCE;
    while runs(&shell) {
        assert!(std::time::Instant::now() < deadline, "the command outlived its runtime");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[tokio::test]
async fn a_command_that_ends_is_started_again_and_calls_wait_for_it() {
    let server = TestServer::with_tools(&["build"], &[]).await;
    let directory = tempfile::tempdir().unwrap();
    let script = format!("echo $$ >> starts; echo '{{\"port\": {}}}'; exec sleep 600", port(&server));
    let limits =
        Config { invocation_attempts: 1_000, retry_max_ms: 20, ..config(&[command(directory.path(), &script)]) };
    let mut running = run(limits, Vec::new());
    assert_eq!(running.tools.ready(PATIENCE).await, []);
    let starts = directory.path().join("starts");
    let first = lines(&starts).remove(0);
    let first = rustix::process::Pid::from_raw(first.parse().unwrap()).unwrap();
    rustix::process::kill_process(first, rustix::process::Signal::KILL).unwrap();
    until(|| !running.tools.troubles().is_empty()).await;
    assert!(running.tools.troubles()[0].why.contains("it ended (signal: 9"), "{:?}", running.tools.troubles());
    running.call(1, "build", "{}");
    assert_eq!(running.next().await, Record::Accepted(id(1)));
    assert_eq!(lines(&starts).len(), 2);
    assert_eq!(running.tools.troubles(), []);
    running.tools.stop().await;
}

#[tokio::test]
async fn a_command_that_is_no_server_is_named_with_what_it_did() {
    let directory = tempfile::tempdir().unwrap();
    let missing = ServerConfig { command: Some(vec!["/no/such/program".into()]), ..ServerConfig::default() };
    for (server, said) in [
        (missing, "\"/no/such/program\" does not run as a tool server: cannot be started"),
        (command(directory.path(), "exit 3"), "it ended (exit status: 3)"),
        (command(directory.path(), "echo hello; sleep 600"), "its first line is \"hello\""),
        (command(directory.path(), "echo '{\"port\": 70000}'; sleep 600"), "70000"),
        (command(directory.path(), "echo $$ > silent; exec sleep 600"), "wrote no line {\"port\": N} within 500 ms"),
        (command(directory.path(), "head -c 100000 /dev/zero | tr '\\0' a; exec sleep 600"), "its first line is"),
    ] {
        let limits = Config { command_start_limit_ms: 500, unknown_tool_wait_ms: 0, ..config(&[server]) };
        let mut running = run(limits, Vec::new());
        until(|| running.tools.troubles()[0].why != "it has not answered yet").await;
        let troubles = running.tools.troubles();
        assert!(troubles[0].why.contains(said), "{troubles:?}");
        running.call(1, "build", "{}");
        assert!(running.error(1).await.contains("cannot be used at present"));
        running.tools.stop().await;
    }
    let silent = lines(&directory.path().join("silent")).remove(0);
    until(|| !runs(&silent)).await;
}
