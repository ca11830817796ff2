//! Scripts: rules that say what the scripted model answers.
//!
//! In: TOML, and requests. Out: replies. Always: the first rule that fits answers; what is wrong in a script is named with
//! its line before anything runs.

use super::scripted::{Broken, Reply, ScriptError};
use super::{ModelError, Request};
use serde::Deserialize;
use slackwater_core::effect::Prompt;
use slackwater_core::history::Item;
use slackwater_core::record::{Content, FailureClass, Usage};
use toml::Spanned;

/// A script.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Script {
    #[serde(default)]
    rule: Vec<Spanned<Rule>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    /// When it fits; without it, always.
    #[serde(default)]
    when: When,
    /// How long it waits before it says anything, in milliseconds.
    #[serde(default)]
    delay_ms: u64,
    /// How long it waits before each word, in milliseconds.
    #[serde(default)]
    word_delay_ms: u64,
    /// Its reasoning.
    #[serde(default)]
    think: String,
    /// What it says.
    #[serde(default)]
    say: String,
    /// Which tools it calls.
    #[serde(default)]
    call: Vec<Call>,
    /// How it fails.
    fail: Option<Fail>,
    /// What it claims to have cost.
    usage: Option<Cost>,
}

/// Tokens; those that are not said are as without `usage`.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Cost {
    #[serde(default)]
    input_tokens: u64,
    output_tokens: Option<u64>,
    #[serde(default)]
    cached_tokens: u64,
}

/// Conditions; all that are given must hold. They look at what is new since the model's last turn.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct When {
    /// A user's new message is exactly this.
    message: Option<String>,
    /// A user's new message contains this, in upper or lower case.
    message_contains: Option<String>,
    /// A user's new message is like this, where `*` stands for any text.
    message_like: Option<String>,
    /// There is a new result of this tool.
    result_of: Option<String>,
    /// There is a new result (of that tool) that contains this.
    result_contains: Option<String>,
    /// There is a new event that contains this.
    event_contains: Option<String>,
    /// It is the model's n-th turn in the thread, from 1.
    turn: Option<usize>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Call {
    tool: String,
    #[serde(default)]
    arguments: serde_json::Map<String, serde_json::Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fail {
    class: FailureClass,
    #[serde(default = "Fail::message")]
    message: String,
    /// It fails in the first so many attempts only.
    attempts: Option<u32>,
    /// It says so many words before it fails.
    #[serde(default)]
    after_words: usize,
}

impl Fail {
    fn message() -> String {
        "the script says so".to_owned()
    }
}

impl Script {
    /// Reads a script; `name` is what errors call it.
    pub(super) fn parse(name: &str, text: &str) -> Result<Self, ScriptError> {
        let wrong = |at: usize, problem: String| ScriptError::Wrong {
            name: name.to_owned(),
            line: text.as_bytes()[..at.min(text.len())].iter().filter(|&&byte| byte == b'\n').count() + 1,
            problem,
        };
        let script: Script = toml::from_str(text)
            .map_err(|error| wrong(error.span().map_or(0, |span| span.start), error.message().to_owned()))?;
        if script.rule.is_empty() {
            return Err(wrong(0, "there is no rule; expected at least one [[rule]] with `say` or `call`".to_owned()));
        }
        for rule in &script.rule {
            let Rule { say, call, fail, .. } = rule.get_ref();
            if say.is_empty() && call.is_empty() && fail.is_none() {
                return Err(wrong(
                    rule.span().start,
                    "this rule does nothing; expected at least one of `say`, `call`, `fail`".to_owned(),
                ));
            }
        }
        Ok(script)
    }

    /// What the first rule that fits says.
    pub(super) fn reply(&self, request: &Request) -> Reply {
        let prompt = &request.prompt;
        match self.rule.iter().map(Spanned::get_ref).find(|rule| rule.when.fits(prompt)) {
            Some(rule) => rule.reply(prompt),
            None => Reply::failure(
                FailureClass::Fatal,
                "no rule of the script fits this prompt; end the script with a [[rule]] without `when`",
            ),
        }
    }
}

impl When {
    fn fits(&self, prompt: &Prompt) -> bool {
        let new = || {
            prompt.history.newest_first().map(|item| &**item).take_while(|item| !matches!(item, Item::Assistant { .. }))
        };
        let message = |fits: &dyn Fn(&str) -> bool| {
            new().any(|item| matches!(item, Item::User { content, .. } if fits(&text_of(content))))
        };
        let holds = |condition: &Option<String>, fits: &dyn Fn(&str) -> bool| condition.as_deref().is_none_or(fits);
        holds(&self.message, &|wanted| message(&|text| text == wanted))
            && holds(&self.message_contains, &|wanted| message(&|text| contains(text, wanted)))
            && holds(&self.message_like, &|pattern| message(&|text| like(text, pattern)))
            && (self.result_of.is_none() && self.result_contains.is_none()
                || new().any(|item| match item {
                    Item::Result(answer) => {
                        self.result_of.as_ref().is_none_or(|tool| *tool == answer.name)
                            && holds(&self.result_contains, &|wanted| contains(&answer.text(), wanted))
                    }
                    _ => false,
                }))
            && holds(&self.event_contains, &|wanted| {
                new().any(|item| matches!(item, Item::Event(event) if contains(&text_of(&event.content), wanted)))
            })
            && self.turn.is_none_or(|turn| turn == turns(prompt) + 1)
    }
}

impl Rule {
    fn reply(&self, prompt: &Prompt) -> Reply {
        let mut reply = Reply::text(fill(&self.say, prompt)).reasoning(fill(&self.think, prompt));
        for Call { tool, arguments } in &self.call {
            let mut arguments = serde_json::Value::Object(arguments.clone());
            fill_strings(&mut arguments, prompt);
            reply = reply.call(tool, &arguments);
        }
        if let Some(Fail { class, message, attempts, after_words }) = &self.fail {
            reply.failure = Some(Broken {
                error: ModelError::new(*class, message.clone()),
                attempts: attempts.unwrap_or(u32::MAX),
                after_chunks: *after_words,
            });
        }
        if let Some(Cost { input_tokens, output_tokens, cached_tokens }) = self.usage {
            let output_tokens = output_tokens.unwrap_or(reply.chunks.len() as u64);
            reply = reply.usage(Usage { input_tokens, output_tokens, cached_tokens });
        }
        reply.delay_ms(self.delay_ms).chunk_delay_ms(self.word_delay_ms)
    }
}

/// Puts the prompt's own words in place of their names in braces. What names nothing stays as it is.
fn fill(template: &str, prompt: &Prompt) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        filled.push_str(&rest[..open]);
        rest = &rest[open..];
        let value = rest.find('}').and_then(|close| Some((close, value(&rest[1..close], prompt)?)));
        let taken = match value {
            Some((close, value)) => {
                filled.push_str(&value);
                close + 1
            }
            None => {
                filled.push('{');
                1
            }
        };
        rest = &rest[taken..];
    }
    filled + rest
}

