//! `slackwater threads`: the threads as trees, with what they do, what they wait for and how large they are.
//!
//! In: a filter. Out: a table for people, or JSON. Always: a child stands below its parent; what is left out is said.

use super::Failure;
use super::ask::{About, Source, Where};
use super::words::{self, Column, called, count, distance, size, table, word};
use crate::output::{self, Style};
use serde_json::{Value, json};
use slackwater::gateway::name;
use slackwater_core::id::ThreadId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  slackwater threads
  slackwater threads --state working --state thinking
  slackwater threads demo --all                the tree of `demo`, with what is closed
  slackwater threads --json | jq '.threads[] | select(.state == \"sleeping\")'

It asks the runtime that runs on the data directory, or reads the directory when none does. It changes nothing and wakes
nobody.")]
pub(crate) struct Arguments {
    /// Only this thread and what is below it, by name or id [default: all]
    #[arg(value_name = "THREAD")]
    thread: Option<String>,
    /// Only threads that do this; may be given more than once
    #[arg(long = "state", value_name = "STATE", value_parser = ["thinking", "working", "sleeping", "idle", "closed"])]
    states: Vec<String>,
    /// Also those that are closed
    #[arg(long)]
    all: bool,
    /// How many at most
    #[arg(long, value_name = "COUNT", default_value = "200", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Print JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

pub(crate) fn run(arguments: Arguments) -> Result<(), Failure> {
    super::block_on(async {
        let source = arguments.place.open().await?;
        let mut found = Found { limit: arguments.limit as usize, ..Found::default() };
        found.read(&source, &arguments).await?;
        if arguments.json {
            let threads: Vec<&Value> = found.ordered().into_iter().map(|(_, standing)| standing).collect();
            output::line(json!({"threads": threads, "more": found.more}));
        } else {
            output::text(found.table(words::now_ms(), Style::stdout()));
            if found.closed > 0 {
                output::note(format!("{} not shown; --all shows them", count(found.closed, "closed thread")));
            }
            if found.more {
                output::note(format!("there are more; --limit shows more than {}", found.limit));
            }
        }
        Ok(())
    })
}

/// What was found.
#[derive(Default)]
struct Found {
    limit: usize,
    threads: BTreeMap<ThreadId, Value>,
    /// Those that were asked for, and not only stand above one.
    wanted: BTreeSet<ThreadId>,
    /// How many were left out because they are closed.
    closed: u64,
    /// Whether the limit has left some out.
    more: bool,
}

impl Found {
    async fn read(&mut self, source: &Source, arguments: &Arguments) -> Result<(), Failure> {
        let only = match &arguments.thread {
            None => None,
            Some(thread) => {
                let standing = source.about(thread, About::Standing).await?;
                let id = id(&standing, "thread");
                self.take(standing, arguments);
                id
            }
        };
        // A tree's threads share the first half of their names, so they come one after another.
        let mut after = only.map(|root| {
            let mut first = [0; 16];
            first[..8].copy_from_slice(&root.as_bytes()[..8]);
            ThreadId::from_bytes(first)
        });
        loop {
            let (page, next) = source.threads(after).await?;
            for standing in page {
                let Some(thread) = id(&standing, "thread") else { continue };
                let other_tree = |root: ThreadId| root.as_bytes()[..8] != thread.as_bytes()[..8];
                if only.is_some_and(other_tree) {
                    return self.complete(source, only).await;
                }
                if self.wanted.len() >= self.limit {
                    self.more = true;
                    return self.complete(source, only).await;
                }
                if Some(thread) != only {
                    self.take(standing, arguments);
                }
            }
            after = next;
            if after.is_none() {
                return self.complete(source, only).await;
            }
        }
    }

    fn take(&mut self, standing: Value, arguments: &Arguments) {
        let Some(thread) = id(&standing, "thread") else { return };
        let state = word(&standing, "state");
        if !arguments.states.is_empty() {
            if !arguments.states.iter().any(|wanted| wanted == state) {
                return;
            }
        } else if state == "closed" && !arguments.all {
            self.closed += 1;
            return;
        }
        self.wanted.insert(thread);
        self.threads.insert(thread, standing);
    }

