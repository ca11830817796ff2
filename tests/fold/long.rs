//! What is too long to be shown: its ends, a handle, and all of it on request.

use crate::compact::by_hand;
use crate::story::{call, result, say};
use crate::tree::{ROOT, Tree, report};
use slackwater_core::effect::Shown;
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::record::{Content, Deliver, Origin, Proof, Record, ToolResult};
use slackwater_core::thread::{READ_BYTES_MAX, RESULT_SHOWN_BYTES_MAX};

fn tool() -> Origin {
    Origin { who: "tool:build".into(), proof: Proof::Capability }
}

/// Lines with their numbers, about so many bytes of them, with letters of several bytes.
fn lines(bytes: usize) -> String {
    let mut text = String::new();
    for number in 0.. {
        if text.len() > bytes {
            break;
        }
        text.push_str(&format!("{number}: größer als 日本\n"));
    }
    text
}

/// A root that has called a tool and has this result.
fn answered(text: &str) -> (Tree, CallId) {
    let mut tree = Tree::default();
    tree.message(ROOT, "build");
    tree.turn(ROOT, vec![call("build", "{}")]);
    let build = CallId { number: 2, index: 0 };
    tree.apply(ROOT, result(build, text, false, tool()));
    (tree, build)
}

fn read(tree: &mut Tree, thread: ThreadId, handle: &str, offset: usize, length: usize) -> String {
    let arguments = format!(r#"{{"handle":"{handle}","offset":{offset},"length":{length}}}"#);
    tree.turn(thread, vec![call("read_result", &arguments)]);
    tree.reads(thread)
}

#[test]
fn a_long_result_is_shown_by_its_ends_and_read_in_parts() {
    let whole = lines(200_000);
    let (mut tree, build) = answered(&whole);
    let view = tree.reads(ROOT);
    assert!(view.len() < RESULT_SHOWN_BYTES_MAX, "{}", view.len());
    assert!(view.starts_with(&format!("tool {build}: 0: größer")) && view.ends_with(&whole[whole.len() - 1_000..]));
    assert!(view.contains("read them with read_result, handle result_2_0, from offset 1638"), "{view}");
    // Clients are shown all of it, and so says the record.
    let shown = tree.told.iter().find_map(|(_, shown)| match shown {
        Shown::Result(item) => Some(item.clone()),
        _ => None,
    });
    let Item::Result(answer) = &*shown.unwrap() else { panic!("a result") };
    assert_eq!(answer.content, [Content::Text(whole.clone())]);
    // Piece by piece, as it says, it is the whole.
    let (mut read_so_far, mut offset) = (String::new(), 0);
    loop {
        let part = read(&mut tree, ROOT, "result_2_0", offset, usize::MAX >> 8);
        let (head, text) = part.split_once('\n').unwrap();
        assert!(text.len() <= READ_BYTES_MAX);
        read_so_far.push_str(text);
        match head.split_once("go on with offset ") {
            Some((_, next)) => offset = next.trim_end_matches(']').parse().unwrap(),
            None => break,
        }
    }
    assert_eq!(read_so_far, whole);
}

#[test]
fn a_part_never_splits_a_character_and_what_cannot_be_read_is_said() {
    let (mut tree, _) = answered(&"日".repeat(20_000));
    assert!(read(&mut tree, ROOT, "result_2_0", 1, 1).ends_with("\n日"), "at least one character");
    assert!(
        read(&mut tree, ROOT, "result_2_0", 59_999, 100).ends_with("[Bytes 59997 to 60000 of 60000 of result_2_0]\n日")
    );
    tree.turn(ROOT, vec![call("list_children", "{}")]);
    for (arguments, said) in [
        (r#"{"handle":"result_2_0","offset":60000}"#, "result_2_0 has 60000 bytes: there is nothing at 60000"),
        (r#"{"handle":"result_9_9"}"#, "There is no result_9_9 to read"),
        (r#"{"handle":"result_2_0","length":0}"#, "A length of 0 reads nothing"),
        (r#"{"handle":"result_2_0","offset":-1}"#, "The arguments of read_result are wrong"),
        ("{}", "The arguments of read_result are wrong"),
    ] {
        tree.turn(ROOT, vec![call("read_result", arguments)]);
        assert!(tree.reads(ROOT).starts_with("refusal") && tree.reads(ROOT).contains(said), "{}", tree.reads(ROOT));
        tree.turn(ROOT, vec![call("list_children", "{}")]);
    }
}

#[test]
fn what_just_fits_is_not_touched() {
    for (length, is_cut) in [(RESULT_SHOWN_BYTES_MAX, false), (RESULT_SHOWN_BYTES_MAX + 1, true)] {
        let (tree, _) = answered(&"x".repeat(length));
        assert_eq!(tree.reads(ROOT).contains("read_result"), is_cut, "{length}");
    }
}

#[test]
fn pictures_are_whole_or_named() {
    let mut tree = Tree::default();
    tree.message(ROOT, "draw");
    tree.turn(ROOT, vec![call("draw", "{}")]);
    let image = |length| Content::Image { media_type: "image/png".into(), data: "A".repeat(length) };
    let file = Content::File { name: "log.txt".into(), media_type: "text/plain".into(), data: "A".repeat(50_000) };
    let text = |text: String| Content::Text(text);
    let content = vec![text("x".repeat(40_000)), image(4_000_000), image(6_000_000), text("y".into()), file];
    let drawn = ToolResult {
        call: CallId { number: 2, index: 0 },
        origin: tool(),
        content,
        is_error: false,
        subscription: false,
        display: None,
    };
    tree.apply(ROOT, Record::Result(drawn));
    let history = tree.threads[&ROOT].history().clone();
    let Some(Item::Result(answer)) = history.newest_first().next().map(|item| &**item) else { panic!("a result") };
    let [Content::Text(ends), kept, Content::Text(named), Content::Text(file)] = &answer.content[..] else {
        panic!("{}", answer.content.len())
    };
    assert!(ends.ends_with("xxx\ny") && *kept == image(4_000_000));
    assert_eq!(
        file,
        "[The file log.txt (text/plain) of 50000 bytes in base64 was here, which is too large to be shown.]"
    );
    assert_eq!(named, "[A picture (image/png) of 6000000 bytes in base64 was here, which is too large to be shown.]");
}

#[test]
fn children_read_what_their_ancestors_left_out_also_after_a_summary() {
    let whole = lines(200_000);
    let (mut tree, _) = answered(&whole);
    tree.turn(ROOT, vec![say("long")]);
    tree.talk(ROOT, 0..10);
    tree.apply(ROOT, by_hand("a"));
    tree.summarize(ROOT, "a build, with result_2_0");
    tree.message(ROOT, "have it read");
    let child = tree.spawn(ROOT, "read it", &[]);
    tree.deliver();
    for thread in [ROOT, child] {
        assert_eq!(tree.count(thread, "größer"), 0, "the result is covered");
        assert!(read(&mut tree, thread, "result_2_0", 100_000, 3_000).contains("größer"));
    }
    // The child's own has a name of its own, though its record has the same number.
    tree.turn(child, vec![call("build", "{}")]);
    let own = CallId { number: tree.last(child), index: 0 };
    tree.apply(child, result(own, &"own ".repeat(20_000), false, tool()));
    let handle = format!("result_1_{}_{}", own.number, own.index);
    assert!(tree.reads(child).contains(&format!("handle {handle}, from")));
    assert!(read(&mut tree, child, &handle, 40_000, 8).ends_with("\nown own "));
    // A thread that comes back from its records can read it, too.
    assert!(tree.fold(child) == tree.threads[&child]);
}

#[test]
fn long_events_and_reports_are_shown_by_their_ends_and_told_whole() {
    let mut tree = Tree::default();
    tree.message(ROOT, "watch");
    let watch = tree.subscribe(ROOT);
    tree.turn(ROOT, vec![say("I watch.")]);
    let event = |deliver| {
        Record::Event(slackwater_core::record::SubscriptionEvent {
            subscription: watch,
            id: slackwater_core::id::InputId(format!("{deliver:?}")),
            origin: tool(),
            content: vec![Content::Text(lines(100_000))],
            associative: false,
            last: false,
            deliver,
        })
    };
    tree.apply(ROOT, event(Some(Deliver::Inline)));
    let handle = format!("result_{}_0", tree.last(ROOT));
    assert!(tree.reads(ROOT).len() < RESULT_SHOWN_BYTES_MAX && tree.reads(ROOT).contains(&handle));
    assert!(read(&mut tree, ROOT, &handle, 50_000, 100).contains("größer"));
    tree.turn(ROOT, vec![say("well")]);
    // In a child of its own it is the child's to read.
    tree.apply(ROOT, event(None));
    tree.deliver();
    let child = tree.spawned(ROOT);
    assert!(tree.reads(child).contains("handle result_1_1_1, from"), "{}", tree.reads(child));
    assert!(read(&mut tree, child, "result_1_1_1", 50_000, 100).contains("größer"));
    tree.turn(child, vec![report(&"r".repeat(50_000))]);
    tree.deliver();
    assert!(tree.reads(ROOT).contains("left out here"));
    let whole = tree.told.iter().any(|(_, shown)| match shown {
        Shown::Report { item, .. } => matches!(&**item, Item::Event(event) if event.content[0].byte_length() > 50_000),
        _ => false,
    });
    assert!(whole, "clients are told all of it");
}
