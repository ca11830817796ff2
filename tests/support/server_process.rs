//! The program as a real process, to be killed.
//!
//! In: a directory, a port, a script for the model, a tool server. Out: `slackwater serve` with exactly that. Always: the
//! same settings give the same server again; a server that a test forgets is killed with it.

use super::client::Client;
use slackwater::Slackwater;
use slackwater::model::Scripted;
use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

/// A first launch compiles the locations; that is not what is tested.
const LAUNCH_MAX: Duration = Duration::from_secs(1_800);

/// What a server is started with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where its configuration, its script and its log are.
    place: PathBuf,
    pub directory: PathBuf,
    pub port: u16,
    script: String,
    tools: Option<String>,
}

impl Settings {
    /// Settings whose files are in `place`. `choice` chooses the port.
    pub fn new(place: &Path, choice: u64, script: &str, tools: Option<&str>) -> Self {
        Self {
            place: place.to_owned(),
            directory: place.join("data"),
            port: lasting_port(choice),
            script: script.to_owned(),
            tools: tools.map(str::to_owned),
        }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// A runtime of this process with these settings.
    pub fn builder(&self) -> slackwater::Builder {
        let gateway = slackwater::gateway::Config { listen: ([127, 0, 0, 1], self.port).into(), ..Default::default() };
        let mut tools = slackwater::tool::Config::default();
        tools.server.extend(
            self.tools
                .iter()
                .map(|url| slackwater::tool::ServerConfig { url: Some(url.clone()), ..Default::default() }),
        );
        Slackwater::builder()
            .directory(&self.directory)
            .model(Scripted::from_toml(&self.script).unwrap())
            .tool_config(tools)
            .gateway_config(gateway)
    }

    /// The command of a process with these settings.
    pub fn command(&self) -> Command {
        self.command_of(&["serve"])
    }

    /// The command of a cluster with these settings.
    pub fn cells_command(&self, cells: u32, shards: u32) -> Command {
        self.command_of(&["cluster", "up", "--cells", &cells.to_string(), "--shards", &shards.to_string()])
    }

    /// Where the gateway of a cell is.
    pub fn cell_url(&self, cell: u16) -> String {
        format!("http://127.0.0.1:{}", self.port + cell)
    }

    fn command_of(&self, command_line: &[&str]) -> Command {
        let (config, script) = (self.place.join("slackwater.toml"), self.place.join("script.toml"));
        std::fs::write(&script, &self.script).unwrap();
        let server = self.tools.iter().map(|url| format!("[[tool.server]]\nurl = {url:?}\n")).collect::<String>();
        let text = format!(
            "directory = {:?}\n[gateway]\nlisten = \"127.0.0.1:{}\"\n[model]\nscript = {script:?}\n{server}",
            self.directory, self.port
        );
        std::fs::write(&config, text).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        command.args(command_line).arg("--config").arg(config).current_dir(&self.place);
        command.stdin(std::process::Stdio::null());
        command
    }

    fn log_file(&self) -> PathBuf {
        self.place.join("log")
    }

    /// What the processes have said.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }
}

/// A port on which a server can be started again and again: not one of those that the system gives to outgoing connections,
/// so that nobody else has it between two lives.
fn lasting_port(choice: u64) -> u16 {
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
        Self::start_command(settings, &mut settings.command())
    }

    /// Starts a process with these settings by another command, which writes into the same log.
    pub fn start_command(settings: &Settings, command: &mut Command) -> Self {
        let log: File = OpenOptions::new().create(true).append(true).open(settings.log_file()).unwrap();
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        Self { child, settings: settings.clone() }
    }

    /// Starts a cluster and waits until all its gateways take inputs.
    pub async fn launch(settings: &Settings, command: &mut Command, gateways: &[Client]) -> Self {
        let mut server = Self::start_command(settings, command);
        let begun = Instant::now();
        loop {
            let mut ready = true;
            for gateway in gateways {
                ready &= gateway.readiness().await.is_some_and(|(status, _)| status == 200);
            }
            if ready {
                return server;
            }
            assert!(server.is_running(), "the cluster has ended:\n{}", settings.log());
            assert!(begun.elapsed() < LAUNCH_MAX, "the cluster is not ready:\n{}", settings.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until it takes inputs.
    pub async fn ready(&mut self) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let patience = super::Patience::until("the server is ready");
        loop {
            let asked = client.get(self.settings.url("/ready")).timeout(Duration::from_secs(2)).send().await;
            if asked.is_ok_and(|answer| answer.status().is_success()) {
                return;
            }
            if let Some(status) = self.child.try_wait().unwrap() {
                panic!("the server has ended with {status}:\n{}", self.settings.log());
            }
            patience.again().await;
        }
    }

    /// Whether it has not ended.
    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// The process.
    pub fn process(&self) -> u32 {
        self.child.id()
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
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, if the test went as it should.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
