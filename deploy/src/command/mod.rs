//! The commands, one file each: `Arguments` for clap, and `run`.
//!
//! In: arguments. Out: what was asked for, on standard output, or a [`Failure`]. Always: a failure has an exit status, and
//! words for the person who has to act.

pub(crate) mod answer;
mod ask;
pub(crate) mod backup;
pub(crate) mod chat;
mod client;
pub(crate) mod cluster;
pub(crate) mod containers;
pub(crate) mod demo;
pub(crate) mod demo_tools;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod graph;
pub(crate) mod import;
mod progress;
pub(crate) mod serve;
pub(crate) mod show;
mod signals;
pub(crate) mod threads;
pub(crate) mod why;
mod words;

use crate::config::{Config, ConfigError};
use slackwater::gateway::GatewayError;
use slackwater::{Builder, RuntimeError, Slackwater, model};
use std::time::Duration;

/// Why a command has not done what it was asked.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The arguments or the configuration make no sense.
    Usage(String),
    /// It went wrong.
    Failed(String),
    /// It went wrong and was said already, where it was asked for.
    Said,
}

impl Failure {
    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Failure::Usage(_) => 2,
            Failure::Failed(_) | Failure::Said => 1,
        }
    }

    /// What to say.
    pub(crate) fn words(&self) -> Option<&str> {
        match self {
            Failure::Usage(words) | Failure::Failed(words) => Some(words),
            Failure::Said => None,
        }
    }

    /// It went wrong, for this reason.
    pub(crate) fn because(error: impl std::fmt::Display) -> Self {
        Failure::Failed(error.to_string())
    }
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Unreadable { .. } => Failure::Failed(error.to_string()),
            error => Failure::Usage(error.to_string()),
        }
    }
}

impl From<RuntimeError> for Failure {
    fn from(error: RuntimeError) -> Self {
        let hint = match &error {
            RuntimeError::Directory { .. } => "; give one that this user may write, with --directory",
            RuntimeError::Gateway(GatewayError::Listen { .. }) => " or --listen",
            _ => "",
        };
        Failure::Failed(format!("{error}{hint}"))
    }
}

/// Runs a future on a runtime of tokio's, and leaves what it has spawned behind.
pub(crate) fn block_on<T>(future: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::because)?;
    let outcome = runtime.block_on(future);
    // A blocked thread (a terminal being read) must not hold the end up.
    runtime.shutdown_timeout(Duration::from_millis(100));
    outcome
}

/// A runtime to be started as configured, and what its model is called.
pub(crate) fn builder(config: &Config) -> Result<(Builder, String), Failure> {
    let problem = |error: model::ConfigError| Failure::Usage(format!("[model]: {error}"));
    let name = config.model.build().map_err(problem)?.name().to_owned();
    let builder = Slackwater::builder()
        .directory(&config.directory)
        .system(config.agent.system.as_str())
        .bounds(config.agent.limits)
        .warm_max_bytes(config.agent.warm_max_bytes)
        .tool_config(config.tool.clone())
        .approvals(config.approvals.clone())
        .gateway_config(config.gateway.clone())
        .journal_options(config.journal.clone())
        .model_config(&config.model)
        .map_err(problem)?;
    Ok((builder, name))
}

/// Whether no model is configured, so that the stand-in answers.
pub(crate) fn is_stand_in(config: &Config) -> bool {
    config.model.provider == model::Provider::Scripted && config.model.script.is_none()
}

/// What a person is told when no model is configured.
pub(crate) const STAND_IN: &str = "note: no model is configured, so a scripted stand-in answers, which understands nothing. \
For a real one: --provider anthropic (or openai) --model NAME, and ANTHROPIC_API_KEY (or OPENAI_API_KEY) in the environment";

/// Has this process ended when the one ends that started it, if that is wanted: what a demo or a test has started does not
/// outlive it.
pub(crate) fn end_with_parent(wanted: bool) -> Result<(), Failure> {
    if wanted {
        let signal = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(signal).map_err(Failure::because)?;
    }
    Ok(())
}
