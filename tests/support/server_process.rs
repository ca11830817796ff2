//! A server as a real process, to be killed.
//!
//! In: a directory, a port, a script for the model, a tool server. Out: a process that serves exactly that. Always: the same
//! settings give the same server again; a server that a test forgets is killed with it.
//!
//! The process is the test's own binary, started again to run its ignored test `the_server_process`.

use serde::{Deserialize, Serialize};
use slackwater::Slackwater;
use slackwater::model::Scripted;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// Where the settings of a server process are.
const SETTINGS: &str = "SLACKWATER_TEST_SERVER";

/// How long a server may take to be ready, debug build and busy machine included.
const READY_MS_MAX: u64 = 60_000;

/// What a server is started with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Settings {
    pub directory: PathBuf,
    pub port: u16,
    /// The model's script, in TOML.
    pub script: String,
    /// The base URL of a tool server.
    pub tools: Option<String>,
    /// Where the process writes what it has to say.
    pub log: PathBuf,
}

impl Settings {
    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A runtime with these settings.
    pub fn builder(&self) -> slackwater::Builder {
        let tools = slackwater::tool::Config {
            server: self.tools.iter().map(|url| server_at(url)).collect(),
            retry_first_ms: 50,
            retry_max_ms: 200,
            invocation_attempts: 100,
            ..Default::default()
        };
        let gateway = slackwater::gateway::Config { listen: ([127, 0, 0, 1], self.port).into(), ..Default::default() };
        Slackwater::builder()
            .directory(&self.directory)
            .model(Scripted::from_toml(&self.script).unwrap())
            .tool_config(tools)
            .gateway_config(gateway)
    }
}

fn server_at(url: &str) -> slackwater::tool::ServerConfig {
    slackwater::tool::ServerConfig { url: Some(url.to_owned()), ..Default::default() }
}

/// Serves, if this process was started to; until it is killed or told to stop.
pub fn serve_if_asked() {
    let Ok(settings) = std::env::var(SETTINGS) else { return };
    let settings: Settings = serde_json::from_str(&settings).unwrap();
    let outcome =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(async {
            let runtime = settings.builder().start().await.map_err(|error| error.to_string())?;
            let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
            tokio::select! {
                _ = terminate.recv() => runtime.stop().await.map_err(|error| error.to_string()),
                ended = runtime.ended() => ended.map_err(|error| error.to_string()),
            }
        });
    if let Err(error) = outcome {
        eprintln!("{error}");
        std::process::exit(1);
    }
    std::process::exit(0);
}

/// A port on which a server can be started again and again: not one of those that the system gives to outgoing connections,
/// so that nobody else has it between two lives.
pub fn lasting_port(choice: u64) -> u16 {
    (0..1000)
        .map(|step| 15_000 + ((choice % 10_007 + step * 7) % 10_000) as u16)
        .find(|port| std::net::TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("one of a thousand ports is free")
}

/// A server that runs.
pub struct Server {
    child: Child,
    settings: Settings,
}

impl Server {
    /// Starts the process and does not wait for anything.
    pub fn start(settings: &Settings) -> Self {
        let log = OpenOptions::new().create(true).append(true).open(&settings.log).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "the_server_process", "--ignored", "--nocapture", "--quiet"])
            .env(SETTINGS, serde_json::to_string(settings).unwrap())
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap();
        Self { child, settings: settings.clone() }
    }

    /// Waits until it takes inputs.
    pub async fn ready(&mut self) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let begun = Instant::now();
        loop {
            let asked = client.get(self.settings.url("/ready")).timeout(Duration::from_secs(2)).send().await;
            if asked.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server has ended with {status}:\n{}", self.log());
            }
            assert!(begun.elapsed() < Duration::from_millis(READY_MS_MAX), "the server is not ready:\n{}", self.log());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Ends it as a crash would: SIGKILL, at once.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop (SIGTERM) and waits; says how it ended and how long that took.
    pub fn terminate(mut self) -> (ExitStatus, Duration) {
        let begun = Instant::now();
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, rustix::process::Signal::TERM).unwrap();
        let status = self.child.wait().unwrap();
        (status, begun.elapsed())
    }

    /// Waits until it ends by itself.
    pub fn wait(mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// What it has said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.settings.log).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, if the test went as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
