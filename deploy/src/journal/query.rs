//! Answers about what is durable: a thread's records, and their fold, looked at.
//!
//! In: a thread's records. Out: the thread, its outputs, its records or what its model sees, from a place on. Always: derived
//! from the records, so the answer is the same on every day and after every restart; a page is bounded.

use super::body;
use super::chain::Ancestry;
use super::format::FRAME_HEAD;
use super::inspect::kind_of;
use slackwater_core::effect::{Effect, Output};
use slackwater_core::history::Item;
use slackwater_core::id::{Number, OutputId, ThreadId};
use slackwater_core::port::{Kept, Query, Reply, View};
use slackwater_core::record::{Block, Committed, Content, Origin, PostBody, Proof, Record};
use slackwater_core::thread::{Standing, Thread};
use std::sync::Arc;

/// How many threads one page has at most; each is read and folded.
pub(super) const THREADS_MAX: usize = 1000;

/// How many items or records one page has at most.
const PAGE_MAX: usize = 1000;

/// How large the items of one page are together, in bytes, unless the first is larger.
const PAGE_BYTES_MAX: u64 = 8 << 20;

/// How much of what a record says is told, in characters.
const GIST_LENGTH: usize = 120;

/// The answer to a question about one thread, from its records.
pub(super) fn reply(question: Query, id: ThreadId, ancestry: Ancestry, records: Vec<Committed>) -> Reply {
    match question {
        Query::Outputs { after, limit, .. } => {
            let (outputs, all) = outputs(id, records, after, limit);
            Reply::Outputs(outputs, all)
        }
        Query::Records { after, limit, .. } => kept(&records, after, limit),
        Query::View { after, limit, .. } => Reply::View(view(&fold(id, ancestry, records), after, limit)),
        Query::Why(_) => {
            let bytes = bytes(&records);
            let mut why = fold(id, ancestry, records).why();
            why.standing.bytes = bytes;
            Reply::Why(Box::new(why))
        }
        Query::Thread(_) | Query::Threads { .. } => Reply::Thread(standing(id, ancestry, records)),
    }
}

/// Where the thread stands that these records make.
pub(super) fn standing(id: ThreadId, ancestry: Ancestry, records: Vec<Committed>) -> Standing {
    let bytes = bytes(&records);
    Standing { bytes, ..fold(id, ancestry, records).standing() }
}

fn fold(id: ThreadId, ancestry: Ancestry, records: Vec<Committed>) -> Thread {
    let mut thread = Thread::inheriting(id, ancestry);
    for record in records {
        thread.apply(record);
    }
    thread
}

/// The outputs after the given one, at most `limit`, and whether these are all. No output shows what a thread inherits.
fn outputs(id: ThreadId, records: Vec<Committed>, after: OutputId, limit: usize) -> (Vec<Output>, bool) {
    let mut thread = Thread::new(id);
    let mut outputs = Vec::new();
    for record in records {
        let told = thread.apply(record).effects.into_iter().filter_map(|effect| match effect {
            Effect::Tell(output) if output.id > after => Some(output),
            _ => None,
        });
        for output in told {
            if outputs.len() == limit {
                return (outputs, false);
            }
            outputs.push(output);
        }
    }
    (outputs, true)
}

/// What the model sees, from a place on.
fn view(thread: &Thread, after: usize, limit: usize) -> View {
    let seen = thread.view();
    let all = seen.to_vec();
    let pending = all.len() - thread.history().len();
    let first = after.min(all.len());
    let mut items: Vec<Arc<Item>> = Vec::new();
    let mut left = PAGE_BYTES_MAX;
    for item in all[first..].iter().take(limit.min(PAGE_MAX)) {
        let length = body::length(&***item);
        if length > left && !items.is_empty() {
            break;
        }
        left = left.saturating_sub(length);
        items.push((*item).clone());
    }
    View { items, first, total: all.len(), inherited: thread.inherited(), pending }
}

/// What records take on the disk, in bytes.
fn bytes(records: &[Committed]) -> u64 {
    records.iter().map(|record| length(&record.arrival.record)).sum()
}

/// A frame's head, the version of its body, and the body.
fn length(record: &Record) -> u64 {
    FRAME_HEAD as u64 + 1 + body::length(record)
}

fn kept(records: &[Committed], after: Number, limit: usize) -> Reply {
    let mut later = records.iter().filter(|record| record.number > after);
    let page: Vec<Kept> = later.by_ref().take(limit.min(PAGE_MAX)).map(one_kept).collect();
    Reply::Records(page, later.next().is_none())
}

