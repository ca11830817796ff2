//! Compaction: a summary stands for what is oldest, the records stay, and nothing that is still needed is lost.

use crate::story::{call, completion, result, say};
use crate::tree::{ROOT, Tree, report, spawn};
use slackwater_core::effect::{Effect, Outcome, Refusal, Shown, Wait};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, Number, ThreadId};
use slackwater_core::record::{
    Compact, CompactWhy, Content, End, Failure, FailureClass, Origin, PostBody, Proof, Record, Stop, Undelivered, Usage,
};
use slackwater_core::thread::{HALVINGS_MAX, State, Thread};

pub(crate) fn by_hand(id: &str) -> Record {
    Record::Compact(Compact { id: InputId(id.into()), origin: crate::story::person(), why: CompactWhy::ByHand })
}

pub(crate) fn crossed(seen: Number) -> Record {
    let why = CompactWhy::Crossed { seen, tokens: 90_000 };
    Record::Compact(Compact { id: InputId(format!("crossed {seen}")), origin: Origin::runtime(), why })
}

pub(crate) fn overflow(seen: Number) -> Record {
    let message = "prompt is too long".to_owned();
    Record::Failure(Failure { seen, class: FailureClass::Overflow, message, attempts: 1 })
}

/// Whether a record may do more to a history than append to it.
pub(crate) fn may_rewrite(record: &Record) -> bool {
    match record {
        Record::Failure(failure) => failure.class == FailureClass::Overflow,
        Record::Post(post) => {
            matches!(post.body, PostBody::Summarize { .. } | PostBody::Summary { .. } | PostBody::SummaryFailed { .. })
        }
        // A birth of a summarizer that is refused.
        Record::Delivered(receipt) => receipt.refused.is_some(),
        _ => false,
    }
}

pub(crate) fn tool_result(call: CallId, text: &str) -> Record {
    result(call, text, false, Origin { who: "tool:build".into(), proof: Proof::Capability })
}

fn long(what: &str) -> String {
    format!("{what} {}", "x".repeat(1_000))
}

impl Tree {
    /// The thread has talked so many rounds, each of about 2 KB.
    pub(crate) fn talk(&mut self, thread: ThreadId, rounds: std::ops::Range<usize>) {
        for round in rounds {
            self.message(thread, &long(&format!("question {round}")));
            self.turn(thread, vec![say(&long(&format!("answer {round}")))]);
        }
    }

    fn seen(&self, thread: ThreadId) -> Number {
        self.threads[&thread].prompt().expect("the thread wants an answer").seen
    }

    /// The thread that makes a summary for another, made last.
    pub(crate) fn summarizer(&self, of: ThreadId) -> ThreadId {
        let children = self.told.iter().rev().filter_map(|(by, shown)| match shown {
            Shown::Compacting { child, .. } if *by == of => Some(*child),
            _ => None,
        });
        children.into_iter().next().expect("a summary is being made")
    }

    /// The summary is written and arrives.
    pub(crate) fn summarize(&mut self, of: ThreadId, text: &str) {
        self.deliver();
        let child = self.summarizer(of);
        self.turn(child, vec![say(text)]);
        self.deliver();
    }

    fn not_compacted(&self, thread: ThreadId) -> Vec<&str> {
        self.told
            .iter()
            .filter_map(|(by, shown)| match shown {
                Shown::NotCompacted { why } if *by == thread => Some(why.as_str()),
                _ => None,
            })
            .collect()
    }

    fn failures(&self, thread: ThreadId) -> Vec<&str> {
        self.told
            .iter()
            .filter_map(|(by, shown)| match shown {
                Shown::Failure { message, .. } if *by == thread => Some(message.as_str()),
                _ => None,
            })
            .collect()
    }

    /// How many summaries were begun for a thread.
    fn begun(&self, thread: ThreadId) -> usize {
        self.told.iter().filter(|(by, shown)| *by == thread && matches!(shown, Shown::Compacting { .. })).count()
    }
}

