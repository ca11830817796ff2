//! Subscriptions and their events: in a child each, inline, or gathered.

use crate::story::{EVENT_CHILDREN_MAX, EVENTS_QUEUED_MAX, SUBSCRIPTIONS_MAX, call, say};
use crate::tree::{ROOT, Tree, close, report};
use slackwater_core::effect::{Due, Effect, Outcome, Refusal};
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::{Deliver, Record};
use slackwater_core::thread::State;

/// A root that watches something and has said all it wanted.
fn watching() -> (Tree, CallId) {
    let mut tree = Tree::default();
    tree.message(ROOT, "watch the pull requests");
    let watch = tree.subscribe(ROOT);
    tree.turn(ROOT, vec![say("I watch.")]);
    (tree, watch)
}

#[test]
fn an_event_has_a_child_of_its_own_and_the_parent_sees_nothing_until_it_reports() {
    let (mut tree, watch) = watching();
    let before = tree.view(ROOT);
    assert!(matches!(tree.event(ROOT, watch, "a", None, false), Outcome::Taken(_)));
    tree.deliver();
    let child = tree.spawned(ROOT);
    assert_eq!(tree.view(ROOT), before);
    let view = tree.view(child);
    assert_eq!(view[..4], before[..4], "it knows what the parent knew");
    assert_eq!(view[4], "turn: [spawn_thread]");
    assert!(view[5].contains("made for one event") && view[5].contains(&child.to_string()), "{}", view[5]);
    assert_eq!(view[6..], ["event of watch-id: event a"]);
    tree.turn(child, vec![report("it matters")]);
    tree.deliver();
    assert!(tree.reads(ROOT).starts_with("event of watch-id: Report of your child"), "{}", tree.reads(ROOT));
    // Closing without a report is silent.
    tree.turn(ROOT, vec![say("Good.")]);
    let before = tree.view(ROOT);
    tree.event(ROOT, watch, "b", None, false);
    tree.deliver();
    let second = tree.spawned(ROOT);
    tree.turn(second, vec![close(second)]);
    tree.deliver();
    assert_eq!(tree.view(ROOT), before);
}

#[test]
fn the_same_event_is_taken_once_and_an_ended_subscription_takes_none() {
    let (mut tree, watch) = watching();
    let Outcome::Taken(number) = tree.event(ROOT, watch, "a", Some(Deliver::Inline), false) else { panic!() };
    assert_eq!(tree.event(ROOT, watch, "a", Some(Deliver::Inline), false), Outcome::Duplicate(number), "same_id_once");
    let nobody = CallId { number: 1, index: 0 };
    assert_eq!(tree.event(ROOT, nobody, "a", None, false), Outcome::Refused(Refusal::NoSuchSubscription));
    assert!(matches!(tree.event(ROOT, watch, "z", Some(Deliver::Inline), true), Outcome::Taken(_)));
    assert_eq!(tree.event(ROOT, watch, "b", None, false), Outcome::Refused(Refusal::SubscriptionEnded));
    assert_eq!(tree.event(ROOT, watch, "a", None, false), Outcome::Duplicate(number), "a late repeat is no new event");
    assert_eq!((tree.count(ROOT, "event a"), tree.count(ROOT, "event z")), (1, 1));
    // A call that is merely answered is no subscription.
    tree.turn(ROOT, vec![call("build", "{}")]);
    let build = CallId { number: tree.last(ROOT), index: 0 };
    tree.apply(ROOT, crate::story::result(build, "built", false, crate::story::person()));
    assert_eq!(tree.event(ROOT, build, "a", None, false), Outcome::Refused(Refusal::NoSuchSubscription));
}

/// Cases of unrelated events while a call is open: the call is not asked for again, and nothing interrupts it.
#[test]
fn events_beside_an_open_call_wait_for_it_and_do_not_repeat_it() {
    let (mut tree, watch) = watching();
    tree.message(ROOT, "build");
    tree.turn(ROOT, vec![call("build", "{}")]);
    let build = CallId { number: tree.last(ROOT), index: 0 };
    let dispatches = |tree: &Tree| tree.asked.iter().filter(|asked| matches!(asked, Effect::Dispatch(_))).count();
    let before = dispatches(&tree);
    for id in 0..100 {
        tree.event(ROOT, watch, &id.to_string(), Some(Deliver::Inline), false);
    }
    assert_eq!(dispatches(&tree), before, "the effect of an open call happens once");
    assert_eq!(tree.threads[&ROOT].standing().state, State::Working);
    // An event child starts before the turn whose call is open.
    tree.event(ROOT, watch, "for a child", None, false);
    tree.deliver();
    let child = tree.spawned(ROOT);
    assert_eq!((tree.count(child, "[build]"), tree.count(child, "user: build")), (0, 1));
    tree.crash();
    tree.apply(ROOT, crate::story::result(build, "built", false, crate::story::person()));
    let view = tree.view(ROOT);
    let at = view.iter().position(|line| line.ends_with("built")).unwrap();
    let events: Vec<String> = (0..100).map(|id| format!("event of watch-id: event {id}")).collect();
    assert_eq!(view[at + 1..], events, "deferred, in the order of arrival");
}

