//! What is true of every thread, whatever happened to it.
//!
//! In: a thread. Out: the first invariant that it breaks, by name. Always: costs a walk over the history, so tests and
//! `doctor` call it and the hot path does not.

use super::Thread;
use crate::history::{History, Item};
use crate::id::CallId;
use crate::record::Block;
use std::collections::BTreeSet;

/// Checks a whole thread.
///
/// # Errors
/// The name of the invariant that does not hold, and where.
pub fn check(thread: &Thread) -> Result<(), String> {
    let unanswered = check_view(&thread.history)?;
    let open: BTreeSet<CallId> = thread.open.keys().copied().collect();
    if unanswered != open {
        return Err(format!(
            "every_call_has_one_result: open calls {open:?}, unanswered in the history {unanswered:?}"
        ));
    }
    if !open.is_empty() && thread.prompt().is_some() {
        return Err("every_call_has_one_result: a prompt is wanted while calls are open".to_owned());
    }
    if let Some(prompt) = thread.prompt() {
        let left = check_view(&prompt.history)?;
        if !left.is_empty() {
            return Err(format!("every_call_has_one_result: the prompt has unanswered calls {left:?}"));
        }
        if prompt.history.is_empty() {
            return Err("a prompt without anything to answer".to_owned());
        }
    }
    if thread.settled_at > thread.last || thread.triggered > thread.last || thread.settled > thread.last {
        return Err("one_order_per_thread: a mark lies after the last record".to_owned());
    }
    if thread.pending.iter().zip(thread.pending.iter().skip(1)).any(|((a, _), (b, _))| a >= b) {
        return Err("one_order_per_thread: pending inputs out of order".to_owned());
    }
    Ok(())
}

/// Checks what the model sees: results follow directly on the turn that made their calls, each once. Returns the calls of
/// the last turn that have no answer yet.
///
/// # Errors
/// The name of the invariant that does not hold, and where.
pub fn check_view(history: &History) -> Result<BTreeSet<CallId>, String> {
    let mut unanswered = BTreeSet::new();
    for item in history.to_vec() {
        match &**item {
            Item::Result(answer) => {
                if !unanswered.remove(&answer.call) {
                    return Err(format!(
                        "every_call_has_one_result: {} is answered twice or was never made",
                        answer.call
                    ));
                }
            }
            other if !unanswered.is_empty() => {
                return Err(format!("every_call_has_one_result: {unanswered:?} are not answered before {other:?}"));
            }
            Item::Assistant { number, blocks, .. } => {
                let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
                unanswered.extend((0..calls).map(|index| CallId { number: *number, index: index as u16 }));
            }
            Item::User { .. } | Item::Event(_) => {}
        }
    }
    Ok(unanswered)
}
