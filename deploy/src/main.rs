//! The program `slackwater`: arguments and logging, and nothing else.
//!
//! In: arguments, environment, a configuration file. Out: an exit status: 0 for success, 1 for failure, 2 for arguments or
//! configuration that make no sense. Always: standard output has only what was asked for.

mod command;
mod config;
mod logging;
mod output;

use clap::{Args, Parser, Subcommand};
use command::Failure;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

/// Texts are made on one thread and freed on another, and memory has to come back when threads leave it.
#[cfg(not(feature = "jemalloc"))]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Runs AI agents that wait without costing anything.
///
/// An agent that waits for a build, a timer or a person is only records on a disk. When something arrives, records and
/// event meet in a dataflow, one model completion runs, and the agent is records again.
#[derive(Parser)]
#[command(
    name = "slackwater",
    version,
    after_help = "\
Examples:
  slackwater demo                              watch an agent wait, through a kill -9 of the runtime
  slackwater chat                              talk to an agent here
  slackwater chat --thread notes 'Hello'       one turn in the thread `notes`; the next one goes on there
  slackwater serve --tool http://127.0.0.1:3002

Configuration: --config FILE, or SLACKWATER_CONFIG, or ./slackwater.toml if it is there. Over the file go variables
SLACKWATER_<SECTION>_<FIELD> (such as SLACKWATER_GATEWAY_LISTEN), and flags go over both.

Exit status: 0 success, 1 failure, 2 arguments or configuration that make no sense."
)]
struct Arguments {
    #[command(flatten)]
    log: Log,
    #[command(subcommand)]
    command: Command,
}

#[derive(Args)]
#[command(next_help_heading = "Logging")]
struct Log {
    /// What to log on standard error: a level (error, warn, info, debug, trace) or a filter such as `slackwater=debug,warn`
    /// [default: RUST_LOG, or else warn; info for serve, error for chat]
    #[arg(long = "log", value_name = "FILTER", env = "SLACKWATER_LOG", global = true, hide_env_values = true)]
    filter: Option<String>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT", env = "SLACKWATER_LOG_FORMAT", global = true, default_value = "text")]
    log_format: logging::Format,
}

#[derive(Subcommand)]
enum Command {
    /// Run agents and answer over HTTP until told to stop
    Serve(command::serve::Arguments),
    /// Talk to an agent: one turn, or a conversation
    Chat(command::chat::Arguments),
    /// Approve a call that an agent wants to make
    Approve(command::answer::Approve),
    /// Deny a call that an agent wants to make
    Deny(command::answer::Deny),
    /// Make a choice that a tool asks for
    Choose(command::answer::Choose),
    /// Watch an agent wait for a build, through a kill -9 of the runtime
    Demo(command::demo::Arguments),
    /// Draw the dataflow that runs the agents
    Graph(command::graph::Arguments),
    /// List the threads as trees: what they do, what they wait for, how large they are
    Threads(command::threads::Arguments),
    /// Say what a thread waits for, since when, and who can release it
    Why(command::why::Arguments),
    /// Show what the model sees of a thread, or the records beneath it
    Show(command::show::Arguments),
    /// Look at what a data directory holds and at what is damaged, and repair it
    Doctor(command::doctor::Arguments),
    /// Copy a data directory while a runtime runs on it
    Backup(command::backup::Arguments),
    /// Write a thread out as JSON lines
    Export(command::export::Arguments),
    /// Take threads in that were written out
    Import(command::import::Arguments),
    /// Run a gateway and shards as processes on this machine
    #[command(subcommand)]
    Cluster(command::cluster::Command),
    /// The tool server of the demo
    #[command(hide = true)]
    DemoTools(command::demo_tools::Arguments),
}