/// A root of ten rounds.
pub(crate) fn talked() -> Tree {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..10);
    tree
}

fn thread(tree: &Tree) -> &Thread {
    &tree.threads[&ROOT]
}

#[test]
fn a_summary_stands_for_what_is_oldest_and_the_records_stay() {
    let mut tree = talked();
    let (before, records) = (thread(&tree).history().clone(), tree.journal[&ROOT].clone());
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    tree.deliver();
    let child = tree.summarizer(ROOT);
    let view = tree.view(child);
    assert!(view.last().unwrap().starts_with("user: Your history is about to get too long."), "{view:?}");
    assert_eq!(tree.journal[&child][0].arrival.record.base(), Some((ROOT, 21)), "it refers to the parent's records");
    // The parent goes on meanwhile.
    tree.message(ROOT, "still there?");
    tree.turn(ROOT, vec![say("yes")]);
    tree.turn(child, vec![say("they talked")]);
    tree.deliver();
    let view = tree.view(ROOT);
    assert_eq!(view[0], "summary: they talked");
    // The last fifth stays as it was, from a turn on: of what stands before it no call was open.
    assert!(view[1].starts_with("turn: answer 7"), "{}", view[1]);
    assert_eq!((view.len(), view[view.len() - 1].as_str()), (8, "turn: yes"));
    assert_eq!(tree.journal[&ROOT][..20], records[..20]);
    assert_eq!(before.len(), 20, "who holds the old one keeps it");
    let Some(Item::Summary(summary)) = thread(&tree).history().to_vec().first().map(|item| (***item).clone()) else {
        panic!("the first item is the summary")
    };
    assert_eq!((summary.number, summary.covers), (tree.last(ROOT), 15));
    let told = tree.told.iter().rev().find_map(|(_, shown)| match shown {
        Shown::Compacted { covers, bytes_before, bytes_after, .. } => Some((*covers, *bytes_before, *bytes_after)),
        _ => None,
    });
    let (covers, bytes_before, bytes_after) = told.unwrap();
    assert_eq!(covers, 15);
    assert!(bytes_before > 20_000 && bytes_after < 6_000, "{bytes_before} {bytes_after}");
    assert_eq!((thread(&tree).standing().children, tree.threads[&child].standing().state), (0, State::Closed));
    assert_eq!(tree.threads[&child].owed(), [], "it has said its one word");
}

#[test]
fn at_most_one_attempt_a_crossing() {
    let mut tree = talked();
    for round in 10..13 {
        tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
        tree.talk(ROOT, round..round + 1);
    }
    assert_eq!(tree.begun(ROOT), 1, "one is under way");
    tree.deliver();
    // A summary that is too long is of no use, and so is one that fails.
    tree.summarize(ROOT, &"blah ".repeat(10_000));
    assert!(tree.not_compacted(ROOT)[0].contains("of no use"), "{:?}", tree.not_compacted(ROOT));
    assert_eq!(tree.count(ROOT, "summary"), 0);
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    tree.talk(ROOT, 13..14);
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    assert_eq!(tree.begun(ROOT), 1, "not repeated before the history has grown");
    tree.talk(ROOT, 14..18);
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    assert_eq!(tree.begun(ROOT), 2, "it has grown by a quarter");
    let seen = tree.last(ROOT) - 2;
    tree.summarize(ROOT, "short");
    assert_eq!(tree.view(ROOT)[0], "summary: short");
    // Counts from before the summary come late.
    tree.apply(ROOT, crossed(seen));
    assert_eq!((tree.begun(ROOT), tree.posts.len()), (2, 0), "a stale count is ignored");
    tree.talk(ROOT, 20..22);
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    assert_eq!(tree.begun(ROOT), 2, "what is too long even after a summary has not crossed anew");
    tree.talk(ROOT, 22..26);
    tree.apply(ROOT, crossed(tree.last(ROOT) - 1));
    assert_eq!(tree.begun(ROOT), 3);
    tree.summarize(ROOT, "shorter");
    assert_eq!((tree.view(ROOT)[0].as_str(), tree.count(ROOT, "summary")), ("summary: shorter", 1));
}

