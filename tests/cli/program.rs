//! The program in a place of its own.
//!
//! In: arguments. Out: what it said, or a running server. Always: no variable of ours and no file of the checkout reaches it;
//! what is still running ends with its value.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

/// A directory in which the program runs.
pub(crate) struct Place(tempfile::TempDir);

/// What a process said, and its exit status.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// What is in it.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_slackwater"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["SLACKWATER_", "OPENAI_", "ANTHROPIC_", "RUST_LOG"].iter().any(|prefix| text.starts_with(prefix)) {
                command.env_remove(&name);
            }
        }
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        self.run_with(arguments, &[], "")
    }

    /// Runs it to its end, with variables and with something on its standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], variables: &[(&str, &str)], input: &str) -> Said {
        let mut command = self.command(arguments);
        command.envs(variables.iter().copied()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // One that does not read it has ended already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        said(child)
    }

    /// A server on a free port, with `data` as its directory unless the arguments say otherwise.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Server {
        self.serve_with(arguments, &[])
    }

    pub(crate) fn serve_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Server {
        let common = ["serve", "--json", "--listen", "127.0.0.1:0"];
        let directory = ["--directory", "data"];
        let directory =
            if arguments.contains(&"--config") || arguments.contains(&"--directory") { &[][..] } else { &directory };
        let mut command = self.command(&[&common, directory, arguments].concat());
        let mut child = command.envs(variables.iter().copied()).stdout(Stdio::piped()).spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        match serde_json::from_str(&line) {
            Ok(ready) => Server { child: Some(child), out, ready },
            Err(_) => panic!("it did not get ready: {:?}", said(child)),
        }
    }
}

/// Takes the right to write from everybody who is not root.
pub(crate) fn seal(directory: &Path) {
    std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o555)).unwrap();
}

/// Waits for a process to end.
pub(crate) fn said(child: Child) -> Said {
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Said { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

/// Sends a signal, by name.
pub(crate) fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args(["-s", name, &process.to_string()]).status().unwrap().success());
}

/// A running server.
pub(crate) struct Server {
    child: Option<Child>,
    #[expect(dead_code, reason = "held, so that the server's standard output stays open")]
    out: BufReader<ChildStdout>,
    pub(crate) ready: Value,
}

impl Server {
    pub(crate) fn id(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn url(&self) -> &str {
        self.ready["url"].as_str().unwrap()
    }

    /// Sends it a signal and waits for its end.
    pub(crate) fn end(mut self, name: &str) -> Said {
        signal(self.id(), name);
        said(self.child.take().unwrap())
    }

    /// Runs curl with these arguments; `URL` in them stands for the server's.
    pub(crate) fn curl(&self, arguments: &[&str]) -> String {
        let arguments = arguments.iter().map(|argument| argument.replace("URL", self.url()));
        let output = Command::new("curl").args(["-s", "-m", "10", "--noproxy", "*"]).args(arguments).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