/// What the commands share that run agents: where the configuration comes from, and flags over it.
#[derive(Args)]
#[command(next_help_heading = "Configuration")]
struct Settings {
    /// The configuration file [default: slackwater.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "SLACKWATER_CONFIG")]
    config: Option<PathBuf>,
    /// Where everything is kept [default: slackwater-data]
    #[arg(long, value_name = "DIR")]
    directory: Option<String>,
    /// What kind of model answers: scripted, openai (any compatible endpoint) or anthropic [default: scripted]
    #[arg(long, value_name = "KIND")]
    provider: Option<String>,
    /// The model, as the provider calls it
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Where the provider answers [default: its own address]
    #[arg(long, value_name = "URL")]
    base_url: Option<String>,
    /// The script that the scripted model plays [default: one that says what it is]
    #[arg(long, value_name = "FILE")]
    script: Option<String>,
    /// What every agent is told first [default: nothing]
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// A tool server (Reactive Agent Protocol), such as http://127.0.0.1:3002; may be given more than once
    #[arg(long = "tool", value_name = "URL")]
    tools: Vec<String>,
}

impl Settings {
    /// Loads the configuration, with flags of the command beside the shared ones.
    fn load(&self, more: &[(&'static str, &'static str, Option<&String>)]) -> Result<config::Loaded, Failure> {
        let shared = [
            ("--directory", "directory", self.directory.as_ref()),
            ("--provider", "model.provider", self.provider.as_ref()),
            ("--model", "model.model", self.model.as_ref()),
            ("--base-url", "model.base_url", self.base_url.as_ref()),
            ("--script", "model.script", self.script.as_ref()),
            ("--system", "agent.system", self.system.as_ref()),
        ];
        let flags = shared
            .iter()
            .chain(more)
            .filter_map(|&(name, field, text)| Some(config::Flag { name, field, text: text?.clone() }));
        let flags: Vec<_> = flags.collect();
        // A variable that is no text is none of ours, or its value could not be used anyway.
        let variables = std::env::vars_os().filter_map(|(name, text)| {
            let utf8 = |text: OsString| text.into_string().ok();
            Some((utf8(name)?, utf8(text)?))
        });
        let mut loaded = config::load(self.config.as_deref(), variables, &flags)?;
        for name in &loaded.unknown_variables {
            output::note(format!("note: the environment variable {name} means nothing to slackwater and is ignored"));
        }
        let server = |url: &String| slackwater::tool::ServerConfig { url: Some(url.clone()), ..Default::default() };
        loaded.config.tool.server.extend(self.tools.iter().map(server));
        Ok(loaded)
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let fallback = match arguments.command {
        Command::Serve(_) => "info",
        // What goes wrong in a chat is said in it.
        Command::Chat(_) => "error",
        _ => "warn",
    };
    let Log { filter, log_format } = &arguments.log;
    let outcome = logging::start(filter.as_deref(), *log_format, fallback).map_err(Failure::Usage);
    match outcome.and_then(|()| run(arguments.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if let Some(words) = failure.words() {
                output::note(format!("slackwater: {words}"));
            }
            ExitCode::from(failure.status())
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Serve(arguments) => command::serve::run(arguments),
        Command::Chat(arguments) => command::chat::run(arguments),
        Command::Approve(arguments) => command::answer::approve(arguments),
        Command::Deny(arguments) => command::answer::deny(arguments),
        Command::Choose(arguments) => command::answer::choose(arguments),
        Command::Demo(arguments) => command::demo::run(arguments),
        Command::Graph(arguments) => command::graph::run(arguments),
        Command::Threads(arguments) => command::threads::run(arguments),
        Command::Why(arguments) => command::why::run(arguments),
        Command::Show(arguments) => command::show::run(arguments),
        Command::Doctor(arguments) => command::doctor::run(arguments),
        Command::Backup(arguments) => command::backup::run(arguments),
        Command::Export(arguments) => command::export::run(arguments),
        Command::Import(arguments) => command::import::run(arguments),
        Command::Cluster(command) => command::cluster::run(command),
        Command::DemoTools(arguments) => command::demo_tools::run(arguments),
    }
}
