//! The configuration of the tools: which servers there are, and the limits.
//!
//! In: the `tool` table of a configuration file. Out: one source for each server, by RAP or by MCP. Always: a server is a URL or
//! a command, and two servers never have the same label.

use super::Error;
use super::terms::Approvals;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The tools' configuration.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The tool servers.
    pub server: Vec<ServerConfig>,
    /// The servers that speak the Model Context Protocol.
    pub mcp: Vec<McpConfig>,
    /// How long a server may take to answer an invocation, in milliseconds.
    pub invocation_timeout_ms: u64,
    /// How often an invocation is tried before the model is told that it failed.
    pub invocation_attempts: u32,
    /// The pause after the first failure, in milliseconds; it doubles with each further one.
    pub retry_first_ms: u64,
    /// The longest such pause, in milliseconds.
    pub retry_max_ms: u64,
    /// How many invocations are under way at a time, per server. The rest wait in order.
    pub invocations_max: usize,
    /// How many calls of local tools run at a time. The rest wait in order.
    pub local_calls_max: usize,
    /// How long a callback URL is good, in days.
    pub callback_lifetime_days: u64,
    /// How long a command may take to say its port, in milliseconds.
    pub command_start_limit_ms: u64,
    /// How long a call of an unknown tool waits for servers that have not been found yet, in milliseconds.
    pub unknown_tool_wait_ms: u64,
    /// How long a call may take, in milliseconds, if neither its tool's annotations (`timeoutMs`) nor its server's
    /// configuration says; without one, as long as it wants.
    pub timeout_ms: Option<u64>,
    /// Which calls wait for a person's approval: the table `approvals` of a configuration file.
    #[serde(skip)]
    pub approvals: Approvals,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            server: Vec::new(),
            mcp: Vec::new(),
            invocation_timeout_ms: 30_000,
            invocation_attempts: 5,
            retry_first_ms: 500,
            retry_max_ms: 30_000,
            invocations_max: 64,
            local_calls_max: 256,
            callback_lifetime_days: 30,
            command_start_limit_ms: 10_000,
            unknown_tool_wait_ms: 30_000,
            timeout_ms: None,
            approvals: Approvals::default(),
        }
    }
}

/// One tool server: either `url` or `command`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ServerConfig {
    /// What people call it, in logs. Without one it is called by its URL or command.
    pub name: Option<String>,
    /// Where it is, for example `http://127.0.0.1:3002`. It is asked directly, never through a proxy.
    pub url: Option<String>,
    /// The program and its arguments, to be started and supervised.
    pub command: Option<Vec<String>>,
    /// The directory that the command runs in; ours without one.
    pub cwd: Option<PathBuf>,
    /// What is added to the command's environment.
    pub env: BTreeMap<String, String>,
    /// How long a call of one of its tools may take, in milliseconds, if the tool's annotations do not say.
    pub timeout_ms: Option<u64>,
}

/// One server that speaks the Model Context Protocol: either `url`, by streamable HTTP, or `command`, by its standard input and
/// output.
#[derive(Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct McpConfig {
    /// What people call it, in logs. Without one it is called by its URL or command.
    pub name: Option<String>,
    /// Where it is, for example `https://example.com/mcp`.
    pub url: Option<String>,
    /// What is sent to the URL with every request, for example `Authorization`.
    pub headers: BTreeMap<String, String>,
    /// The program and its arguments, to be started and supervised.
    pub command: Option<Vec<String>>,
    /// The directory that the command runs in; ours without one.
    pub cwd: Option<PathBuf>,
    /// What is added to the command's environment.
    pub env: BTreeMap<String, String>,
    /// How long a call of one of its tools may take, in milliseconds, if the tool's annotations do not say.
    pub timeout_ms: Option<u64>,
}

impl std::fmt::Debug for McpConfig {
    /// Headers and environment are often secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { name, url, headers, command, cwd, env, timeout_ms } = self;
        let (headers, env): (Vec<_>, Vec<_>) = (headers.keys().collect(), env.keys().collect());
        f.debug_struct("McpConfig")
            .field("name", name)
            .field("url", url)
            .field("headers", &headers)
            .field("command", command)
            .field("cwd", cwd)
            .field("env", &env)
            .field("timeout_ms", timeout_ms)
            .finish()
    }
}

/// Where a server comes from.
#[derive(Clone, Debug)]
pub(super) struct Source {
    /// What it is called in logs.
    pub(super) label: String,
    /// How it is reached.
    pub(super) reach: Reach,
    /// What is sent to its URL with every request.
    pub(super) headers: BTreeMap<String, String>,
    /// How long a call may take, in milliseconds, if the server is told.
    pub(super) timeout_ms: Option<u64>,
}

/// How a server is reached.
#[derive(Clone, Debug)]
pub(super) enum Reach {
    /// It runs somewhere; its base URL without a slash at the end.
    Url(String),
    /// We run it.
    Command(Command),
}

/// A command to be supervised.
#[derive(Clone, Debug)]
pub(super) struct Command {
    pub(super) program: String,
    pub(super) arguments: Vec<String>,
    pub(super) cwd: Option<PathBuf>,
    pub(super) env: BTreeMap<String, String>,
}