#[test]
fn a_slow_failing_or_silly_summarizer_leaves_the_thread_usable() {
    // It fails, answers with nothing, declines, is stopped, or only makes calls.
    for how in 0..5 {
        let mut tree = talked();
        tree.apply(ROOT, by_hand("a"));
        tree.deliver();
        let child = tree.summarizer(ROOT);
        let seen = tree.seen(child);
        match how {
            0 => drop(tree.apply(child, crate::story::failure(seen))),
            1 => drop(tree.turn(child, vec![])),
            2 => drop(tree.apply(child, completion(seen, vec![say("no")], End::Declined))),
            3 => {
                let stop = Stop { id: InputId("s".into()), origin: crate::story::person() };
                tree.apply(child, Record::Stop(stop));
                tree.apply(child, completion(seen, vec![say("half of")], End::Cut));
            }
            _ => {
                let mut turns = 0;
                while tree.threads[&child].prompt().is_some() {
                    tree.turn(child, vec![call("build", "{}"), call("spawn_thread", "{}"), report("x")]);
                    assert!(tree.asked.is_empty(), "it does no calls");
                    turns += 1;
                }
                assert_eq!(turns, 8);
            }
        }
        tree.deliver();
        assert_eq!(tree.not_compacted(ROOT).len(), 1, "{how}");
        assert_eq!(tree.threads[&child].standing().state, State::Closed, "{how}");
        assert_eq!(tree.threads[&child].owed().len() + thread(&tree).owed().len(), 0, "{how}");
        tree.talk(ROOT, 10..11);
        assert!(tree.reads(ROOT).starts_with("turn: answer 10"));
        // Nobody talks to it.
        assert_eq!(tree.message(child, "hello?"), Outcome::Refused(Refusal::Closed));
        // By hand it is tried again at once.
        tree.apply(ROOT, by_hand("b"));
        tree.summarize(ROOT, "well");
        assert_eq!(tree.view(ROOT)[0], "summary: well");
    }
    let mut tree = Tree::default();
    tree.message(ROOT, "hello");
    tree.apply(ROOT, by_hand("a"));
    assert_eq!(tree.apply(ROOT, by_hand("a")).outcome, Outcome::Duplicate(2));
    assert_eq!(tree.not_compacted(ROOT), ["There is nothing to summarize yet."]);
}

