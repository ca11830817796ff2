//! Children: made, heard, told and closed, through any crash.

use crate::story::{DEPTH_MAX, call, say};
use crate::tree::{ROOT, Tree, close, report, spawn};
use slackwater_core::effect::{Effect, Outcome, Refusal, Shown};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::Record;
use slackwater_core::thread::State;

/// A root that has made a child.
fn family() -> (Tree, ThreadId) {
    let mut tree = Tree::default();
    tree.message(ROOT, "mind the repository");
    let child = tree.spawn(ROOT, "look at the tests", &[]);
    tree.deliver();
    (tree, child)
}

#[test]
fn a_child_inherits_what_the_parent_knew_and_then_knows_where_it_is() {
    let (mut tree, child) = family();
    let view = tree.view(child);
    assert_eq!(view[..2], ["user: mind the repository", "turn: [spawn_thread]"]);
    for said in [&format!("You are the child thread {child}"), &ROOT.to_string(), "look at the tests"] {
        assert!(view[2].contains(said), "{said} in {}", view[2]);
    }
    assert_eq!(view.len(), 3);
    // Both go on, and what one does the other does not see.
    tree.turn(ROOT, vec![say("It is on its way.")]);
    tree.turn(child, vec![say("All green.")]);
    assert_eq!(tree.count(child, "on its way") + tree.count(ROOT, "All green."), 0);
    // The safe point is what the prompt held, even if more has come since.
    tree.message(ROOT, "first");
    let seen = tree.threads[&ROOT].prompt().unwrap().seen;
    tree.message(ROOT, "second, while the model thinks");
    let blocks = vec![spawn("again", &[], false)];
    let interrupted = crate::story::completion(seen, blocks, slackwater_core::record::End::Finished);
    tree.apply(ROOT, interrupted);
    assert!(tree.count(ROOT, "Not started: interrupted") == 1, "a message makes the spawn void, too");
}

#[test]
fn a_fresh_child_sees_its_instructions_only() {
    let mut tree = Tree::default();
    tree.message(ROOT, "a secret");
    tree.turn(ROOT, vec![spawn("count to three", &[], true)]);
    tree.deliver();
    let child = tree.spawned(ROOT);
    let view = tree.view(child);
    assert!(view.len() == 1 && view[0].starts_with("user: count to three You are the child"), "{view:?}");
    assert_eq!(tree.journal[&child][0].arrival.record.base(), None);
    // Its own children inherit from it and not from the root.
    let grandchild = tree.spawn(child, "two", &[child]);
    tree.deliver();
    assert_eq!((tree.count(grandchild, "count to three"), tree.count(grandchild, "a secret")), (1, 0));
}

