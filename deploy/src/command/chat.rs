//! `slackwater chat`: talk to an agent, one turn or a conversation.
//!
//! In: messages, from the arguments, a pipe or a terminal. Out: what the agent says, as it comes. Always: a thread is found
//! again by its name; one runtime owns the directory, so when it runs already, the talk is with that one.

mod link;
mod order;
mod view;

use super::{Failure, STAND_IN, builder, is_stand_in};
use crate::{Settings, output};
use link::{Link, Told};
use order::Order;
use serde_json::{Value, json};
use std::io::{BufRead as _, IsTerminal as _, Read as _};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use view::View;

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater chat                              a conversation; Ctrl-D leaves, and the next chat goes on here
  slackwater chat --thread notes 'Hello'       one turn in the thread `notes`
  git diff | slackwater chat --thread review   one turn with what the pipe says
  slackwater chat --json 'Hello' | jq .        one event a line
  slackwater chat --url http://127.0.0.1:7070  with a runtime that runs already

In a conversation /approve [N], /deny [N] [reason] and /choose CHOICE answer what the agent asks, /stop stops it, and /stop all
also the threads below it; /compact has the history summarized. Ctrl-C stops what the agent is doing; a second one leaves. What was sent is on disk in every case. When a runtime runs on
the directory already, the talk is with that one.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    settings: Settings,
    /// What to say, for one turn [default: what a pipe says, or else a conversation]
    #[arg(value_name = "MESSAGE")]
    message: Option<String>,
    /// The thread, by name or id; made by its first message
    #[arg(long, short, value_name = "NAME", default_value = "chat")]
    thread: String,
    /// Talk to the runtime there, over HTTP [default: run one here, on the data directory]
    #[arg(long, value_name = "URL", env = "SLACKWATER_URL")]
    url: Option<String>,
    /// The key of that runtime, if it wants one
    #[arg(long, value_name = "SECRET", env = "SLACKWATER_KEY", hide_env_values = true, requires = "url")]
    key: Option<String>,
    /// Print one turn's events as JSON, one a line
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    let piped = !std::io::stdin().is_terminal();
    let message = match &arguments.message {
        Some(message) => Some(message.clone()),
        None if piped => Some(read_pipe()?),
        None if arguments.json => return Err(Failure::Usage("--json is for one turn: give a message".to_owned())),
        None => None,
    };
    if message.as_ref().is_some_and(|message| message.trim().is_empty()) {
        return Err(Failure::Usage("the message is empty; say something".to_owned()));
    }
    super::block_on(async {
        let mut link = open(&arguments).await?;
        let outcome = talk(&mut link, &arguments, message).await;
        link.close().await;
        outcome
    })
}

fn read_pipe() -> Result<String, Failure> {
    let mut text = String::new();
    std::io::stdin()
        .read_to_string(&mut text)
        .map_err(|error| Failure::Failed(format!("cannot read standard input: {error}")))?;
    Ok(text)
}

async fn open(arguments: &Arguments) -> Result<Link, Failure> {
    let thread = &arguments.thread;
    if let Some(url) = &arguments.url {
        return Link::to(url, arguments.key.clone(), thread);
    }
    let loaded = arguments.settings.load(&[])?;
    let link = Link::here(&loaded, thread, |config| builder(config).map(|(builder, _)| builder)).await?;
    if link.is_here() && is_stand_in(&loaded.config) {
        output::note(STAND_IN);
    }
    Ok(link)
}

/// Talks until the turn, or the conversation, has ended.
async fn talk(link: &mut Link, arguments: &Arguments, message: Option<String>) -> Result<(), Failure> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::because)?;
    let mut view = View::new(arguments.json);
    match message {
        Some(message) => {
            let number = link.send(&message).await?;
            view.taken(&json!({"event": "taken", "thread": link.thread(), "number": number}));
            turn(link, &mut view, &mut interrupt, number).await
        }
        None => conversation(link, &mut view, &mut interrupt).await,
    }
}

