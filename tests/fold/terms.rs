//! Terms: a child's own model, tools and budget.

use crate::story::{call, say};
use crate::tree::{ROOT, Tree, report};
use slackwater_core::id::ThreadId;
use slackwater_core::record::{Block, Completion, End, Record, Terms, Usage};
use slackwater_core::thread::State;

/// A `spawn_thread` for one who is at this path, with these terms in JSON.
fn spawn(path: &[ThreadId], terms: &str) -> Block {
    let path: Vec<String> = path.iter().map(|id| format!("\"{id}\"")).collect();
    call("spawn_thread", &format!(r#"{{"instructions":"look","child_of":[{}]{terms}}}"#, path.join(",")))
}

/// A child of the root with these terms.
fn child(terms: &str) -> (Tree, ThreadId) {
    let mut tree = Tree::default();
    tree.message(ROOT, "mind the repository");
    tree.turn(ROOT, vec![spawn(&[], terms)]);
    let child = tree.spawned(ROOT);
    tree.deliver();
    (tree, child)
}

/// A turn that costs so many tokens.
fn costly(tree: &mut Tree, thread: ThreadId, tokens: u64, blocks: Vec<Block>) {
    let seen = tree.threads[&thread].prompt().expect("the thread wants an answer").seen;
    let usage = Usage { input_tokens: tokens - 1, output_tokens: 1, cached_tokens: 0 };
    tree.apply(
        thread,
        Record::Completion(Completion { seen, blocks, end: End::Finished, usage, model: "scripted".into() }),
    );
}

fn terms(tree: &Tree, thread: ThreadId) -> Terms {
    tree.threads[&thread].prompt().expect("the thread wants an answer").terms
}

#[test]
fn a_child_has_the_model_and_the_tools_that_were_asked_for_it() {
    let (mut tree, child) = child(r#","model":"small","tools":["read","grep"]"#);
    let own =
        Terms { model: Some("small".into()), tools: Some(vec!["read".into(), "grep".into()]), budget_tokens: None };
    assert_eq!(terms(&tree, child), own);
    assert_eq!(terms(&tree, ROOT), Terms::default());
    tree.turn(child, vec![call("write", "{}"), call("read", "{}"), call("list_children", "{}")]);
    assert_eq!(tree.count(child, "You were not given the tool write. Yours are: read, grep."), 1);
    assert_eq!(tree.threads[&child].standing().waits.len(), 1, "read is done");
}

#[test]
fn what_is_not_said_is_inherited_and_never_widened() {
    let (mut tree, child) = child(r#","model":"small","tools":["read","grep"]"#);
    tree.turn(child, vec![spawn(&[child], r#","tools":["read","write"]"#)]);
    assert!(tree.reads(child).contains("You have no tool write yourself"), "{}", tree.reads(child));
    tree.turn(child, vec![spawn(&[child], r#","tools":["read"]"#)]);
    let below = tree.spawned(child);
    tree.deliver();
    let some = Terms { model: Some("small".into()), tools: Some(vec!["read".into()]), budget_tokens: None };
    assert_eq!(terms(&tree, below), some);
    tree.turn(below, vec![spawn(&[child, below], "")]);
    let lowest = tree.spawned(below);
    tree.deliver();
    assert_eq!(terms(&tree, lowest), some);
}

#[test]
fn who_has_spent_its_budget_is_closed_and_its_parent_told_once() {
    for crash in 0..9 {
        let (mut tree, child) = child(r#","budget_tokens":100"#);
        tree.turn(ROOT, vec![say("It is on its way.")]);
        tree.crashes = vec![tree.records + crash];
        costly(&mut tree, child, 60, vec![call("read", "{}")]);
        let read = slackwater_core::id::CallId { number: tree.last(child), index: 0 };
        tree.apply(child, crate::story::result(read, "text", false, crate::story::person()));
        let last = vec![say("I have half of it."), call("read", "{}"), report("half"), call("spawn_thread", "{}")];
        costly(&mut tree, child, 40, last);
        tree.deliver();
        assert_eq!(tree.threads[&child].standing().state, State::Closed);
        assert_eq!(tree.count(child, "Not started: the budget of 100 tokens is spent"), 2);
        assert_eq!(tree.count(ROOT, "half"), 2, "a last report is sent, and the runtime's own");
        assert_eq!(tree.count(ROOT, "the budget of 100 tokens is spent (100 were used). The thread is closed. Its last words: I have half of it."), 1);
    }
}

#[test]
fn a_budget_is_divided_and_not_multiplied() {
    let (mut tree, child) = child(r#","budget_tokens":100"#);
    tree.turn(child, vec![spawn(&[child], "")]);
    assert!(tree.reads(child).contains("100 tokens are left: give the child a part"), "{}", tree.reads(child));
    tree.turn(child, vec![spawn(&[child], r#","budget_tokens":100"#)]);
    assert!(tree.reads(child).contains("cannot have 100 of them"), "{}", tree.reads(child));
    tree.turn(child, vec![spawn(&[child], r#","budget_tokens":70"#)]);
    tree.deliver();
    costly(&mut tree, child, 29, vec![say("one"), call("read", "{}")]);
    assert_eq!(tree.threads[&child].standing().state, State::Working);
    // An event costs the thread itself: a budget is the model's to divide.
    let mut fresh = self::child(r#","budget_tokens":100"#);
    let watch = fresh.0.subscribe(fresh.1);
    fresh.0.event(fresh.1, watch, "a", None, false);
    assert_eq!(fresh.0.threads[&fresh.1].standing().children, 0);
    assert_eq!(fresh.0.count(fresh.1, "event a"), 1);
}

#[test]
fn wrong_terms_are_refused_with_words() {
    let (mut tree, _) = child("");
    for (wrong, words) in [
        (r#","budget_tokens":0"#, "nonzero"),
        (r#","budget_tokens":"much""#, "invalid type"),
        (r#","tools":"all""#, "invalid type"),
        (r#","model":7"#, "invalid type"),
    ] {
        tree.turn(ROOT, vec![spawn(&[], wrong)]);
        let said = tree.reads(ROOT);
        assert!(said.contains("The arguments of spawn_thread are wrong") && said.contains(words), "{said}");
    }
    assert_eq!(tree.threads[&ROOT].standing().children, 1);
    // The story is replayed to the same threads.
    let again = tree.fold(ROOT);
    assert!(again == tree.threads[&ROOT]);
}
