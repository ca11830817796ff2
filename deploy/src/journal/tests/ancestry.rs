//! Children inherit their ancestors' records, which are on the disk once.

use super::*;
use slackwater_core::id::PostId;
use slackwater_core::port::{Query, Reply};
use slackwater_core::record::{Birth, Cause, Post, PostBody, Receipt};

/// The child that a call of the last of these ancestors makes, through this record of it.
pub(super) fn birth(ancestors: &[ThreadId], call: CallId, through: Number, fresh: bool) -> Arrival {
    let &from = ancestors.last().unwrap();
    let arguments = r#"{"instructions":"look at one of the tests","child_of":[]}"#.to_owned();
    let spawn = Cause { name: "spawn_thread".to_owned(), provider_id: "call_0123456789".to_owned(), arguments };
    let birth = Birth { ancestors: ancestors.to_vec(), through, fresh, spawn, event: None, terms: None };
    let id = PostId { from, number: call.number, index: call.index };
    let record = Record::Post(Post { id, body: PostBody::Birth(Box::new(birth)) });
    Arrival { ticket: None, thread: from.child(call), at_ms: 7, record }
}

fn call(number: Number) -> CallId {
    CallId { number, index: 0 }
}

#[tokio::test]
async fn what_a_thread_inherits_is_recalled_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let disk = || FileDisk::open(directory.path()).unwrap();
    let mut run = start(disk());
    let root = thread(1);
    let (child, fresh) = (root.child(call(3)), root.child(call(4)));
    let grandchild = child.child(call(2));
    let texts = ["one", "two", "three"];
    let committed = run.append(texts.map(|text| message(root, text)).to_vec()).await.unwrap();
    let of_child = run.append(vec![birth(&[root], call(3), 2, false), message(child, "four")]).await.unwrap();
    run.append(vec![birth(&[root, child], call(2), 1, false), birth(&[root], call(4), 2, true)]).await.unwrap();
    run.close().await;

    let mut run = start(disk());
    run.started().await;
    for (id, before, ancestors) in [
        (root, Number::MAX, vec![]),
        (child, 1, vec![(root, committed[..2].to_vec())]),
        (child, Number::MAX, vec![(root, committed[..2].to_vec())]),
        (grandchild, Number::MAX, vec![(root, committed[..2].to_vec()), (child, of_child[..1].to_vec())]),
        (fresh, Number::MAX, vec![]),
    ] {
        run.to.put(ToJournal::Recall { thread: id, before });
        let Some(FromJournal::Recalled { thread, records, ancestry }) = run.next().await else { panic!("a recall") };
        assert_eq!((thread, ancestry), (id, ancestors));
        assert_eq!(records.unwrap().is_empty(), before == 1, "only what is below {before}");
    }
    // Where a child stands says the fold over what it inherits.
    let ticket = slackwater_core::id::Ticket { gateway: 0, request: 1 };
    run.to.put(ToJournal::Query(ticket, Query::Thread(grandchild)));
    let Some(FromJournal::Reply(_, Reply::Thread(standing))) = run.next().await else { panic!("a standing") };
    assert_eq!((standing.parent, standing.items), (Some(child), 6), "two messages, two calls and their results");
    run.close().await;
}

/// 1,000 children of a parent of 50 KB, by the bytes on the disk: births, receipts and what frames them.
#[tokio::test]
async fn a_tree_costs_its_parent_once() {
    let mut run = start(MemoryDisk::default());
    let root = thread(1);
    run.append(vec![message(root, &"x".repeat(50_000))]).await.unwrap();
    let before = run.handle.counters().bytes;
    let children = 1_000;
    for number in 2..children + 2 {
        let birth = birth(&[root], call(number), 1, false);
        let post = PostId { from: root, number, index: 0 };
        let record = Record::Delivered(Receipt { post, refused: None });
        let receipt = Arrival { ticket: None, thread: root, at_ms: 8, record };
        run.to.put(ToJournal::Append(vec![birth, receipt]));
    }
    let mut committed = 0;
    while committed < 2 * children {
        committed += run.committed().await.unwrap().len() as u64;
    }
    let each = (run.handle.counters().bytes - before) / children;
    eprintln!("{each} bytes on the disk a child, its batches included");
    assert!(each <= 1_024, "{each} bytes a child");
    run.close().await;
}