/// Shows what happens until the thread waits for its user.
async fn turn(link: &mut Link, view: &mut View, interrupt: &mut Signal, number: u64) -> Result<(), Failure> {
    let mut failed = false;
    let mut stopping = false;
    loop {
        let told = tokio::select! {
            told = link.next() => told?,
            _ = interrupt.recv() => {
                if stopping {
                    return Err(Failure::Said);
                }
                stopping = true;
                view.note("stopping; Ctrl-C again leaves");
                link.stop(false).await?;
                continue;
            }
        };
        view.show(&told, number);
        failed |= told.kind == "failure" || told.kind == "stopped";
        if ends_turn(&told, number) {
            for asked in questions(&told.data["waits"]) {
                output::note(format!(
                    "waits for you: {}; here: slackwater approve, deny or choose {} {}",
                    view::question(&asked),
                    link.name(),
                    asked["question"]
                ));
            }
            return if failed { Err(Failure::Said) } else { Ok(()) };
        }
    }
}

/// The questions among what a thread waits for, the oldest first.
fn questions(waits: &Value) -> Vec<Value> {
    let waits = waits.as_array().into_iter().flatten();
    let mut questions: Vec<Value> = waits.filter(|wait| wait["on"] == "question").cloned().collect();
    questions.sort_by_key(|asked| asked["question"].as_u64());
    questions
}

/// Whether the thread has done what it wanted since that message, and waits for its user: for an input, or for answers.
fn ends_turn(told: &Told, number: u64) -> bool {
    let waits = told.data["waits"].as_array();
    let is_users = |wait: &Value| wait["on"] == "input" || wait["on"] == "question";
    let for_user = waits.is_some_and(|waits| !waits.is_empty() && waits.iter().all(is_users));
    told.kind == "waiting" && for_user && told.number() > number
}

/// A conversation on a terminal.
async fn conversation(link: &mut Link, view: &mut View, interrupt: &mut Signal) -> Result<(), Failure> {
    let standing = link.resume().await?;
    let thread = link.name().to_owned();
    let mut open = Vec::new();
    match standing {
        Some(standing) => {
            view.note(format!("thread {thread}, {} so far; Ctrl-D leaves", view::items(&standing)));
            view.waits(&standing["waits"]);
            open = questions(&standing["waits"]);
        }
        None => view.note(format!("thread {thread}, new; Ctrl-D leaves")),
    }
    let mut lines = read_lines();
    let mut number = 0;
    let mut working = false;
    let mut leaving = false;
    view.prompt();
    loop {
        tokio::select! {
            line = lines.recv() => {
                let Some(line) = line else {
                    view.note("");
                    return Ok(());
                };
                leaving = false;
                if line.trim().is_empty() {
                    view.prompt();
                    continue;
                }
                // One line that is not taken does not end the conversation.
                let taken = match order::read(&line, &open) {
                    Ok(Order::Say(text)) => link.send(&text).await,
                    Ok(Order::Answer(question, answer)) => link.answer(question, answer).await,
                    Ok(Order::Compact) => link.compact().await.map(|()| number),
                    Ok(Order::Stop { subtree }) => link.stop(subtree).await.map(|()| number),
                    Err(failure) => Err(failure),
                };
                match taken {
                    Ok(taken) => (number, working) = (taken, true),
                    Err(failure) => {
                        output::note(failure.words().unwrap_or_default());
                        view.prompt();
                    }
                }
            }
            told = link.next() => {
                let told = told?;
                view.show(&told, number);
                if told.kind == "waiting" {
                    open = questions(&told.data["waits"]);
                }
                if working && ends_turn(&told, number) {
                    working = false;
                    view.prompt();
                }
            }
            _ = interrupt.recv() => {
                if leaving {
                    view.note("");
                    return Ok(());
                }
                leaving = true;
                view.note(if working { "stopping; Ctrl-C again leaves" } else { "Ctrl-C again leaves" });
                if working {
                    link.stop(false).await?;
                } else {
                    view.prompt();
                }
            }
        }
    }
}

/// The terminal's lines. A thread reads them, because a terminal can only be waited for.
fn read_lines() -> mpsc::Receiver<String> {
    let (send, lines) = mpsc::channel(1);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if send.blocking_send(line).is_err() {
                return;
            }
        }
    });
    lines
}
