//! The accounts of a world: what it has open, and what stands in the history at the end.
//!
//! In: a world in the middle of a life or at its end. Out: nothing, or where the fold's accounts are others. Always: what was
//! accepted is found again.

use crate::story::replay;
use crate::world::World;
use slackwater_core::effect::Effect;
use slackwater_core::history::Item;
use slackwater_core::id::CallId;
use slackwater_core::port::NEVER;
use std::collections::BTreeSet;

impl World {
    /// How far the model's view reaches: by the pieces that can only grow.
    pub(crate) fn view(&self) -> (usize, usize, Option<usize>) {
        let standing = self.thread.standing();
        (standing.items, standing.pending, self.thread.prompt().map(|prompt| prompt.history.len()))
    }

    /// The process dies: prompts under way end, and what the fold still owes is asked again, under the same names.
    pub(crate) fn crash(&mut self) {
        let thread = replay(&self.records);
        assert!(thread == self.thread, "apply_is_deterministic: a replay gives another thread");
        self.thread = thread;
        self.prompt = None;
        self.rewritten = false;
    }

    /// What the fold says is owed is what the world has open; and the thread may rest exactly when that is nothing.
    pub(crate) fn compare(&self) {
        let owed: BTreeSet<CallId> = self
            .thread
            .owed()
            .iter()
            .filter_map(|effect| match effect {
                Effect::Dispatch(dispatch) => Some(dispatch.call),
                Effect::Arm { call, .. } => Some(*call),
                Effect::Respond(respond) => Some(respond.call),
                Effect::Post(_) => None,
                other => panic!("{other:?} is not owed"),
            })
            .collect();
        let waiting = self.asked.iter().filter(|(_, accepted)| !**accepted).map(|(id, _)| *id);
        let open: BTreeSet<CallId> =
            waiting.clone().chain(self.timers.keys().copied()).chain(self.responding.keys().copied()).collect();
        assert_eq!(owed, open);
        let unarmed = self.timers.values().any(Option::is_none);
        let unborn = self.summarizer.as_ref().is_some_and(|(_, _, born)| !born);
        let in_flight =
            self.thread.prompt().is_some() || waiting.count() > 0 || unarmed || unborn || !self.responding.is_empty();
        assert_eq!(self.thread.rest().is_none(), in_flight);
        let mut timers = self.timers.iter().map(|(id, due)| (*id, due.unwrap_or_default())).collect::<Vec<_>>();
        // What tools have taken over is named, too.
        timers.extend(self.asked.iter().filter(|(_, accepted)| **accepted).map(|(id, _)| (*id, NEVER)));
        timers.sort_unstable();
        assert!(self.thread.rest().is_none_or(|rest| rest.timers == timers && rest.through == self.thread.last()));
    }

    /// Nothing accepted was dropped: every message and every late result stands in the history once, in order.
    pub(crate) fn all_is_answered(&self) {
        assert_eq!(self.thread.standing().pending, 0, "the model has seen everything");
        assert!(self.held.is_empty(), "what was held is done, denied or withdrawn");
        let items = self.thread.history().to_vec();
        let users =
            items.iter().filter_map(|item| if let Item::User { number, .. } = &***item { Some(*number) } else { None });
        let mut covered = self.covered.0.clone();
        covered.sort_unstable();
        assert_eq!(covered.into_iter().chain(users).collect::<Vec<_>>(), self.messages);
        let events = items.iter().filter(|item| matches!(&****item, Item::Event(_))).count();
        assert_eq!(self.covered.1 + events, self.events);
    }
}
