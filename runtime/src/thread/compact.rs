//! Compaction: a summary stands in the history for what is oldest in it.
//!
//! In: `Compact`, prompts that did not fit, and what the child that summarizes posts. Out: such a child, and a shorter
//! history. Always: what is covered ends where no call was open; the records stay, and so do pinned notes, open calls, inputs
//! without an answer and subscriptions; one attempt at a time; one that failed is not repeated until the history has grown.

use super::{Step, Thread};
use crate::effect::{Outcome, Refusal, Shown};
use crate::history::{History, Item, Summary};
use crate::id::{CallId, Number, ThreadId};
use crate::record::{Birth, Cause, Compact, CompactWhy, FailureClass, PostBody, Terms, Usage};
use std::sync::Arc;

/// How much of the history a summary covers at most, in percent of its bytes, unless a prompt did not fit.
pub const COVERED_PERCENT: usize = 80;

/// How long a summary may be at most, in percent of the bytes that it covers. A longer one is of no use.
pub const SUMMARY_PERCENT_MAX: usize = 80;

/// By how much the history has to grow after an attempt, in percent of what it was before, until another crossing is heard.
pub const GROWTH_PERCENT: usize = 25;

/// How often what is covered is halved when it does not fit the model itself.
pub const HALVINGS_MAX: u32 = 4;

/// How much of a subscription's arguments a summary lists, in bytes.
const ARGUMENTS_LISTED_BYTES: usize = 256;

/// How much of its task a child finds in a summary word for word, in bytes.
const TASK_LISTED_BYTES: usize = 4_096;

/// What a thread knows of summaries of its history.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Compaction {
    /// Where a summary may end, oldest first.
    pub(super) cuts: Vec<Cut>,
    /// The attempt under way.
    pub(super) running: Option<Attempt>,
    /// The record of the last summary, and the last record that it covers.
    pub(super) applied: Number,
    pub(super) covers: Number,
    /// How long the history has to be before a crossing is heard again, in bytes.
    pub(super) quiet_below: usize,
    /// What the provider said of the prompt that did not fit and waits for a summary.
    pub(super) unfit: Option<String>,
}

/// A place in the history at which no call is open and which the model has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The last record before it.
    pub(super) seen: Number,
    /// How many items stand before it.
    pub(super) items: usize,
}

/// A summary that is being made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attempt {
    /// The thread that makes it.
    pub(super) child: ThreadId,
    /// What it covers.
    pub(super) cut: Cut,
    /// Since when, in milliseconds since the Unix epoch.
    pub(super) since_ms: u64,
    /// Whether it was begun because a prompt did not fit, and how often less was tried since.
    pub(super) unfit: bool,
    pub(super) halved: u32,
}

/// What an attempt came to that made no summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unsummarized {
    /// It failed, and another one may not.
    Failed,
    /// What was to be summarized did not fit the model.
    Unfit,
    /// The summary was not shorter.
    Useless,
}

impl Compaction {
    /// Whether prompts wait for a summary, because they do not fit without it.
    pub(super) fn holds(&self) -> bool {
        self.unfit.is_some() && self.running.is_some()
    }
}

impl Thread {
    /// The last record of the thread that a summary covers: what it and those before it brought is in the history no more.
    /// 0 while there is no summary.
    pub fn covered(&self) -> Number {
        self.compaction.covers
    }

    /// No call is open here, and the model has answered what stands before.
    pub(super) fn may_cut(&mut self, seen: Number) {
        let items = self.history.len();
        // A summary alone is not summarized.
        let least = if self.compaction.applied > 0 { 2 } else { 1 };
        if items >= least.max(self.compaction.cuts.last().map_or(0, |cut| cut.items + 1)) {
            self.compaction.cuts.push(Cut { seen, items });
        }
    }

