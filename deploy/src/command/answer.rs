//! `slackwater approve`, `deny` and `choose`: answer a question that an agent has asked.
//!
//! In: a thread, a question's number, an answer. Out: a line that says that it is on disk. Always: the runtime that runs on the
//! data directory is asked, or the one at a URL; nothing is started.

use super::Failure;
use super::client::{self, Client};
use crate::{Settings, output};
use serde_json::{Value, json};
use slackwater::gateway::Shards;

#[derive(clap::Args)]
pub(crate) struct Question {
    /// The thread, by name or id
    #[arg(value_name = "THREAD")]
    thread: String,
    /// The question's number, as the thread's events and `GET /v1/threads/THREAD` show it
    #[arg(value_name = "QUESTION")]
    question: u64,
    #[command(flatten)]
    reach: Reach,
}

#[derive(clap::Args)]
struct Reach {
    #[command(flatten)]
    settings: Settings,
    /// Talk to the runtime there [default: the one that runs on the data directory]
    #[arg(long, value_name = "URL", env = "SLACKWATER_URL")]
    url: Option<String>,
    /// The key of that runtime, if it wants one
    #[arg(long, value_name = "SECRET", env = "SLACKWATER_KEY", hide_env_values = true)]
    key: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater approve ops 12        the call for which question 12 was asked is done now")]
pub(crate) struct Approve {
    #[command(flatten)]
    question: Question,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater deny ops 12
  slackwater deny ops 12 --reason 'not before Monday'")]
pub(crate) struct Deny {
    #[command(flatten)]
    question: Question,
    /// Why not; the model reads it
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater choose ops 12 0       the first choice
  slackwater choose ops 12 'Yes'   the same by its words")]
pub(crate) struct Choose {
    #[command(flatten)]
    question: Question,
    /// The choice: its place from 0, or its words
    #[arg(value_name = "CHOICE")]
    choice: String,
}

pub(crate) fn approve(arguments: Approve) -> Result<(), Failure> {
    send(arguments.question, json!({"approve": true}))
}

pub(crate) fn deny(arguments: Deny) -> Result<(), Failure> {
    send(arguments.question, json!({"approve": false, "reason": arguments.reason}))
}

pub(crate) fn choose(arguments: Choose) -> Result<(), Failure> {
    let choice = arguments.choice.parse::<u32>().map_or_else(|_| json!(arguments.choice), |place| json!(place));
    send(arguments.question, json!({"choice": choice}))
}

fn send(asked: Question, mut answer: Value) -> Result<(), Failure> {
    let Question { thread, question, reach } = asked;
    super::block_on(async {
        let client = client(&reach).await?;
        answer["question"] = json!(question);
        answer["id"] = json!(Shards::fresh_id().0);
        let taken = client.answer(&thread, &answer).await.map_err(Failure::because)?;
        output::line(format_args!("taken as record {} of {thread}", taken["number"]));
        Ok(())
    })
}

async fn client(reach: &Reach) -> Result<Client, Failure> {
    if let Some(url) = &reach.url {
        return Client::new(url, reach.key.clone()).map_err(|problem| Failure::Usage(format!("--url: {problem}")));
    }
    let directory = reach.settings.load(&[])?.config.directory;
    client::running(&directory, reach.key.clone()).await.ok_or_else(|| {
        Failure::Failed(format!(
            "no runtime runs on {}; start one with `slackwater serve`, or say where it listens with --url",
            directory.display()
        ))
    })
}