fn value(name: &str, prompt: &Prompt) -> Option<String> {
    let newest = |text: &dyn Fn(&Item) -> Option<String>| {
        Some(prompt.history.newest_first().find_map(|item| text(item)).unwrap_or_default())
    };
    match name {
        "message" => newest(&|item| match item {
            Item::User { content, .. } => Some(text_of(content)),
            _ => None,
        }),
        "result" => newest(&|item| match item {
            Item::Result(answer) => Some(answer.text()),
            _ => None,
        }),
        "event" => newest(&|item| match item {
            Item::Event(event) => Some(text_of(&event.content)),
            _ => None,
        }),
        "thread" => Some(prompt.thread.to_string()),
        "turn" => Some((turns(prompt) + 1).to_string()),
        _ => None,
    }
}

fn fill_strings(value: &mut serde_json::Value, prompt: &Prompt) {
    match value {
        serde_json::Value::String(text) => *text = fill(text, prompt),
        serde_json::Value::Array(values) => values.iter_mut().for_each(|value| fill_strings(value, prompt)),
        serde_json::Value::Object(fields) => fields.values_mut().for_each(|value| fill_strings(value, prompt)),
        _ => {}
    }
}

/// How often the model has spoken in the thread.
fn turns(prompt: &Prompt) -> usize {
    prompt.history.newest_first().filter(|item| matches!(***item, Item::Assistant { .. })).count()
}

fn text_of(content: &[Content]) -> String {
    let texts: Vec<&str> = content
        .iter()
        .filter_map(|piece| match piece {
            Content::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    texts.join("\n")
}

fn contains(text: &str, wanted: &str) -> bool {
    text.to_lowercase().contains(&wanted.to_lowercase())
}

/// Whether the text is the pattern, where `*` stands for any text.
fn like(text: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}