    pub(super) fn compact(&mut self, step: &mut Step, compact: Compact) -> Outcome {
        let Compact { id, origin: _, why } = compact;
        if let (CompactWhy::ByHand, Some(&first)) = (why, self.ids.get(&id)) {
            return Outcome::Duplicate(first);
        }
        if self.closed.is_some() || self.summarizes.is_some() {
            return Outcome::Refused(Refusal::Closed);
        }
        let bytes = self.history.byte_length();
        match why {
            CompactWhy::ByHand => {
                self.ids.insert(id, step.number);
                if self.compaction.running.is_none() && !self.begin(step, covered(bytes), usize::MAX, None) {
                    step.tell(Shown::NotCompacted { why: "There is nothing to summarize yet.".to_owned() });
                }
            }
            CompactWhy::Crossed { seen, .. } => {
                // A count from before the last summary says nothing of the history as it is.
                let is_stale = seen < self.compaction.applied || seen >= step.number;
                if !is_stale && self.compaction.running.is_none() && bytes >= self.compaction.quiet_below {
                    self.begin(step, covered(bytes), usize::MAX, None);
                }
            }
        }
        Outcome::Taken(step.number)
    }

    /// A prompt did not fit the model.
    pub(super) fn unfit(&mut self, step: &mut Step, seen: Number, message: String) {
        if self.stopped > seen || self.closed.is_some() {
            // Nobody waits for its answer.
            return step.tell(Shown::Failure { class: FailureClass::Overflow, message });
        }
        let half = self.history.byte_length() / 2;
        if self.compaction.running.is_some() || self.begin(step, half, usize::MAX, Some(0)) {
            self.compaction.unfit = Some(message);
            step.moved = true;
        } else {
            self.fit_without_summary(step, message);
        }
    }

    /// A prompt did not fit, and there is no summary that would help: what is long is cut. What tools said is cut without
    /// asking; a user whose text does not fit is told so.
    fn fit_without_summary(&mut self, step: &mut Step, message: String) {
        if self.cut_history(step, false) {
            self.triggered = step.number;
            return;
        }
        let what = match self.cut_history(step, true) {
            true => {
                "What was sent does not fit the model. It is on record, but the model sees only its beginning and end from now on; send it in smaller parts."
            }
            false => {
                "The conversation does not fit the model, and nothing in it can be summarized or cut. Use a model with a larger window."
            }
        };
        step.tell(Shown::Failure { class: FailureClass::Overflow, message: format!("{what} ({message})") });
    }

    /// Has a child summarize what is oldest: as much as says at most so many bytes, or the least there is, of fewer than so
    /// many items.
    fn begin(&mut self, step: &mut Step, bytes: usize, below: usize, halved: Option<u32>) -> bool {
        let fitting = self.history.fitting(bytes);
        let mut cuts = self.compaction.cuts.iter().take_while(|cut| cut.items < below);
        let Some(&first) = cuts.next() else { return false };
        let cut = cuts.take_while(|cut| cut.items <= fitting).last().copied().unwrap_or(first);
        let child = self.id.child(CallId { number: step.number, index: u16::MAX });
        let mut ancestors = self.ancestors().to_vec();
        ancestors.push(self.id);
        let spawn = Cause {
            name: "summarize".to_owned(),
            provider_id: format!("summary_{}", step.number),
            arguments: "{}".to_owned(),
        };
        // The child inherits the history as this record leaves it, and of that the items before the cut.
        let terms =
            Some(Terms { budget_tokens: None, ..self.terms.clone() }).filter(|terms| *terms != Terms::default());
        let birth = Box::new(Birth { ancestors, through: step.number, fresh: false, spawn, event: None, terms });
        self.post(step, child, PostBody::Summarize { birth, covers: cut.seen, items: cut.items as u64 });
        let (unfit, halved) = (halved.is_some(), halved.unwrap_or(0));
        self.compaction.running = Some(Attempt { child, cut, since_ms: step.at_ms, unfit, halved });
        let bytes = self.history.first(cut.items).byte_length();
        step.tell(Shown::Compacting { child, covers: cut.seen, bytes });
        true
    }