#[test]
fn notes_and_subscriptions_survive_every_summary() {
    let mut tree = talked();
    tree.message(ROOT, "watch, and keep in mind");
    let watch = tree.subscribe(ROOT);
    tree.turn(ROOT, vec![call("pin_note", r#"{"note":"the port is 7070"}"#), call("pin_note", r#"{"note":"gone"}"#)]);
    assert!(tree.reads(ROOT).ends_with("Pinned as note_2."));
    tree.turn(ROOT, vec![call("unpin_note", r#"{"note_id":"note_2"}"#)]);
    tree.turn(ROOT, vec![say("done")]);
    tree.talk(ROOT, 10..20);
    for round in 0..2 {
        tree.apply(ROOT, by_hand(&format!("{round}")));
        tree.summarize(ROOT, "they talked");
        let history = thread(&tree).history().to_vec();
        let Item::Summary(summary) = &**history[0] else { panic!("a summary is first") };
        let text = summary.text();
        for said in ["they talked", "note_1: the port is 7070", "watch-id: watch {\"what\":\"pulls\"}"] {
            assert!(text.contains(said), "{said} in {text}");
        }
        assert!(!text.contains("gone"));
        tree.talk(ROOT, 20 + 10 * round..30 + 10 * round);
    }
    assert_eq!(tree.count(ROOT, "[watch]"), 0, "the call itself is covered");
    // An event of it names the call, and it can be cancelled.
    tree.event(ROOT, watch, "e1", Some(slackwater_core::record::Deliver::Inline), false);
    assert_eq!(tree.reads(ROOT), "event of watch-id: event e1");
    let Some(Item::Event(event)) = thread(&tree).view().newest_first().next().map(|item| (**item).clone()) else {
        panic!("an event")
    };
    assert_eq!((event.original_tool_name.as_str(), event.original_args.as_str()), ("watch", r#"{"what":"pulls"}"#));
    tree.turn(ROOT, vec![call("cancel_subscription", r#"{"tool_call_id":"watch-id"}"#)]);
    assert!(tree.reads(ROOT).contains("Cancelled"), "{}", tree.reads(ROOT));
    // A child begins with its parent's notes, and changes only its own.
    let child = tree.spawn(ROOT, "look", &[]);
    tree.deliver();
    tree.turn(child, vec![call("unpin_note", r#"{"note_id":"note_1"}"#)]);
    assert!(tree.reads(child).ends_with("Unpinned note_1."));
    tree.turn(ROOT, vec![call("unpin_note", r#"{"note_id":"note_7"}"#)]);
    assert!(tree.reads(ROOT).ends_with("There is no note note_7; pinned are note_1."));
}

#[test]
fn notes_are_bounded() {
    let mut tree = Tree::default();
    tree.message(ROOT, "pin");
    for note in 1..=32 {
        tree.turn(ROOT, vec![call("pin_note", r#"{"note":"n"}"#)]);
        assert!(tree.reads(ROOT).ends_with(&format!("Pinned as note_{note}.")));
    }
    let too_long = format!(r#"{{"note":"{}"}}"#, "n".repeat(1_025));
    for (arguments, said) in [
        (r#"{"note":"n"}"#, "32 notes are pinned, which is the most"),
        (too_long.as_str(), "The note has 1025 bytes; at most 1024"),
        (r#"{"note":" "}"#, "The note is empty"),
        ("{}", "The arguments of pin_note are wrong"),
    ] {
        tree.turn(ROOT, vec![call("pin_note", arguments)]);
        assert!(tree.reads(ROOT).starts_with("refusal") && tree.reads(ROOT).contains(said), "{}", tree.reads(ROOT));
        tree.turn(ROOT, vec![call("list_children", "{}")]);
    }
}

#[test]
fn a_prompt_that_does_not_fit_is_tried_again_after_a_summary() {
    let mut tree = talked();
    tree.message(ROOT, "and now?");
    let seen = tree.seen(ROOT);
    tree.apply(ROOT, overflow(seen));
    assert_eq!((tree.begun(ROOT), tree.failures(ROOT).len(), thread(&tree).prompt()), (1, 0, None));
    let standing = thread(&tree).standing();
    assert!(matches!(standing.waits[..], [Wait::Summary { .. }]) && standing.state == State::Thinking);
    // What comes meanwhile waits, too: it would not fit either.
    tree.message(ROOT, "hello?");
    assert_eq!(thread(&tree).prompt(), None);
    tree.summarize(ROOT, "they talked");
    let view = tree.view(ROOT);
    assert_eq!((view[0].as_str(), view.len()), ("summary: they talked", 14), "half is covered: {view:?}");
    assert_eq!(view[12..], ["user: and now?", "user: hello?"]);
    tree.turn(ROOT, vec![say("now it fits")]);
    assert_eq!(tree.failures(ROOT).len(), 0);
}

#[test]
fn what_is_covered_is_halved_until_it_fits() {
    let mut tree = talked();
    tree.message(ROOT, "and now?");
    let seen = tree.seen(ROOT);
    tree.apply(ROOT, overflow(seen));
    let mut covered = Vec::new();
    while thread(&tree).prompt().is_none() && tree.failures(ROOT).is_empty() {
        tree.deliver();
        let child = tree.summarizer(ROOT);
        covered.push(tree.view(child).len());
        let seen = tree.seen(child);
        tree.apply(child, overflow(seen));
        tree.deliver();
    }
    assert_eq!(covered, [10, 4, 2], "each attempt covers half of the one before");
    assert_eq!(tree.not_compacted(ROOT).len(), covered.len());
    assert!(tree.failures(ROOT)[0].contains("nothing in it can be summarized or cut"), "{:?}", tree.failures(ROOT));
    // The thread is usable: the next input tries again, and a larger model may be there.
    tree.message(ROOT, "again");
    tree.turn(ROOT, vec![say("here I am")]);
    assert_eq!(tree.reads(ROOT), "turn: here I am");
}

#[test]
fn halving_has_an_end() {
    let mut tree = Tree::default();
    tree.talk(ROOT, 0..100);
    tree.message(ROOT, "and now?");
    let seen = tree.seen(ROOT);
    tree.apply(ROOT, overflow(seen));
    while thread(&tree).prompt().is_none() && tree.failures(ROOT).is_empty() {
        tree.deliver();
        let child = tree.summarizer(ROOT);
        let seen = tree.seen(child);
        tree.apply(child, overflow(seen));
        tree.deliver();
    }
    assert_eq!(tree.begun(ROOT) as u32, 1 + HALVINGS_MAX);
}

#[test]
fn a_text_that_does_not_fit_alone_is_answered_with_an_error_and_the_thread_goes_on() {
    let mut tree = Tree::default();
    tree.message(ROOT, &format!("head {} tail", "z".repeat(500_000)));
    tree.apply(ROOT, overflow(1));
    assert!(tree.failures(ROOT)[0].starts_with("What was sent does not fit the model."), "{:?}", tree.failures(ROOT));
    assert!(tree.failures(ROOT)[0].ends_with("(prompt is too long)"));
    assert_eq!(thread(&tree).prompt(), None, "the user decides");
    tree.message(ROOT, "then shorter");
    let view = tree.view(ROOT);
    assert!(view[0].len() < 4_500 && view[0].starts_with("user: head zzz") && view[0].ends_with("zzz tail"));
    assert!(view[0].contains("left out here; read them with read_result, handle result_2_0"));
    tree.turn(ROOT, vec![call("read_result", r#"{"handle":"result_2_0","offset":250000,"length":10}"#)]);
    assert!(tree.reads(ROOT).ends_with("\nzzzzzzzzzz"), "{}", tree.reads(ROOT));
}

#[test]
fn a_picture_that_does_not_fit_is_named_and_a_provider_that_is_away_costs_nothing() {
    let mut tree = Tree::default();
    let Record::Message(mut message) = crate::story::message("m", "look at this") else { unreachable!() };
    message.content.push(Content::Image { media_type: "image/png".into(), data: "A".repeat(100_000) });
    tree.apply(ROOT, Record::Message(message));
    tree.apply(ROOT, overflow(1));
    assert!(tree.failures(ROOT)[0].starts_with("What was sent does not fit the model."));
    assert!(tree.reads(ROOT).contains("[A picture (image/png) of 100000 bytes"), "{}", tree.reads(ROOT));
    // The summary fails for another reason: nothing is cut, and the next message tries again.
    tree.message(ROOT, &"long ".repeat(2_000));
    tree.turn(ROOT, vec![say("well")]);
    tree.message(ROOT, &"more ".repeat(2_000));
    for _ in 0..2 {
        let seen = tree.seen(ROOT);
        tree.apply(ROOT, overflow(seen));
        tree.deliver();
        let child = tree.summarizer(ROOT);
        let seen = tree.seen(child);
        tree.apply(child, crate::story::failure(seen));
        tree.deliver();
        assert!(tree.failures(ROOT).last().unwrap().contains("could not be summarized (no answer)"));
        assert_eq!((thread(&tree).prompt(), tree.count(ROOT, "left out here")), (None, 0));
        tree.message(ROOT, &format!("again {}", tree.records));
    }
}

#[test]
fn results_that_do_not_fit_together_are_cut_and_tried_again() {
    let mut tree = Tree::default();
    tree.message(ROOT, "look everywhere");
    let calls = 10;
    tree.turn(ROOT, vec![call("build", "{}"); calls]);
    for index in 0..calls as u16 {
        tree.apply(ROOT, tool_result(CallId { number: 2, index }, &"r".repeat(20_000)));
    }
    let seen = tree.seen(ROOT);
    tree.apply(ROOT, overflow(seen));
    // The first message and its turn are one that can be covered; a summary of it is of no use.
    tree.summarize(ROOT, &"s".repeat(1_000));
    assert!(tree.failures(ROOT).is_empty());
    let prompt = thread(&tree).prompt().expect("it is tried again");
    assert!(prompt.history.byte_length() < 50_000, "{}", prompt.history.byte_length());
    tree.turn(ROOT, vec![say("seen")]);
}

#[test]
fn a_stop_ends_the_waiting_for_a_summary_and_a_refused_birth_fails_it() {
    let mut tree = talked();
    tree.message(ROOT, "and now?");
    let seen = tree.seen(ROOT);
    tree.apply(ROOT, overflow(seen));
    tree.apply(ROOT, Record::Stop(Stop { id: InputId("s".into()), origin: crate::story::person() }));
    tree.summarize(ROOT, "they talked");
    assert_eq!((tree.view(ROOT)[0].as_str(), thread(&tree).prompt()), ("summary: they talked", None));
    let mut tree = talked();
    let applied = tree.apply(ROOT, by_hand("a"));
    let post = applied.effects.iter().find_map(|effect| match effect {
        Effect::Post(arrival) => match &arrival.record {
            Record::Post(post) => Some(post.clone()),
            _ => None,
        },
        _ => None,
    });
    let receipt = post.unwrap().receipt(1, Some(Undelivered::Damaged));
    tree.apply(ROOT, receipt.record);
    assert_eq!(tree.not_compacted(ROOT), ["The thread for the summary could not be made."]);
    assert_eq!(thread(&tree).owed(), []);
}

#[test]
fn a_summary_counts_all_that_it_cost_and_comes_from_its_thread_only() {
    let mut tree = talked();
    tree.apply(ROOT, by_hand("a"));
    tree.deliver();
    let child = tree.summarizer(ROOT);
    let usage = Usage { input_tokens: 1_000, output_tokens: 10, cached_tokens: 950 };
    for blocks in [vec![call("build", "{}")], vec![say("they talked")]] {
        let seen = tree.seen(child);
        let Record::Completion(mut completion) = completion(seen, blocks, End::Finished) else { unreachable!() };
        completion.usage = usage;
        tree.apply(child, Record::Completion(completion));
    }
    let mut forged = tree.posts.back().unwrap().record.clone();
    if let Record::Post(post) = &mut forged {
        post.id.from = ThreadId::from_bytes([9; 16]);
    }
    assert_eq!(tree.apply(ROOT, forged).outcome, Outcome::Refused(Refusal::Unrelated));
    tree.posts.retain(|arrival| arrival.thread == ROOT || arrival.thread == child);
    tree.deliver();
    let cost = tree.told.iter().find_map(|(_, shown)| match shown {
        Shown::Compacted { usage, .. } => Some(*usage),
        _ => None,
    });
    assert_eq!(cost, Some(Usage { input_tokens: 2_000, output_tokens: 20, cached_tokens: 1_900 }));
    // A child may be made after it, and begins with the summary; one that closes takes its summarizer with it.
    tree.message(ROOT, "have it looked at");
    tree.turn(ROOT, vec![spawn("look", &[], false)]);
    tree.deliver();
    let child = tree.spawned(ROOT);
    assert_eq!(tree.view(child)[0], "summary: they talked");
    tree.apply(child, by_hand("b"));
    tree.turn(child, vec![crate::tree::close(child)]);
    tree.deliver();
    let summarizer = tree.summarizer(child);
    assert_eq!(tree.threads[&summarizer].standing().state, State::Closed);
}
