//! `slackwater serve`: a runtime that answers over HTTP until it is told to stop.
//!
//! In: the configuration. Out: where it listens and what with, then nothing. Always: SIGTERM or SIGINT stops it cleanly
//! within about a second, with status 0; a second one ends it at once.

use super::signals::Signals;
use super::{Failure, STAND_IN, builder, is_stand_in};
use crate::config::{Config, Loaded};
use crate::{Settings, output};
use serde_json::json;
use slackwater::Runtime;
use std::path::{Path, PathBuf};

/// The file in the data directory that says where its runtime listens, for `chat`.
pub(crate) const URL_FILE: &str = "server.url";

/// The status of a process that a second signal has ended.
const ENDED_AT_ONCE: i32 = 130;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater serve
  slackwater serve --listen 127.0.0.1:8080 --tool http://127.0.0.1:3002
  ANTHROPIC_API_KEY=… slackwater serve --provider anthropic --model NAME
  curl -s http://127.0.0.1:7070/v1/threads/hello/messages --json '{\"text\": \"Hello\"}'
  curl -sN http://127.0.0.1:7070/v1/threads/hello/events

SIGTERM or SIGINT (Ctrl-C) stops it within about a second; a second one ends it at once. What was acknowledged is on disk
in every case.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// The address and port to listen on; port 0 takes a free one [default: 127.0.0.1:7070]
    #[arg(long, value_name = "ADDRESS", help_heading = "Configuration")]
    listen: Option<String>,
    /// Where tools and browsers reach the gateway, if that is not where it listens, such as https://agents.example.org
    #[arg(long, value_name = "URL", help_heading = "Configuration")]
    public_url: Option<String>,
    /// Print one line of JSON when ready, in place of words
    #[arg(long)]
    json: bool,
    /// End when the process ends that started this one
    #[arg(long, hide = true)]
    end_with_parent: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let loaded = arguments.settings.load(&[
        ("--listen", "gateway.listen", arguments.listen.as_ref()),
        ("--public-url", "gateway.public_url", arguments.public_url.as_ref()),
    ])?;
    super::end_with_parent(arguments.end_with_parent)?;
    super::block_on(serve(&loaded, arguments.json))
}

async fn serve(loaded: &Loaded, json: bool) -> Result<(), Failure> {
    let config = &loaded.config;
    let mut signals = Signals::new()?;
    let (builder, model) = builder(config)?;
    if is_stand_in(config) {
        output::note(STAND_IN);
    }
    let runtime = tokio::select! {
        started = builder.start() => started?,
        // Nothing was taken yet, so nothing has to be put down.
        () = signals.next() => return Ok(()),
    };
    let url_file = UrlFile::write(&config.directory, &url(&runtime));
    if json {
        tell_program(loaded, &runtime, &model)
    } else {
        tell_person(loaded, &runtime, &model)
    }
    let outcome = tokio::select! {
        ended = runtime.ended() => ended,
        () = signals.next() => {
            tracing::info!("stopping");
            tokio::spawn(async move {
                signals.next().await;
                std::process::exit(ENDED_AT_ONCE);
            });
            drop(url_file);
            runtime.stop().await
        }
    };
    outcome.map_err(Failure::because)
}

fn url(runtime: &Runtime) -> String {
    format!("http://{}", runtime.address())
}

fn directory(config: &Config) -> PathBuf {
    std::path::absolute(&config.directory).unwrap_or_else(|_| config.directory.clone())
}

fn tell_program(loaded: &Loaded, runtime: &Runtime, model: &str) {
    let config = &loaded.config;
    let troubles = runtime.troubles().iter().map(|trouble| json!({"server": trouble.server, "why": trouble.why}));
    output::line(json!({
        "event": "ready",
        "url": url(runtime),
        "address": runtime.address().to_string(),
        "process": std::process::id(),
        "directory": directory(config),
        "config": loaded.file,
        "model": model,
        "tool_servers": config.tool.server.len(),
        "troubles": troubles.collect::<Vec<_>>(),
    }));
}

fn tell_person(loaded: &Loaded, runtime: &Runtime, model: &str) {
    let config = &loaded.config;
    let url = url(runtime);
    output::line(format!("slackwater {}", env!("CARGO_PKG_VERSION")));
    output::line(format!("  listens    {url}"));
    output::line(format!("  directory  {}", directory(config).display()));
    if let Some(file) = &loaded.file {
        output::line(format!("  config     {}", file.display()));
    }
    output::line(format!(
        "  model      {model}{}",
        if is_stand_in(config) { ", a stand-in: no model is configured" } else { "" }
    ));
    let troubles = runtime.troubles();
    let servers = &config.tool.server;
    for server in servers {
        let reached = server.url.clone().or_else(|| server.command.as_ref().map(|command| command.join(" ")));
        let label = server.name.clone().or(reached).unwrap_or_default();
        let label = label.trim_end_matches('/');
        let trouble = troubles.iter().find(|trouble| trouble.server == label);
        let state = trouble.map_or_else(String::new, |trouble| format!(": cannot be used yet: {}", trouble.why));
        output::line(format!("  tools      {label}{state}"));
    }
    if servers.is_empty() {
        output::line("  tools      the built-in ones (sleeping, child threads, subscriptions)");
    }
    output::line(format!("  try        curl -s {url}/v1/threads/hello/messages --json '{{\"text\": \"Hello\"}}'"));
    output::line("ready");
}

/// Says where a directory's runtime listens, for as long as it runs.
struct UrlFile(PathBuf);

impl UrlFile {
    fn write(directory: &Path, url: &str) -> Self {
        let path = directory.join(URL_FILE);
        // Only a convenience: without it, `chat` has to be told the URL.
        if let Err(error) = std::fs::write(&path, url) {
            tracing::warn!(path = %path.display(), %error, "cannot write where this runtime listens");
        }
        Self(path)
    }
}

impl Drop for UrlFile {
    fn drop(&mut self) {
        // One that stays behind is found out by whoever asks there.
        let _ = std::fs::remove_file(&self.0);
    }
}