    /// Adds those that stand above one that was found; without those that are not below `only`.
    async fn complete(&mut self, source: &Source, only: Option<ThreadId>) -> Result<(), Failure> {
        let mut missing: Vec<ThreadId> = self.threads.values().filter_map(|standing| id(standing, "parent")).collect();
        while let Some(parent) = missing.pop() {
            if self.threads.contains_key(&parent) {
                continue;
            }
            let standing = source.about(&parent.to_string(), About::Standing).await?;
            missing.extend(id(&standing, "parent"));
            self.threads.insert(parent, standing);
        }
        if let Some(only) = only {
            let below: BTreeSet<ThreadId> =
                self.threads.keys().copied().filter(|thread| self.is_below(*thread, only)).collect();
            self.threads.retain(|thread, _| below.contains(thread));
        }
        Ok(())
    }

    fn is_below(&self, thread: ThreadId, root: ThreadId) -> bool {
        let parent = |thread: &ThreadId| self.threads.get(thread).and_then(|standing| id(standing, "parent"));
        std::iter::successors(Some(thread), parent).any(|above| above == root)
    }

    /// The threads with how deep they stand, a child below its parent.
    fn ordered(&self) -> Vec<(usize, &Value)> {
        let mut below: BTreeMap<Option<ThreadId>, Vec<ThreadId>> = BTreeMap::new();
        for (&thread, standing) in &self.threads {
            let parent = id(standing, "parent").filter(|parent| self.threads.contains_key(parent));
            below.entry(parent).or_default().push(thread);
        }
        let mut next: Vec<(usize, ThreadId)> =
            below.get(&None).into_iter().flatten().rev().map(|thread| (0, *thread)).collect();
        let mut ordered = Vec::new();
        while let Some((depth, thread)) = next.pop() {
            ordered.push((depth, &self.threads[&thread]));
            next.extend(below.get(&Some(thread)).into_iter().flatten().rev().map(|child| (depth + 1, *child)));
        }
        ordered
    }

    fn table(&self, now_ms: u64, style: Style) -> String {
        let rows: Vec<Vec<String>> = self
            .ordered()
            .into_iter()
            .map(|(depth, standing)| {
                let number = |field: &str| standing[field].as_u64().unwrap_or_default();
                let branch = if depth == 0 { String::new() } else { format!("{}\u{2514} ", "  ".repeat(depth - 1)) };
                vec![
                    format!("{branch}{}", called(standing)),
                    word(standing, "state").to_owned(),
                    number("last").to_string(),
                    size(number("bytes")),
                    distance(number("last_at_ms"), now_ms),
                    waits(standing, now_ms),
                ]
            })
            .collect();
        if rows.is_empty() {
            return "no threads\n".to_owned();
        }
        let columns = [
            Column::Left("THREAD"),
            Column::Left("STATE"),
            Column::Right("RECORDS"),
            Column::Right("SIZE"),
            Column::Left("LAST"),
            Column::Left("WAITS FOR"),
        ];
        table(style, &columns, &rows)
    }
}

/// What a thread waits for, in one cell.
fn waits(standing: &Value, now_ms: u64) -> String {
    let waits = standing["waits"].as_array().into_iter().flatten().map(|wait| match word(wait, "on") {
        "model" => "the model".to_owned(),
        "call" => format!("the tool {}", word(wait, "name")),
        "timer" => match wait["due_ms"].as_u64() {
            Some(due_ms) => format!("its timer, {}", distance(due_ms, now_ms)),
            None => "its timer".to_owned(),
        },
        "question" => format!("a person (question {})", wait["question"]),
        _ => super::why::on(wait),
    });
    let mut waits: Vec<String> = waits.collect();
    let subscriptions = standing["subscriptions"].as_u64().unwrap_or_default();
    if subscriptions > 0 {
        waits.push(count(subscriptions, "subscription"));
    }
    waits.join(", ")
}

fn id(standing: &Value, field: &str) -> Option<ThreadId> {
    name::address(standing[field].as_str()?).ok().map(|address| address.thread)
}
