//! What a person, or a program, sees of a chat.
//!
//! In: a thread's events. Out: the agent's words as they come; on a terminal also, dimly, what it does; or JSON, one event a
//! line. Always: each text once; in a pipe nothing but the agent's words.

use super::link::Told;
use super::order;
use crate::output::{self, Style};
use serde_json::{Value, json};
use std::fmt::Display;
use std::io::IsTerminal as _;

/// How much of a result is shown, in characters.
const SHOWN_LENGTH: usize = 300;

/// The view of one chat.
pub(super) struct View {
    json: bool,
    terminal: bool,
    style: Style,
    /// What of the turn has been shown while it came.
    streamed: Streamed,
    /// Whether the cursor stands inside a line.
    in_line: bool,
}

/// How a turn's text has come so far.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Streamed {
    /// Nothing was shown.
    Nothing,
    /// From its beginning.
    Whole,
    /// Reasoning only.
    Reasoning,
}

impl View {
    pub(super) fn new(json: bool) -> Self {
        let terminal = std::io::stdout().is_terminal() && !json;
        Self { json, terminal, style: Style::stdout(), streamed: Streamed::Nothing, in_line: false }
    }

    /// The message is durable.
    pub(super) fn taken(&self, taken: &Value) {
        if self.json {
            output::line(taken);
        }
    }

    /// Asks for the next message.
    pub(super) fn prompt(&mut self) {
        self.fresh_line();
        if self.terminal {
            output::text(format_args!("{} ", self.style.bold(">")));
        }
    }

    /// Says something beside the conversation.
    pub(super) fn note(&mut self, words: impl Display) {
        self.fresh_line();
        if self.terminal {
            output::line(self.style.dim(words));
        }
    }

    /// Shows an event. `own` is the number of the message that this chat sent last.
    pub(super) fn show(&mut self, told: &Told, own: u64) {
        if self.json {
            let mut data = told.data.clone();
            data["event"] = json!(told.kind);
            return output::line(data);
        }
        let word = |field: &str| told.data[field].as_str().unwrap_or_default();
        match told.kind.as_str() {
            "started" => self.streamed = Streamed::Nothing,
            "chunk" => self.chunk(word("text"), word("reasoning")),
            "void" => {
                self.streamed = Streamed::Nothing;
                self.note("(this broke off and does not count; once more)");
            }
            "turn" => {
                if self.streamed != Streamed::Whole && !word("text").is_empty() {
                    self.fresh_line();
                    self.put(word("text"));
                }
                self.streamed = Streamed::Nothing;
                self.fresh_line();
                for call in told.data["calls"].as_array().into_iter().flatten() {
                    let name = call["name"].as_str().unwrap_or_default();
                    self.note(format!("\u{2192} {name}({})", call["arguments"]));
                }
            }
            "result" => self.note(format!("\u{2190} {}: {}", word("name"), shortened(word("text")))),
            "event" => self.note(format!("\u{2190} event of {}: {}", word("name"), shortened(word("text")))),
            "message" if told.number() != own => self.note(format!("also said: {}", shortened(word("text")))),
            "waiting" => self.waits(&told.data["waits"]),
            "failure" => {
                self.fresh_line();
                output::note(format!("the model could not answer: {}", word("message")));
            }
            "compacting" => self.note(format!("summarizing {} of the history", bytes(&told.data["bytes"]))),
            "compacted" => {
                let (before, after) = (bytes(&told.data["bytes_before"]), bytes(&told.data["bytes_after"]));
                self.note(format!("the history is summarized: {before} before, {after} now"));
            }
            "not_compacted" => self.note(format!("the history is not summarized: {}", word("why"))),
            "stopped" => self.note("(stopped)"),
            "spawned" => self.note(format!("made the child {}", word("child"))),
            "report" => self.note(format!("\u{2190} report of {}: {}", word("from"), shortened(word("text")))),
            "undelivered" => self.note(format!("not taken by {}: {}", word("to"), word("why"))),
            "closed" => self.note("(closed; nothing more happens to this thread)"),
            "answer" => {
                self.note(format!("{} answers question {}: {}", word("who"), told.data["question"], word("answer")))
            }
            _ => {}
        }
    }

    fn chunk(&mut self, text: &str, reasoning: &str) {
        if !reasoning.is_empty() && self.terminal {
            self.streamed = Streamed::Reasoning;
            self.put(self.style.dim(reasoning));
        }
        if !text.is_empty() {
            if self.streamed == Streamed::Reasoning {
                self.fresh_line();
            }
            self.streamed = Streamed::Whole;
            self.put(text);
        }
    }

    /// Shows what the thread waits for.
    pub(super) fn waits(&mut self, waits: &Value) {
        for wait in waits.as_array().into_iter().flatten() {
            let word = |field: &str| wait[field].as_str().unwrap_or_default();
            match word("on") {
                "call" => self.note(format!("waits for {}", word("name"))),
                "summary" => self.note("waits for a summary of the history"),
                "timer" => self.note(format!("sleeps until {}", wait["due"].as_str().unwrap_or("its time is known"))),
                "question" => self.note(question(wait)),
                _ => {}
            }
        }
    }

    fn put(&mut self, text: impl Display) {
        let text = text.to_string();
        self.in_line = !text.ends_with('\n');
        output::text(text);
    }

    fn fresh_line(&mut self) {
        if std::mem::take(&mut self.in_line) {
            output::text("\n");
        }
    }
}

/// A question, and how it is answered.
pub(super) fn question(asked: &Value) -> String {
    let word = |field: &str| asked[field].as_str().unwrap_or_default();
    let (number, name) = (&asked["question"], word("name"));
    match word("kind") {
        "approval" => format!(
            "question {number}: may {name}({}) be done? ({}) /approve or /deny [reason]",
            shortened(&asked["arguments"].to_string()),
            word("reason")
        ),
        "choice" => {
            let choices = asked["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
            format!("question {number} of {name}: {} /choose {}", word("prompt"), order::shown(choices))
        }
        _ => format!("{name} waits until it is authorized at {}", word("url")),
    }
}

/// How much a thread holds, in words.
pub(super) fn items(standing: &Value) -> String {
    match standing["items"].as_u64().unwrap_or_default() {
        1 => "1 item".to_owned(),
        count => format!("{count} items"),
    }
}

/// A number of bytes, in words.
fn bytes(count: &Value) -> String {
    match count.as_u64().unwrap_or_default() {
        few @ 0..10_000 => format!("{few} bytes"),
        many => format!("{} KB", many / 1_000),
    }
}

fn shortened(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(SHOWN_LENGTH) {
        Some((at, _)) => format!("{}\u{2026}", &line[..at]),
        None => line,
    }
}
