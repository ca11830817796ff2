//! Where `why`, `threads` and `show` get their answers: from a runtime over HTTP, or from a data directory that none uses.
//!
//! In: a URL or a directory, and questions. Out: the same JSON from both. Always: asking changes nothing and wakes nobody.

use super::Failure;
use super::client::{Client, ClientError, running};
use crate::config;
use serde_json::Value;
use slackwater::gateway::{name, outputs, view};
use slackwater::journal::{JournalError, Still};
use slackwater_core::id::{ThreadId, shard_of};
use slackwater_core::port::{Query, Reply};
use std::path::{Path, PathBuf};

/// How many threads, items or records one question asks for.
pub(crate) const PAGE: usize = 100;

#[derive(clap::Args)]
#[command(next_help_heading = "Where")]
pub(crate) struct Where {
    /// The runtime to ask, over HTTP [default: the one that runs on the data directory]
    #[arg(long, visible_alias = "server", value_name = "URL", env = "SLACKWATER_URL", conflicts_with = "directory")]
    url: Option<String>,
    /// The key of that runtime, if it wants one
    #[arg(long, value_name = "SECRET", env = "SLACKWATER_KEY", hide_env_values = true)]
    key: Option<String>,
    /// The data directory; it is read when no runtime runs on it [default: slackwater-data]
    #[arg(long, value_name = "DIR")]
    directory: Option<String>,
    /// The configuration file [default: slackwater.toml, if it is there]
    #[arg(long, value_name = "FILE", env = "SLACKWATER_CONFIG")]
    config: Option<PathBuf>,
}

/// What is asked about one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Where it stands.
    Standing,
    /// What it waits for.
    Why,
    /// What its model sees, after so many items.
    View(usize, usize),
    /// Its records, after this one.
    Records(u64, usize),
}

/// Who answers.
pub(crate) enum Source {
    /// A runtime.
    Runtime(Client),
    /// The journals of a directory, one a shard.
    Directory(PathBuf, Vec<Still>),
}

impl Where {
    /// Finds who answers.
    pub(crate) async fn open(&self) -> Result<Source, Failure> {
        if let Some(url) = &self.url {
            let client = Client::new(url, self.key.clone());
            return client.map(Source::Runtime).map_err(|problem| Failure::Usage(format!("--url: {problem}")));
        }
        let flag = self.directory.as_ref().map(|text| config::Flag {
            name: "--directory",
            field: "directory",
            text: text.clone(),
        });
        let variables = std::env::vars_os().filter_map(|(name, text)| {
            let pair = (name.into_string().ok()?, text.into_string().ok()?);
            // Of the environment only the directory matters here, whatever else is wrong in it.
            (pair.0 == "SLACKWATER_DIRECTORY").then_some(pair)
        });
        let loaded = config::load(self.config.as_deref(), variables, flag.as_slice())?;
        let directory = loaded.config.directory;
        match open(&directory) {
            Ok(shards) if shards.iter().all(Still::is_empty) => Err(Failure::Failed(format!(
                "there is no journal in {}; give the data directory of a runtime with --directory, or where one listens with --url",
                directory.display()
            ))),
            Ok(shards) => Ok(Source::Directory(directory, shards)),
            Err(error @ JournalError::Owned { .. }) => {
                let client = running(&directory, self.key.clone()).await.map(Source::Runtime);
                client.ok_or_else(|| Failure::Failed(format!("{error}; to ask it, say where it listens with --url")))
            }
            Err(JournalError::Directory { path, source }) => Err(Failure::Failed(format!(
                "cannot read {}: {source}; give the data directory of a runtime with --directory, or where one listens with --url",
                path.display()
            ))),
            Err(error) => Err(Failure::because(error)),
        }
    }
}

/// The journals in a directory: its own, or those of a cluster's shards.
fn open(directory: &Path) -> Result<Vec<Still>, JournalError> {
    let shards: Vec<_> = (0..)
        .map(|shard| slackwater::host::directory::shard_directory(directory, shard))
        .take_while(|shard| shard.is_dir())
        .collect();
    if shards.is_empty() {
        return Ok(vec![Still::open(directory)?]);
    }
    shards.iter().map(|shard| Still::open(shard)).collect()
}

impl Source {
    /// What is answered about a thread, named or by its id.
    pub(crate) async fn about(&self, thread: &str, about: About) -> Result<Value, Failure> {
        let address = name::address(thread)
            .map_err(|error| Failure::Usage(format!("THREAD: {thread:?} addresses no thread: {error}")))?;
        let thread = address.thread;
        match self {
            Source::Runtime(client) => {
                let path = match about {
                    About::Standing => String::new(),
                    About::Why => "/why".to_owned(),
                    About::View(after, limit) => format!("/view?after={after}&limit={limit}"),
                    About::Records(after, limit) => format!("/records?after={after}&limit={limit}"),
                };
                client.get(&format!("/v1/threads/{thread}{path}")).await.map_err(|error| match error {
                    ClientError::Problem { status: 404, .. } => self.unknown(&address),
                    error => Failure::because(error),
                })
            }
            Source::Directory(_, shards) => {
                let question = match about {
                    About::Standing => Query::Thread(thread),
                    About::Why => Query::Why(thread),
                    About::View(after, limit) => Query::View { thread, after, limit },
                    About::Records(after, limit) => Query::Records { thread, after, limit },
                };
                let shard = shard_of(thread, shards.len() as u32);
                match shards[shard as usize].ask(question).map_err(Failure::because)? {
                    Reply::Damaged(reason) => Err(Failure::Failed(format!("the thread cannot be read: {reason}"))),
                    reply => view::reply(Some(thread), &reply).ok_or_else(|| self.unknown(&address)),
                }
            }
        }
    }

    /// Where the first threads by id after the given one stand, and after which the next page starts, if there is one.
    pub(crate) async fn threads(&self, after: Option<ThreadId>) -> Result<(Vec<Value>, Option<ThreadId>), Failure> {
        match self {
            Source::Runtime(client) => {
                let after = after.map_or_else(String::new, |after| format!("&after={after}"));
                let page = client.get(&format!("/v1/threads?limit={PAGE}{after}")).await.map_err(Failure::because)?;
                let threads = page["threads"].as_array().cloned().unwrap_or_default();
                Ok((threads, page["next"].as_str().and_then(|next| next.parse().ok())))
            }
            Source::Directory(_, shards) => {
                let mut threads = Vec::new();
                for (shard, journal) in (0..).zip(shards) {
                    let asked = journal.ask(Query::Threads { shard, after, limit: PAGE + 1 });
                    if let Reply::Threads(page) = asked.map_err(Failure::because)? {
                        threads.extend(page);
                    }
                }
                threads.sort_by_key(|standing| standing.thread);
                let next = (threads.len() > PAGE).then(|| threads[PAGE - 1].thread);
                threads.truncate(PAGE);
                Ok((threads.iter().map(outputs::standing).collect(), next))
            }
        }
    }

    fn unknown(&self, address: &name::Address) -> Failure {
        let place = match self {
            Source::Runtime(client) => client.url().to_owned(),
            Source::Directory(path, _) => path.display().to_string(),
        };
        let called = address.name.clone().unwrap_or_else(|| address.thread.to_string());
        Failure::Failed(format!("there is no thread {called} in {place}; `slackwater threads` lists them"))
    }
}
