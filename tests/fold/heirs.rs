//! Summaries in trees: reports, open calls and what children inherit, when their threads are summarized in the middle.

use crate::compact::{by_hand, tool_result};
use crate::story::{call, say};
use crate::tree::{ROOT, Tree, report};
use slackwater_core::effect::Wait;
use slackwater_core::history::Item;
use slackwater_core::id::CallId;

/// Cases 20 and 22: reports and open calls of trees whose threads are all compacted.
#[test]
fn a_deep_child_with_an_open_call_is_compacted_and_its_report_arrives_once_and_whole() {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..4);
    let mut path = vec![];
    let mut at = ROOT;
    for depth in 1..=3 {
        if depth == 1 {
            tree.message(ROOT, "have it looked at");
        }
        at = tree.spawn(at, &format!("level {depth}"), &path);
        path.push(at);
        tree.deliver();
        tree.turn(at, vec![say("I begin.")]);
        tree.talk(at, 10 * depth..10 * depth + 4);
        tree.message(at, "go down");
    }
    let deep = at;
    tree.turn(deep, vec![call("build", "{}")]);
    let build = CallId { number: tree.last(deep), index: 0 };
    for (index, id) in [ROOT, path[0], path[1], deep].into_iter().enumerate() {
        tree.apply(id, by_hand("x"));
        tree.summarize(id, &format!("summary of level {index}"));
        assert_eq!(tree.view(id)[0], format!("summary: summary of level {index}"));
    }
    let history = tree.threads[&deep].history().to_vec();
    let Item::Summary(summary) = &**history[0] else { panic!("a summary is first") };
    let place = summary.place.as_ref().unwrap();
    for said in [&format!("You are the child thread {deep}"), "Your task is this: level 3", &path[0].to_string()] {
        assert!(place.contains(said), "{said} in {place}");
    }
    assert!(
        matches!(tree.threads[&deep].standing().waits[..], [Wait::Call { call, .. }] if call == build),
        "the call is still open"
    );
    tree.apply(deep, tool_result(build, "built"));
    assert_eq!(tree.reads(deep), format!("tool {build}: built"));
    let words = format!("all green {}", "y".repeat(10_000));
    tree.turn(deep, vec![report(&words)]);
    // The parent is compacted once more between the report's sending and its arrival.
    tree.apply(path[1], by_hand("y"));
    let crash = tree.records + 1;
    tree.crashes = vec![crash];
    tree.deliver();
    assert_eq!(tree.count(path[1], &words), 1, "one, full report");
    for &id in tree.journal.keys() {
        assert!(tree.fold(id) == tree.threads[&id], "apply_is_deterministic");
    }
}

#[test]
fn children_keep_what_they_inherited_before_a_summary() {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..4);
    tree.message(ROOT, "watch");
    let watch = tree.subscribe(ROOT);
    tree.turn(ROOT, vec![call("build", "{}"), crate::tree::spawn("look", &[], false)]);
    let build = CallId { number: tree.last(ROOT), index: 0 };
    let child = tree.spawned(ROOT);
    // The summary is there before the child is: what it inherits was said by its parent before.
    tree.apply(ROOT, by_hand("a"));
    let birth = tree.posts.pop_front().unwrap();
    tree.summarize(ROOT, "they talked");
    tree.posts.push_back(birth);
    tree.deliver();
    assert_eq!(tree.view(ROOT)[0], "summary: they talked");
    assert!(tree.view(child)[0].starts_with("user: question 0"), "{:?}", tree.view(child));
    // While the call is open, an event's child begins where no call was open: before the summary.
    tree.event(ROOT, watch, "e1", None, false);
    tree.deliver();
    let handler = tree.spawned(ROOT);
    assert!(tree.view(handler)[0].starts_with("user: question 0") && tree.reads(handler).ends_with("event e1"));
    tree.apply(ROOT, tool_result(build, "built"));
    tree.turn(ROOT, vec![say("done")]);
    tree.event(ROOT, watch, "e2", None, false);
    tree.deliver();
    let handler = tree.spawned(ROOT);
    assert!(tree.view(handler)[0] == "summary: they talked" && tree.reads(handler).ends_with("event e2"));
    // Nobody who makes a summary is counted or named.
    assert_eq!(tree.threads[&ROOT].standing().children, 3);
    for &id in tree.journal.keys() {
        assert!(tree.fold(id) == tree.threads[&id], "apply_is_deterministic");
    }
}