#[test]
fn who_is_not_where_it_believes_to_be_makes_no_child() {
    let (mut tree, child) = family();
    // The child takes its parent's call for its own.
    tree.turn(child, vec![spawn("look at the tests", &[], false)]);
    assert!(tree.reads(child).contains("You are the child"), "{}", tree.reads(child));
    assert!(tree.reads(child).contains(&format!("[\"{child}\"]")));
    tree.turn(ROOT, vec![spawn("x", &[child], false)]);
    assert!(tree.reads(ROOT).contains("You are the root thread: give []"));
    for arguments in
        ["{}", "not json", r#"{"instructions":" ","child_of":[]}"#, r#"{"instructions":"x","child_of":["?"]}"#]
    {
        tree.turn(ROOT, vec![call("spawn_thread", arguments)]);
        assert!(tree.reads(ROOT).starts_with("refusal"), "{arguments}: {}", tree.reads(ROOT));
    }
    assert_eq!(tree.threads[&ROOT].standing().children, 1);
}

#[test]
fn a_tree_has_a_depth() {
    let mut tree = Tree::default();
    tree.message(ROOT, "down");
    let (mut thread, mut path) = (ROOT, Vec::new());
    for _ in 0..DEPTH_MAX {
        thread = tree.spawn(thread, "further", &path);
        path.push(thread);
        tree.deliver();
    }
    tree.turn(thread, vec![spawn("further", &path, false)]);
    assert!(tree.reads(thread).contains("levels deep"), "{}", tree.reads(thread));
    assert_eq!(tree.count(thread, "user: down"), 1);
    assert!(tree.fold(thread) == tree.threads[&thread]);
}

#[test]
fn a_report_waits_for_the_tools_and_wakes_the_sleeper() {
    let (mut tree, child) = family();
    tree.turn(ROOT, vec![call("build", "{}")]);
    let build = CallId { number: tree.last(ROOT), index: 0 };
    tree.turn(child, vec![report("all green")]);
    tree.turn(child, vec![report("but slow")]);
    tree.deliver();
    assert!(tree.threads[&ROOT].prompt().is_none(), "a report does not interrupt a tool that works");
    tree.crash();
    let tool = crate::story::person();
    tree.apply(ROOT, crate::story::result(build, "built", false, tool));
    let view = tree.view(ROOT);
    assert!(view[view.len() - 3].ends_with("built"), "{view:?}");
    assert!(view[view.len() - 2].starts_with("event of spawn_thread-id: Report of your child"), "{view:?}");
    assert!(view[view.len() - 2].ends_with("all green") && view[view.len() - 1].ends_with("but slow"), "{view:?}");
    tree.turn(ROOT, vec![call("sleep_until_event_or_input", "{}")]);
    assert_eq!(tree.threads[&ROOT].standing().state, State::Sleeping);
    tree.turn(child, vec![report("really")]);
    tree.deliver();
    assert_eq!(tree.threads[&ROOT].standing().state, State::Thinking);
    assert_eq!((tree.count(ROOT, "Woken"), tree.count(ROOT, "really")), (1, 1));
}

#[test]
fn a_message_to_a_child_is_an_event_of_its_own_copy_of_the_call() {
    let (mut tree, child) = family();
    let send = |to: &str| call("send_message_to_child", &format!(r#"{{"thread_id":"{to}","message":"hurry"}}"#));
    tree.turn(ROOT, vec![send(&child.to_string())]);
    tree.deliver();
    assert_eq!(tree.reads(child), "event of spawn_thread-id: Message of your parent:\nhurry");
    tree.turn(ROOT, vec![send("nobody")]);
    assert!(tree.reads(ROOT).contains("no child of yours"));
    tree.turn(child, vec![close(child)]);
    // The parent does not know yet; then the message comes back as not delivered.
    tree.turn(ROOT, vec![send(&child.to_string())]);
    tree.deliver();
    assert!(tree.reads(ROOT).contains("Your message did not reach the thread"), "{}", tree.reads(ROOT));
    tree.turn(ROOT, vec![send(&child.to_string())]);
    assert!(tree.reads(ROOT).contains("is closed"), "{}", tree.reads(ROOT));
    tree.turn(ROOT, vec![call("list_children", "")]);
    assert!(tree.reads(ROOT).contains("no children that are not closed; 1 are closed"), "{}", tree.reads(ROOT));
}

#[test]
fn a_thread_closes_itself_with_all_below_and_nothing_else() {
    let (mut tree, child) = family();
    let grandchild = tree.spawn(child, "deeper", &[child]);
    tree.deliver();
    tree.turn(ROOT, vec![close(ROOT)]);
    assert!(tree.reads(ROOT).contains("root thread, which cannot be closed"));
    tree.turn(ROOT, vec![close(child)]);
    assert!(tree.reads(ROOT).starts_with("refusal"), "{}", tree.reads(ROOT));
    tree.turn(grandchild, vec![call("build", "{}")]);
    tree.asked.clear();
    let last = format!(r#"{{"thread_id":"{child}","report_to_parent":"done"}}"#);
    tree.turn(child, vec![call("build", "{}"), report("almost"), call("close_thread", &last)]);
    let closed = |shown: &&(ThreadId, Shown)| matches!(shown.1, Shown::Closed { .. });
    assert_eq!(
        tree.told.iter().rev().find(closed).unwrap().1,
        Shown::Closed { children: 1, subscriptions: 0, unseen: 0 }
    );
    assert_eq!(tree.asked, [Effect::Close(child)], "a call beside the one that closes is not begun");
    tree.deliver();
    let [_, Effect::Cancel(cancelled), closed] = &tree.asked[..] else { panic!("{:?}", tree.asked) };
    assert_eq!((cancelled.thread, closed), (grandchild, &Effect::Close(grandchild)));
    for thread in [child, grandchild] {
        assert_eq!(tree.threads[&thread].standing().state, State::Closed);
        assert!(tree.threads[&thread].prompt().is_none() && tree.threads[&thread].rest().is_some());
        assert_eq!(tree.threads[&thread].standing().children, 0);
        assert_eq!(tree.message(thread, "hello?"), Outcome::Refused(Refusal::Closed));
    }
    assert_eq!((tree.count(ROOT, "almost"), tree.count(ROOT, "done")), (1, 1));
    assert_eq!(tree.threads[&ROOT].standing().children, 0);
    tree.crash();
    assert!(tree.posts.is_empty(), "nothing is owed");
}

#[test]
fn what_outlives_its_parent_reports_to_the_nearest_living_ancestor() {
    let (mut tree, child) = family();
    let grandchild = tree.spawn(child, "deeper", &[child]);
    tree.deliver();
    tree.turn(child, vec![close(child)]);
    // Before it hears that it is closed, it reports to a parent that is.
    tree.turn(grandchild, vec![report("found it")]);
    tree.deliver();
    assert_eq!(tree.count(ROOT, "Report of a thread below your closed child"), 1, "{:?}", tree.view(ROOT));
    assert_eq!(tree.count(ROOT, "found it"), 1);
    assert_eq!(tree.threads[&grandchild].standing().state, State::Closed);
}

/// At each record of the story the process dies, once or twice: every thread is read again from the journal, what was on its
/// way is lost, and what is owed is sent once more.
#[test]
fn a_child_is_made_heard_and_closed_exactly_once_through_a_crash_at_every_step() {
    let live = |crashes: Vec<usize>| {
        let mut tree = Tree { crashes, ..Tree::default() };
        tree.message(ROOT, "mind the repository");
        let child = tree.spawn(ROOT, "look at the tests", &[]);
        tree.deliver();
        let grandchild = tree.spawn(child, "deeper", &[child]);
        tree.deliver();
        tree.turn(grandchild, vec![report("found it")]);
        tree.deliver();
        let last = format!(r#"{{"thread_id":"{child}","report_to_parent":"done"}}"#);
        tree.turn(child, vec![call("close_thread", &last)]);
        tree.deliver();
        assert_eq!(tree.journal.len(), 3, "no child is made twice");
        assert_eq!((tree.count(child, "found it"), tree.count(ROOT, "done")), (1, 1));
        assert_eq!(tree.threads[&grandchild].standing().state, State::Closed);
        assert_eq!(tree.threads[&ROOT].standing().children, 0);
        tree.crash();
        assert!(tree.posts.is_empty(), "nothing is owed any more");
        tree.records
    };
    let records = live(vec![]);
    let mut lives = 0;
    for first in 1..=records {
        for second in first..=records + 4 {
            live(vec![first, second]);
            lives += 1;
        }
    }
    eprintln!("spawn, report and close: {records} records, {lives} lives with one or two crashes");
    assert!(records >= 14, "{records}");
}

/// Posts of several threads meet in any order; each sender's own order stays.
#[test]
fn in_every_order_of_arrival_each_report_comes_once() {
    let orders = 4_u32.pow(5);
    for order in 0..orders {
        let (mut tree, child) = family();
        let other = tree.spawn(ROOT, "the other", &[]);
        tree.deliver();
        tree.turn(ROOT, vec![call("build", "{}")]);
        tree.turn(child, vec![report("one")]);
        tree.turn(other, vec![report("two")]);
        tree.turn(child, vec![close(child)]);
        let mut choices = order;
        while !tree.posts.is_empty() {
            // The first post of some sender, or a crash.
            match choices % 4 {
                3 => tree.crash(),
                nth => {
                    let sender = |post: &slackwater_core::record::Arrival| match &post.record {
                        Record::Post(post) => post.id.from,
                        _ => ROOT,
                    };
                    let mut senders: Vec<ThreadId> = tree.posts.iter().map(sender).collect();
                    senders.sort_unstable();
                    senders.dedup();
                    let from = senders[nth as usize % senders.len()];
                    let at = tree.posts.iter().position(|post| sender(post) == from).unwrap();
                    let post = tree.posts.remove(at).unwrap();
                    tree.apply(post.thread, post.record);
                }
            }
            choices /= 4;
        }
        assert_eq!((tree.count(ROOT, "\none"), tree.count(ROOT, "\ntwo")), (1, 1), "order {order}");
        assert_eq!(tree.threads[&ROOT].standing().children, 1);
    }
    eprintln!("two reports to a parent with an open call: {orders} orders with crashes");
}

/// A tree of 10,000 children of a parent of 50 KB: the parent's bytes are there once.
#[test]
fn a_child_costs_its_own_records() {
    let mut tree = Tree::default();
    tree.message(ROOT, &"x".repeat(50_000));
    let bytes = |tree: &Tree| -> usize {
        tree.journal.values().flatten().map(|record| serde_json::to_vec(&record.arrival.record).unwrap().len()).sum()
    };
    let before = bytes(&tree);
    let mut children = 0;
    while children < 10_000 {
        tree.turn(ROOT, (0..16).map(|_| spawn("look at one of the tests", &[], false)).collect());
        let births: Vec<_> = tree.posts.drain(..).collect();
        for birth in births {
            // Only its record: what it inherits would be folded for each.
            let (id, record) = (birth.thread, birth.record);
            let Record::Post(post) = &record else { panic!("a birth is a post") };
            let receipt = post.receipt(birth.at_ms, None);
            let arrival = slackwater_core::record::Arrival { ticket: None, thread: id, at_ms: 1, record };
            let records = tree.journal.entry(id).or_default();
            records.push(slackwater_core::record::Committed { number: 1, arrival });
            let number = tree.last(ROOT) + 1;
            let delivered = slackwater_core::record::Committed { number, arrival: receipt };
            tree.journal.get_mut(&ROOT).unwrap().push(delivered.clone());
            tree.threads.get_mut(&ROOT).unwrap().apply(delivered);
            children += 1;
        }
    }
    let each = (bytes(&tree) - before) / children;
    eprintln!("{children} children of a parent of 50 KB: {each} bytes of records each, as JSON");
    assert!(each <= 1_024, "{each} bytes a child");
    let (child, _) = tree.journal.iter().find(|(id, _)| **id != ROOT).unwrap();
    let child = tree.fold(*child);
    assert!(
        matches!(&**child.history().to_vec()[0], Item::User { number: 1, content } if content[0].byte_length() == 50_000)
    );
}
