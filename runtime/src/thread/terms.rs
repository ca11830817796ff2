//! Terms: the model, the tools and the budget of one child.
//!
//! In: what a `spawn_thread` call asks for a child, and what completions cost. Out: the child's terms, or why it cannot have
//! them. Always: a child has no wider terms than its parent; whoever has spent its budget is closed, and its parent told.

use super::{Answer, Step, Thread};
use crate::effect::Shown;
use crate::history::AnsweredBy;
use crate::record::{Block, FailureClass, Terms, Usage};
use crate::tools;

impl Thread {
    /// The terms of a child for which these are asked: what is not said is inherited.
    pub(super) fn terms_of_a_child(&self, asked: Terms) -> Result<Terms, String> {
        let left = self.budget_left();
        match (asked.budget_tokens, left) {
            (None, Some(left)) => {
                return Err(format!(
                    "You have a budget, of which {left} tokens are left: give the child a part of it as `budget_tokens`."
                ));
            }
            (Some(share), Some(left)) if share >= left => {
                return Err(format!(
                    "Of your budget {left} tokens are left; the child cannot have {share} of them. Give it less."
                ));
            }
            _ => {}
        }
        let tools = match (asked.tools, &self.terms.tools) {
            (Some(named), Some(own)) => {
                if let Some(other) = named.iter().find(|name| !own.contains(name)) {
                    return Err(format!(
                        "You have no tool {other} yourself and cannot give it to a child. Yours are: {}.",
                        own.join(", ")
                    ));
                }
                Some(named)
            }
            (named, own) => named.or_else(|| own.clone()),
        };
        let model = asked.model.or_else(|| self.terms.model.clone());
        Ok(Terms { model, tools, budget_tokens: asked.budget_tokens })
    }

    /// Why a call of this tool is refused, if the thread was given tools and this is none of them.
    pub(super) fn was_not_given(&self, name: &str) -> Option<Answer> {
        let tools = self.terms.tools.as_ref()?;
        if tools.iter().any(|tool| tool == name) || tools::is_built_in(name) {
            return None;
        }
        Some(Answer::refusal(match tools.is_empty() {
            true => format!("You were given no tools, so {name} cannot be called: do the task without."),
            false => format!("You were not given the tool {name}. Yours are: {}.", tools.join(", ")),
        }))
    }

    fn budget_left(&self) -> Option<u64> {
        self.terms.budget_tokens.map(|budget| budget.saturating_sub(self.spent_tokens))
    }

    /// Counts what a completion has cost. Whether the budget is spent by it.
    pub(super) fn spend(&mut self, usage: Usage) -> bool {
        self.spent_tokens = self.spent_tokens.saturating_add(usage.input_tokens).saturating_add(usage.output_tokens);
        self.budget_left() == Some(0)
    }

    /// Why a call is not begun in the turn that has spent the budget, if it is not. A last report is.
    pub(super) fn is_too_late_for(&self, name: &str) -> Option<Answer> {
        (!tools::is_last_word(name))
            .then(|| Answer::text(AnsweredBy::Cancelled, format!("Not started: {}", self.spent())))
    }

    /// The budget was spent by a turn that has said this: the parent is told, and the thread closed.
    pub(super) fn close_for_its_budget(&mut self, step: &mut Step, blocks: &[Block]) {
        let said: Vec<&str> = blocks
            .iter()
            .filter_map(|block| match block {
                Block::Text(text) => Some(text.as_str()),
                _ => None,
            })
            .collect();
        let spent = self.spent();
        let report = format!("{spent} The thread is closed. Its last words: {}", said.join("\n"));
        step.tell(Shown::Failure { class: FailureClass::Fatal, message: spent });
        self.close(step, Some(report));
    }

    fn spent(&self) -> String {
        let budget = self.terms.budget_tokens.unwrap_or_default();
        format!("the budget of {budget} tokens is spent ({} were used).", self.spent_tokens)
    }
}