    /// The child has made a summary.
    pub(super) fn summary(&mut self, step: &mut Step, from: ThreadId, text: String, usage: Usage) -> Outcome {
        let Some(attempt) = self.compaction.running.filter(|attempt| attempt.child == from) else {
            return Outcome::Refused(Refusal::Unrelated);
        };
        self.spend(usage);
        let cut = attempt.cut;
        let item = Arc::new(Item::Summary(self.summary_of(step.number, cut.seen, text)));
        let covered = self.history.first(cut.items).byte_length();
        if item.byte_length() * 100 > covered * SUMMARY_PERCENT_MAX {
            let why = format!(
                "The summary would be of no use: it has {} bytes and stands for {covered}.",
                item.byte_length()
            );
            return self.not_summarized(step, from, why, Unsummarized::Useless);
        }
        let bytes_before = self.history.byte_length();
        let rest: Vec<Arc<Item>> = self.history.newest_first().take(self.history.len() - cut.items).cloned().collect();
        self.history = std::iter::once(item).chain(rest.into_iter().rev()).collect::<History>();
        // What was inherited is covered: no summary ends in the middle of it.
        self.inherited = 1;
        self.compaction.cuts.retain_mut(|later| {
            let is_later = later.items > cut.items;
            later.items = if is_later { later.items - cut.items + 1 } else { 0 };
            is_later
        });
        self.compaction.running = None;
        self.compaction.applied = step.number;
        self.compaction.covers = cut.seen;
        // A history that is too long even now has not crossed anew.
        let bytes_after = self.history.byte_length();
        self.compaction.quiet_below = bytes_after + growth(bytes_before);
        step.tell(Shown::Compacted { covers: cut.seen, bytes_before, bytes_after, usage });
        if self.compaction.unfit.take().is_some() {
            self.triggered = step.number;
        }
        Outcome::Taken(step.number)
    }

    /// The child has made none, or one that is of no use.
    pub(super) fn not_summarized(
        &mut self,
        step: &mut Step,
        from: ThreadId,
        why: String,
        how: Unsummarized,
    ) -> Outcome {
        let Some(attempt) = self.compaction.running.take_if(|attempt| attempt.child == from) else {
            return Outcome::Refused(Refusal::Unrelated);
        };
        let bytes = self.history.byte_length();
        self.compaction.quiet_below = bytes + growth(bytes);
        step.tell(Shown::NotCompacted { why: why.clone() });
        let Some(message) = self.compaction.unfit.take() else { return Outcome::Taken(step.number) };
        // A prompt waits for it. Less may fit; and an attempt that was not made for this prompt is no attempt for it.
        let covered = self.history.first(attempt.cut.items).byte_length();
        let again = match attempt.unfit {
            true if how == Unsummarized::Unfit && attempt.halved < HALVINGS_MAX => {
                self.begin(step, covered / 2, attempt.cut.items, Some(attempt.halved + 1))
            }
            true => false,
            false => self.begin(step, bytes / 2, usize::MAX, Some(0)),
        };
        if again {
            self.compaction.unfit = Some(message);
        } else if how == Unsummarized::Failed {
            let message = format!(
                "The conversation does not fit the model ({message}), and it could not be summarized ({why}). The next message tries again."
            );
            step.tell(Shown::Failure { class: FailureClass::Overflow, message });
        } else {
            self.fit_without_summary(step, message);
        }
        Outcome::Taken(step.number)
    }

    /// A summary with what it must not lose beside the text.
    fn summary_of(&self, number: Number, covers: Number, text: String) -> Summary {
        let place = self.family.as_ref().and_then(|family| {
            let parent = family.ancestors.last()?;
            let task = crate::tools::instructions(&family.spawn.arguments);
            Some(format!("{} Your task is this: {}", self.place(*parent), beginning(&task, TASK_LISTED_BYTES)))
        });
        let active = self.subscriptions.values().filter(|subscription| !subscription.ended);
        Summary {
            number,
            covers,
            text,
            place,
            notes: self.notes.pinned.iter().map(|(id, note)| (format!("note_{id}"), note.clone())).collect(),
            subscriptions: active
                .map(|subscription| {
                    let Cause { name, provider_id, arguments } = subscription.cause.clone();
                    Cause { name, provider_id, arguments: beginning(&arguments, ARGUMENTS_LISTED_BYTES) }
                })
                .collect(),
            children: self.living,
        }
    }
}

/// How much of so many bytes a summary covers.
fn covered(bytes: usize) -> usize {
    bytes / 100 * COVERED_PERCENT + bytes % 100 * COVERED_PERCENT / 100
}

/// By how much a history of so many bytes has to grow.
fn growth(bytes: usize) -> usize {
    bytes / 100 * GROWTH_PERCENT + bytes % 100 * GROWTH_PERCENT / 100
}

fn beginning(text: &str, bytes: usize) -> String {
    match text.floor_char_boundary(bytes) {
        end if end < text.len() => format!("{}…", &text[..end]),
        _ => text.to_owned(),
    }
}
