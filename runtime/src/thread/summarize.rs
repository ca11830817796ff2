//! Summarizing: what a child does that was made for a summary of its parent's history.
//!
//! In: its birth, completions, failures, a stop. Out: one post to the parent: the summary, or why there is none. Always: it
//! takes no inputs, does no calls and makes no children; it closes with that post.

use super::{Answer, Family, Step, Thread};
use crate::effect::{Outcome, Refusal, Shown};
use crate::history::Item;
use crate::id::Number;
use crate::record::{Birth, Block, Completion, Content, End, PostBody, Usage};
use std::sync::Arc;

/// What the model is asked for.
const INSTRUCTIONS: &str = "Your history is about to get too long. Write a summary that will stand in the place of everything \
    above, for yourself: you go on from it and see nothing else of what came before. Keep: what the user wants and has decided, \
    word for word where the words matter; facts that were found; names, paths, ids and numbers that are needed again; what was \
    done and with what result; what is unfinished or promised, and what you were about to do next. Leave out what nobody needs \
    again. Answer with the summary only, as text: make no calls and say nothing else.";

/// What a call of such a thread is answered with.
const NO_CALLS: &str =
    "Not started: this thread was made for a summary of what is above. Answer with the summary only, as text.";

/// A summary that this thread was made for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Summarizing {
    /// The last record of the parent that it covers.
    pub(super) covers: Number,
    /// What it has cost so far.
    pub(super) usage: Usage,
    /// Why there is none, and whether that is because it did not fit the model.
    pub(super) trouble: Option<(String, bool)>,
}

impl Thread {
    /// The thread comes into being for a summary of its parent's oldest items.
    pub(super) fn born_to_summarize(&mut self, step: &mut Step, birth: Birth, covers: Number, items: u64) -> Outcome {
        let Birth { ancestors, spawn, terms, .. } = birth;
        if step.number > 1 || ancestors.is_empty() {
            return Outcome::Refused(Refusal::Unrelated);
        }
        step.tell(Shown::Born { ancestors: ancestors.clone() });
        self.family = Some(Family { ancestors, spawn });
        self.terms = terms.unwrap_or_default();
        self.history = self.history.first(usize::try_from(items).unwrap_or(usize::MAX));
        self.inherited = self.history.len();
        self.summarizes = Some(Summarizing { covers, usage: Usage::default(), trouble: None });
        let content = vec![Content::Text(INSTRUCTIONS.to_owned())];
        self.enqueue(1, Arc::new(Item::User { number: 1, content }));
        self.triggered = 1;
        Outcome::Taken(1)
    }

    /// Why no call of this thread is done, if it was made for a summary.
    pub(super) fn refuses_calls(&self) -> Option<Answer> {
        self.summarizes.is_some().then(|| Answer::refusal(NO_CALLS))
    }

    /// The model has said something, if this thread was made for a summary.
    pub(super) fn summary_said(&mut self, completion: &Completion) {
        let Some(summarizing) = &mut self.summarizes else { return };
        let Usage { input_tokens, output_tokens, cached_tokens } = completion.usage;
        summarizing.usage.input_tokens = summarizing.usage.input_tokens.saturating_add(input_tokens);
        summarizing.usage.output_tokens = summarizing.usage.output_tokens.saturating_add(output_tokens);
        summarizing.usage.cached_tokens = summarizing.usage.cached_tokens.saturating_add(cached_tokens);
        match completion.end {
            End::Finished | End::Length => {}
            End::Declined => summarizing.trouble = Some(("The model declined to write the summary.".to_owned(), false)),
            End::Cut => summarizing.trouble = Some(("The summary was stopped.".to_owned(), false)),
        }
    }

    /// A thread that was made for a summary and wants nothing more from its model posts what it has, and closes.
    pub(super) fn end_summary(&mut self, step: &mut Step) {
        if self.closed.is_some() || self.wants_completion() {
            return;
        }
        let Some(Summarizing { covers, usage, trouble }) = self.summarizes.clone() else { return };
        let Some(parent) = self.parent() else { return };
        let text = match self.history.newest_first().next().map(|item| &**item) {
            Some(Item::Assistant { number, blocks, .. }) if *number == step.number => texts(blocks),
            _ => String::new(),
        };
        let failed = |why: &str, overflow| PostBody::SummaryFailed { why: why.to_owned(), overflow };
        let body = match trouble {
            Some((why, overflow)) => failed(&why, overflow),
            None if self.stopped == step.number => failed("The summary was stopped.", false),
            None if text.trim().is_empty() => failed("The model wrote no summary.", false),
            None => PostBody::Summary { covers, text, usage },
        };
        self.post(step, parent, body);
        self.closed = Some(step.number);
        self.stopped = step.number;
        self.interrupted = step.number;
        step.tell(Shown::Closed { children: 0, subscriptions: 0, unseen: 0 });
    }
}

fn texts(blocks: &[Block]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        Block::Text(text) => Some(text.as_str()),
        Block::Reasoning { .. } | Block::Call { .. } => None,
    });
    texts.collect()
}