impl Config {
    /// The sources that are configured.
    pub(super) fn sources(&self) -> Result<Vec<Source>, Error> {
        apart(self.server.iter().map(ServerConfig::source))
    }

    /// The sources that speak the Model Context Protocol.
    pub(super) fn mcp_sources(&self) -> Result<Vec<Source>, Error> {
        apart(self.mcp.iter().map(McpConfig::source))
    }
}

/// Sources of one kind, each under a label of its own.
fn apart(sources: impl Iterator<Item = Result<Source, Error>>) -> Result<Vec<Source>, Error> {
    let mut labels = BTreeSet::new();
    sources
        .map(|source| {
            let source = source?;
            match labels.insert(source.label.clone()) {
                true => Ok(source),
                false => Err(Error::Config {
                    server: source.label,
                    fault: "is there twice; remove one, or give them different names".to_owned(),
                }),
            }
        })
        .collect()
}

impl McpConfig {
    fn source(&self) -> Result<Source, Error> {
        let Self { name, url, headers, command, cwd, env, timeout_ms } = self.clone();
        let source = ServerConfig { name, url, command, cwd, env, timeout_ms }.source()?;
        if self.url.is_none() && !headers.is_empty() {
            let fault = "`headers` belong to a URL, not to a command".to_owned();
            return Err(Error::Config { server: source.label, fault });
        }
        Ok(Source { headers, ..source })
    }
}

impl ServerConfig {
    fn source(&self) -> Result<Source, Error> {
        let fault = |server: &str, fault: String| {
            Err(Error::Config { server: self.name.clone().unwrap_or_else(|| server.to_owned()), fault })
        };
        match (&self.url, &self.command) {
            (Some(url), None) => {
                if self.cwd.is_some() || !self.env.is_empty() {
                    return fault(url, "`cwd` and `env` belong to a command, not to a URL".to_owned());
                }
                if let Err(wrong) = http_url(url) {
                    return fault(url, format!("{wrong}; give its base URL, such as http://127.0.0.1:3002"));
                }
                let base = url.trim_end_matches('/').to_owned();
                Ok(Source {
                    label: self.name.clone().unwrap_or_else(|| base.clone()),
                    reach: Reach::Url(base),
                    headers: BTreeMap::new(),
                    timeout_ms: self.timeout_ms,
                })
            }
            (None, Some(command)) => match command.split_first() {
                Some((program, arguments)) if !program.is_empty() => Ok(Source {
                    label: self.name.clone().unwrap_or_else(|| command.join(" ")),
                    reach: Reach::Command(Command {
                        program: program.clone(),
                        arguments: arguments.to_vec(),
                        cwd: self.cwd.clone(),
                        env: self.env.clone(),
                    }),
                    headers: BTreeMap::new(),
                    timeout_ms: self.timeout_ms,
                }),
                _ => fault("(no name)", "the command is empty; give a program and its arguments".to_owned()),
            },
            _ => fault("(no name)", "needs either `url` or `command`".to_owned()),
        }
    }
}

/// Whether a text is an absolute `http` or `https` URL; in words, if not.
pub(super) fn http_url(text: &str) -> Result<(), String> {
    match url::Url::parse(text) {
        Err(error) => Err(format!("{text:?} is not a URL ({error})")),
        Ok(url) if !matches!(url.scheme(), "http" | "https") => Err(format!("{text:?} is not an http or https URL")),
        Ok(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn a_configuration_is_read_with_its_limits() {
        let config: Config = toml::from_str(
            r#"
            invocation_timeout_ms = 5
            [[server]]
            url = "http://127.0.0.1:3002/"
            [[server]]
            name = "sandbox"
            command = ["sandbox-local", "--metadata-dir", "m"]
            cwd = "/tmp"
            env = { RUST_LOG = "info" }
            "#,
        )
        .unwrap();
        assert_eq!((config.invocation_timeout_ms, config.invocation_attempts), (5, 5));
        let sources = config.sources().unwrap();
        assert_eq!(sources[0].label, "http://127.0.0.1:3002");
        assert_eq!(sources[1].label, "sandbox");
        assert!(matches!(&sources[1].reach, Reach::Command(command) if command.arguments == ["--metadata-dir", "m"]));
    }

    #[test]
    fn a_wrong_configuration_says_what_is_wrong() {
        for (text, said) in [
            ("[[server]]\nname = \"a\"", "a: needs either `url` or `command`"),
            ("[[server]]\nurl = \"http://h\"\ncommand = [\"x\"]", "needs either"),
            ("[[server]]\ncommand = []", "the command is empty"),
            ("[[server]]\nurl = \"ftp://h\"", "not an http or https URL"),
            ("[[server]]\nurl = \"h:1:2\"", "h:1:2"),
            ("[[server]]\nurl = \"http://h\"\ncwd = \"/\"", "belong to a command"),
            ("[[server]]\nurl = \"http://h\"\n[[server]]\nurl = \"http://h/\"", "is there twice"),
        ] {
            let error = toml::from_str::<Config>(text).unwrap().sources().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
        assert!(toml::from_str::<Config>("timeout = 3").unwrap_err().to_string().contains("unknown field"));
    }
}