#[test]
fn a_flood_is_handled_by_a_few_children_at_a_time_in_order() {
    let (mut tree, watch) = watching();
    let flood = EVENT_CHILDREN_MAX + EVENTS_QUEUED_MAX;
    for id in 0..flood {
        assert!(matches!(tree.event(ROOT, watch, &id.to_string(), None, false), Outcome::Taken(_)), "{id}");
    }
    assert_eq!(tree.event(ROOT, watch, "more", None, false), Outcome::Refused(Refusal::QueueFull));
    tree.deliver();
    assert_eq!(tree.journal.len(), 1 + EVENT_CHILDREN_MAX);
    tree.crash();
    let mut handled = Vec::new();
    while handled.len() < 30 {
        let next = |(id, thread): (&ThreadId, &slackwater_core::thread::Thread)| {
            (*id != ROOT && thread.prompt().is_some()).then_some(*id)
        };
        let child = tree.threads.iter().find_map(next).unwrap();
        handled.push(tree.reads(child));
        tree.turn(child, vec![close(child)]);
        tree.deliver();
        assert_eq!(tree.threads[&ROOT].standing().children, EVENT_CHILDREN_MAX);
    }
    handled.sort_by_key(|line| line.rsplit(' ').next().unwrap().parse::<u32>().unwrap());
    handled.dedup();
    assert_eq!(handled.len(), 30, "each event is handled once");
    // Cancelled: those that wait are dropped, and it is said how many.
    tree.message(ROOT, "enough");
    tree.turn(ROOT, vec![call("cancel_subscription", r#"{"tool_call_id":"watch-id"}"#)]);
    assert!(tree.reads(ROOT).contains("that waited for their turn are dropped"), "{}", tree.reads(ROOT));
    assert!(matches!(tree.asked.last(), Some(Effect::Cancel(dispatch)) if dispatch.call == watch));
    assert_eq!(tree.event(ROOT, watch, "late", None, false), Outcome::Refused(Refusal::SubscriptionEnded));
    tree.turn(ROOT, vec![call("cancel_subscription", r#"{"tool_call_id":"watch-id"}"#)]);
    assert!(tree.reads(ROOT).starts_with("refusal"), "{}", tree.reads(ROOT));
}

#[test]
fn an_inline_event_wakes_a_sleeper_and_a_childs_does_not() {
    let (mut tree, watch) = watching();
    tree.message(ROOT, "sleep");
    tree.turn(ROOT, vec![call("sleep_until_event_or_input", "{}")]);
    tree.event(ROOT, watch, "a", None, false);
    tree.deliver();
    assert_eq!(tree.threads[&ROOT].standing().state, State::Sleeping);
    tree.event(ROOT, watch, "b", Some(Deliver::Inline), false);
    assert_eq!(tree.threads[&ROOT].standing().state, State::Thinking);
    assert_eq!(tree.reads(ROOT), "event of watch-id: event b");
}

#[test]
fn a_digest_gathers_by_count_or_by_time() {
    let (mut tree, watch) = watching();
    let digest = Some(Deliver::Digest { count: 3, wait_ms: 60_000 });
    tree.event(ROOT, watch, "a", digest, false);
    let due = 1_000 * tree.last(ROOT) + 60_000;
    assert_eq!(tree.asked.last(), Some(&Effect::Arm { thread: ROOT, call: watch, due: Due::At(due) }));
    assert_eq!(tree.threads[&ROOT].rest().unwrap().timers, [(watch, due)], "a digest is durable");
    tree.event(ROOT, watch, "b", digest, false);
    tree.crash();
    assert_eq!(tree.count(ROOT, "event a"), 0);
    tree.event(ROOT, watch, "c", digest, false);
    assert_eq!(tree.reads(ROOT), "event of watch-id: 3 events: event a event b event c");
    assert_eq!(tree.asked.last(), Some(&Effect::Disarm { thread: ROOT, call: watch }));
    tree.turn(ROOT, vec![say("Seen.")]);
    tree.event(ROOT, watch, "d", digest, false);
    tree.apply(ROOT, Record::Fired(watch));
    assert_eq!(tree.reads(ROOT), "event of watch-id: 1 events: event d");
    tree.turn(ROOT, vec![say("Seen.")]);
    tree.apply(ROOT, Record::Fired(watch));
    tree.event(ROOT, watch, "e", digest, true);
    assert_eq!(tree.reads(ROOT), "event of watch-id: 1 events: event e", "the last one waits for no others");
}

#[test]
fn subscriptions_are_bounded_and_end_with_their_thread() {
    let mut tree = Tree::default();
    tree.message(ROOT, "watch");
    let child = tree.spawn(ROOT, "watch everything", &[]);
    tree.deliver();
    let watches: Vec<CallId> = (0..SUBSCRIPTIONS_MAX).map(|_| tree.subscribe(child)).collect();
    let one_more = tree.subscribe(child);
    assert!(tree.reads(child).contains("has cancelled this subscription"), "{}", tree.reads(child));
    assert!(matches!(tree.asked.last(), Some(Effect::Cancel(dispatch)) if dispatch.call == one_more));
    assert_eq!(tree.event(child, one_more, "a", None, false), Outcome::Refused(Refusal::NoSuchSubscription));
    tree.asked.clear();
    tree.turn(child, vec![close(child)]);
    assert!(tree.reads(child).contains(&format!("{SUBSCRIPTIONS_MAX} subscriptions")), "{}", tree.reads(child));
    assert_eq!(tree.asked.len(), SUBSCRIPTIONS_MAX + 1, "each tool is told, and all that the thread has closed");
    assert_eq!(tree.event(child, watches[0], "a", None, false), Outcome::Refused(Refusal::Closed));
}