fn one_kept(Committed { number, arrival }: &Committed) -> Kept {
    let record = &arrival.record;
    Kept {
        number: *number,
        at_ms: arrival.at_ms,
        kind: kind_of(record).to_owned(),
        bytes: length(record),
        origin: origin(record),
        gist: head(&gist(record)),
    }
}

/// Who sent a record. What says nobody is the runtime's own.
fn origin(record: &Record) -> Origin {
    let inside = |who: String| Origin { who, proof: Proof::Process };
    match record {
        Record::Message(message) => message.origin.clone(),
        Record::Stop(stop) | Record::StopAll(stop) => stop.origin.clone(),
        Record::Compact(compact) => compact.origin.clone(),
        Record::Asked(question) => question.origin.clone(),
        Record::Answered(verdict) => verdict.origin.clone(),
        Record::View(update) => update.origin.clone(),
        Record::Result(result) => result.origin.clone(),
        Record::Event(event) => event.origin.clone(),
        Record::Completion(completion) => inside(completion.model.clone()),
        Record::Post(post) => inside(format!("thread {}", post.id.from)),
        _ => Origin::runtime(),
    }
}

/// What a record says, in one line.
fn gist(record: &Record) -> String {
    match record {
        Record::Message(message) => said(&message.content),
        Record::Completion(completion) => turn(&completion.blocks),
        Record::Failure(failure) => failure.message.clone(),
        Record::Accepted(call) => format!("call {call}"),
        Record::Armed { call, due_ms } => format!("call {call} sleeps until {due_ms}"),
        Record::Result(result) => format!("call {}: {}", result.call, said(&result.content)),
        Record::Fired(call) => format!("call {call}"),
        Record::Stop(_) | Record::StopAll(_) => String::new(),
        Record::Post(post) => match &post.body {
            PostBody::Birth(_) => "birth".to_owned(),
            PostBody::Message(text) => format!("message: {text}"),
            PostBody::Report { text, .. } => format!("report: {text}"),
            PostBody::Close => "close".to_owned(),
            PostBody::Closed => "closed".to_owned(),
            PostBody::Stop => "stop".to_owned(),
            PostBody::Summarize { covers, .. } => format!("birth for a summary through {covers}"),
            PostBody::Summary { covers, text, .. } => format!("summary through {covers}: {text}"),
            PostBody::SummaryFailed { why, .. } => format!("no summary: {why}"),
        },
        Record::Delivered(receipt) => {
            let what = format!("post {}.{}", receipt.post.number, receipt.post.index);
            receipt.refused.map_or(what.clone(), |why| format!("{what} was not taken: {why:?}"))
        }
        Record::Event(event) => format!("subscription {}: {}", event.subscription, said(&event.content)),
        Record::Bounds(bounds) => format!("{bounds:?}"),
        Record::Asked(question) => format!("call {}: {:?}", question.call, question.asks),
        Record::Answered(verdict) => format!("question {}: {:?}", verdict.question, verdict.answer),
        Record::Responded(question) => format!("question {question}"),
        Record::Deadline { call, due_ms } => format!("call {call} times out at {due_ms}"),
        Record::Lost(call) => format!("call {call}"),
        Record::Compact(compact) => format!("{:?}", compact.why),
        Record::View(update) => format!("call {}: {}", update.call, update.view_type),
    }
}

fn turn(blocks: &[Block]) -> String {
    let said = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.clone()),
        Block::Reasoning { .. } => None,
        Block::Call { name, arguments, .. } => Some(format!("{name}({arguments})")),
    });
    said.collect::<Vec<_>>().join(" ")
}

fn said(content: &[Content]) -> String {
    let pieces = content.iter().map(|piece| match piece {
        Content::Text(text) => text.clone(),
        Content::Image { media_type, .. } => format!("[{media_type}]"),
        Content::File { name, .. } => format!("[{name}]"),
    });
    pieces.collect::<Vec<_>>().join(" ")
}

/// The beginning of a text, in one line.
fn head(text: &str) -> String {
    let words = text.split_whitespace().enumerate();
    let mut letters = words.flat_map(|(at, word)| (at > 0).then_some(' ').into_iter().chain(word.chars()));
    let head: String = letters.by_ref().take(GIST_LENGTH).collect();
    if letters.next().is_some() { format!("{head}…") } else { head }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gist_is_one_line_of_bounded_length() {
        assert_eq!(head(" two\n\n lines\t"), "two lines");
        assert_eq!(head(""), "");
        let long = "ä".repeat(GIST_LENGTH);
        assert_eq!(head(&long), long);
        assert_eq!(head(&format!("{long} b")), format!("{long}…"));
    }
}
