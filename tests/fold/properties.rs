//! What holds for any records at all, legal or not.
//!
//! In: random records (`PROPTEST_CASES` lists of them, 256 if not said), with ids from small pools so that they meet. Out:
//! nothing, or the shortest list that breaks a property. Always: how many records were applied is printed.

use crate::story::{call, committed, completion, failure, message, person, replay, result, say};
use crate::world::{Tape, World};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use slackwater_core::effect::{Effect, Outcome, Shown, Wait};
use slackwater_core::history::{History, Item};
use slackwater_core::id::{CallId, InputId, Number, PostId, ThreadId};
use slackwater_core::record::{
    Arrival, Birth, Block, Cause, Committed, Content, Deliver, End, Origin, Post, PostBody, Proof, Receipt, Record,
    Stop, SubscriptionEvent, Undelivered,
};
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What may happen next; which record it is depends on the thread that it happens to.
#[derive(Clone, Debug)]
pub(crate) enum Chance {
    Message(u8),
    Stop(u8),
    Completion(Seen, Vec<u8>, End),
    Failure(Seen),
    Accepted(Which),
    Armed(Which, u64),
    Result(Which, bool, bool),
    Fired(Which),
    /// A tool's result that begins a subscription.
    Subscribed(Which),
    /// An event of the n-th newest result, by its id, with its way of delivery, perhaps the last.
    Event(usize, u8, Option<Deliver>, bool),
    /// A post: which kind, from the n-th thread that something is owed to, by its number.
    Post(u8, usize, u64),
    /// A receipt for the n-th post that is owed, and why it was refused.
    Delivered(usize, Option<Undelivered>),
}

/// What an answer's prompt had seen.
#[derive(Clone, Debug)]
pub(crate) enum Seen {
    /// What the thread wants answered now.
    Wanted,
    /// The last record, and some more or less.
    NearLast(i8),
    /// Anything.
    Number(Number),
}

/// Which call.
#[derive(Clone, Debug)]
pub(crate) enum Which {
    /// One that the thread waits for.
    Open(usize),
    /// Any that may have been.
    Any(Number, u16),
}

fn chance() -> impl Strategy<Value = Chance> {
    let seen = || prop_oneof![6 => Just(Seen::Wanted), 2 => (-3..=2_i8).prop_map(Seen::NearLast), 1 => (0..60_u64).prop_map(Seen::Number)];
    let which = || prop_oneof![3 => (0..4_usize).prop_map(Which::Open), 2 => (0..60_u64, 0..4_u16).prop_map(|(n, i)| Which::Any(n, i))];
    let end =
        prop_oneof![6 => Just(End::Finished), 1 => Just(End::Length), 1 => Just(End::Declined), 2 => Just(End::Cut)];
    let deliver = prop_oneof![
        3 => Just(None),
        1 => Just(Some(Deliver::Inline)),
        2 => (1..4_u32, 0..9_u64).prop_map(|(count, wait_ms)| Some(Deliver::Digest { count, wait_ms })),
    ];
    let refused = prop_oneof![
        5 => Just(None),
        1 => Just(Some(Undelivered::Closed)),
        1 => Just(Some(Undelivered::QueueFull)),
        1 => Just(Some(Undelivered::Unknown)),
    ];
    prop_oneof![
        4 => (0..9_u8).prop_map(Chance::Message),
        1 => (0..9_u8).prop_map(Chance::Stop),
        7 => (seen(), prop::collection::vec(0..20_u8, 0..5), end).prop_map(|(s, b, e)| Chance::Completion(s, b, e)),
        1 => seen().prop_map(Chance::Failure),
        2 => which().prop_map(Chance::Accepted),
        1 => (which(), any::<u64>()).prop_map(|(w, due)| Chance::Armed(w, due)),
        5 => (which(), any::<bool>(), any::<bool>()).prop_map(|(w, e, r)| Chance::Result(w, e, r)),
        2 => which().prop_map(Chance::Fired),
        2 => which().prop_map(Chance::Subscribed),
        3 => (0..3_usize, 0..9_u8, deliver, prop::bool::weighted(0.1)).prop_map(|(n, i, d, l)| Chance::Event(n, i, d, l)),
        2 => (0..5_u8, 0..4_usize, 0..9_u64).prop_map(|(k, f, n)| Chance::Post(k, f, n)),
        2 => (0..4_usize, refused).prop_map(|(n, r)| Chance::Delivered(n, r)),
    ]
}

fn block(choice: u8) -> Block {
    match choice {
        0 => say(""),
        1 => say("well"),
        2 => Block::Reasoning { text: "hm".into(), sealed: None },
        3 => call("sleep", r#"{"seconds":60}"#),
        4 => call("sleep", "not json"),
        5 => call("sleep_until", r#"{"date":"2031-05-04","time":"09:00","timezone":"UTC"}"#),
        6 => call("sleep_until_event_or_input", ""),
        7 => call("receive_event__injected", "{}"),
        8..=9 => call("spawn_thread", &spawn(&[])),
        10 => call("spawn_thread", &spawn(&[crate::story::THREAD])),
        11 => call("report_to_parent", r#"{"report":"so far"}"#),
        12 => call("close_thread", &format!(r#"{{"thread_id":"{}","report_to_parent":"done"}}"#, crate::story::THREAD)),
        13 => call("list_children", ""),
        14 => call("cancel_subscription", r#"{"tool_call_id":"build-id"}"#),
        _ => call("build", "{}"),
    }
}

/// The arguments of a `spawn_thread`, for one who believes to be there.
fn spawn(path: &[ThreadId]) -> String {
    let path: Vec<String> = path.iter().map(|id| format!("\"{id}\"")).collect();
    format!(r#"{{"instructions":"look","child_of":[{}]}}"#, path.join(","))
}

/// The root above the thread, when that is a child.
const ROOT: ThreadId = ThreadId::from_bytes([6; 16]);

/// The thread comes into being as a child that inherits nothing.
fn birth() -> Record {
    let spawn = Cause { name: "spawn_thread".into(), provider_id: "s".into(), arguments: spawn(&[]) };
    let birth = Birth { ancestors: vec![ROOT], through: 1, fresh: true, spawn, event: None };
    let id = PostId { from: ROOT, number: 2, index: 0 };
    Record::Post(Post { id, body: PostBody::Birth(Box::new(birth)) })
}

/// The record that this chance is for this thread.
fn record(thread: &Thread, chance: Chance) -> Record {
    let seen = |seen| match seen {
        Seen::Wanted => thread.prompt().map_or(thread.last(), |prompt| prompt.seen),
        Seen::NearLast(off) => thread.last().saturating_add_signed(off.into()),
        Seen::Number(number) => number,
    };
    let which = |which| match which {
        Which::Any(number, index) => CallId { number, index },
        Which::Open(at) => {
            let waits = thread.standing().waits;
            let open: Vec<_> = waits
                .iter()
                .filter_map(|wait| match wait {
                    Wait::Call { call, .. } | Wait::Timer { call, .. } | Wait::Input { call: Some(call), .. } => {
                        Some(*call)
                    }
                    _ => None,
                })
                .collect();
            open.get(at % open.len().max(1)).copied().unwrap_or(CallId { number: 2, index: at as u16 })
        }
    };
    match chance {
        Chance::Message(id) => message(&id.to_string(), "hello"),
        Chance::Stop(id) => Record::Stop(Stop { id: InputId(id.to_string()), origin: person() }),
        Chance::Completion(s, blocks, end) => completion(seen(s), blocks.into_iter().map(block).collect(), end),
        Chance::Failure(s) => failure(seen(s)),
        Chance::Accepted(w) => Record::Accepted(which(w)),
        Chance::Armed(w, due_ms) => Record::Armed { call: which(w), due_ms },
        Chance::Result(w, is_error, by_runtime) => {
            let tool = Origin { who: "tool:build".into(), proof: Proof::Process };
            result(which(w), "built", is_error, if by_runtime { Origin::runtime() } else { tool })
        }
        Chance::Fired(w) => Record::Fired(which(w)),
        Chance::Subscribed(w) => {
            let tool = Origin { who: "tool:build".into(), proof: Proof::Process };
            let Record::Result(mut result) = result(which(w), "watching", false, tool) else { unreachable!() };
            result.subscription = true;
            Record::Result(result)
        }
        Chance::Event(newest, id, deliver, last) => {
            let mut results = thread.history().newest_first().filter_map(|item| match &**item {
                Item::Result(answer) if answer.name == "build" => Some(answer.call),
                _ => None,
            });
            Record::Event(SubscriptionEvent {
                subscription: results.nth(newest).unwrap_or(CallId { number: 2, index: 0 }),
                id: InputId(id.to_string()),
                origin: person(),
                content: vec![Content::Text("it changed".into())],
                associative: id % 2 == 0,
                last,
                deliver,
            })
        }
        Chance::Post(kind, from, number) => {
            let owed = posts(thread);
            let from = owed.get(from).map_or(ROOT, |arrival| arrival.thread);
            let body = match kind {
                0 if thread.last() == 0 => return birth(),
                0 => PostBody::Message("and this".into()),
                1 => PostBody::Report { branch: from, text: "done".into() },
                2 => PostBody::Report { branch: ROOT, text: "done".into() },
                3 => PostBody::Closed,
                _ => PostBody::Close,
            };
            Record::Post(Post { id: PostId { from, number: 10 * u64::from(kind) + number, index: 0 }, body })
        }
        Chance::Delivered(at, refused) => {
            let owed = posts(thread);
            let post = owed.get(at).and_then(|arrival| match &arrival.record {
                Record::Post(post) => Some(post.id),
                _ => None,
            });
            let post = post.unwrap_or(PostId { from: crate::story::THREAD, number: at as u64, index: 0 });
            Record::Delivered(Receipt { post, refused })
        }
    }
}

/// What the thread owes to others.
fn posts(thread: &Thread) -> Vec<Arrival> {
    let owed = thread.owed().into_iter();
    owed.filter_map(|effect| if let Effect::Post(arrival) = effect { Some(arrival) } else { None }).collect()
}

/// The records that these chances make, and the thread they make.
pub(crate) fn lived(chances: Vec<Chance>) -> (Vec<Committed>, Thread) {
    let mut thread = Thread::new(crate::story::THREAD);
    let mut records = Vec::new();
    for chance in chances {
        let committed = committed(thread.last() + 1, record(&thread, chance));
        thread.apply(committed.clone());
        records.push(committed);
    }
    (records, thread)
}

/// Runs a property over random records, and says how many were applied. The property returns how many it applied.
pub(crate) fn for_any<S: Strategy>(name: &str, strategy: S, holds: impl Fn(S::Value) -> usize)
where
    S::Value: Clone,
{
    let config = Config { failure_persistence: None, ..Config::default() };
    let (cases, applied) = (config.cases, AtomicUsize::new(0));
    let outcome = TestRunner::new(config).run(&strategy, |value| {
        applied.fetch_add(holds(value), Ordering::Relaxed);
        Ok(())
    });
    if let Err(broken) = outcome {
        panic!("{name}: {broken}");
    }
    let applied = applied.into_inner();
    eprintln!("{name}: {cases} cases, {applied} records applied");
    assert!(applied >= cases as usize, "{name} applied nothing");
}

pub(crate) fn chances() -> impl Strategy<Value = Vec<Chance>> {
    // Every second thread is a child.
    (any::<bool>(), prop::collection::vec(chance(), 1..120)).prop_map(|(is_child, mut chances)| {
        if is_child {
            chances.insert(0, Chance::Post(0, 0, 0));
        }
        chances
    })
}

/// The invariants, and the first of them once more in words of its own: of each call at most one result, none before it.
#[test]
fn any_records_keep_the_invariants() {
    let seen = std::cell::RefCell::new(std::collections::BTreeMap::<&str, usize>::new());
    for_any("any_records_keep_the_invariants", chances(), |chances| {
        let mut thread = Thread::new(crate::story::THREAD);
        let (mut made, mut answered) = (BTreeSet::new(), BTreeSet::new());
        let count = chances.len();
        for chance in chances {
            let committed = committed(thread.last() + 1, record(&thread, chance));
            let before = thread.history().clone();
            let applied = thread.apply(committed.clone());
            if let Err(broken) = invariant::check(&thread) {
                panic!("after {committed:?}: {broken}");
            }
            let appended = thread.history().len() - before.len();
            assert!(
                thread.history().newest_first().skip(appended).eq(before.newest_first()),
                "the history is append-only"
            );
            for effect in applied.effects {
                let Effect::Tell(output) = effect else { continue };
                match output.shown {
                    Shown::Turn { item, .. } => made.extend(calls_of(&item)),
                    Shown::Result(item) => {
                        let Item::Result(answer) = &*item else { panic!("{item:?} is no result") };
                        assert!(made.contains(&answer.call), "{} has a result and was not made", answer.call);
                        assert!(answered.insert(answer.call), "{} has two results", answer.call);
                    }
                    shown => *seen.borrow_mut().entry(kind(&shown)).or_default() += 1,
                }
            }
        }
        count
    });
    let seen = seen.into_inner();
    eprintln!("any_records_keep_the_invariants: {seen:?}");
    for kind in ["event", "spawned", "born", "report", "closed", "undelivered"] {
        assert!(seen.contains_key(kind), "no life had one that was {kind}: {seen:?}");
    }
}

fn kind(shown: &Shown) -> &'static str {
    match shown {
        Shown::Event(_) => "event",
        Shown::Spawned { .. } => "spawned",
        Shown::Born { .. } => "born",
        Shown::Report { .. } => "report",
        Shown::Closed { .. } => "closed",
        Shown::Undelivered { .. } => "undelivered",
        _ => "other",
    }
}

fn calls_of(turn: &Item) -> Vec<CallId> {
    let Item::Assistant { number, blocks, .. } = turn else { panic!("{turn:?} is no turn") };
    let calls = blocks.iter().filter(|block| matches!(block, Block::Call { .. })).count();
    (0..calls as u16).map(|index| CallId { number: *number, index }).collect()
}

#[test]
fn a_replay_gives_the_same_thread() {
    for_any("a_replay_gives_the_same_thread", chances(), |chances| {
        let (records, thread) = lived(chances);
        let again = replay(&records);
        assert!(again == thread);
        assert_eq!(again.standing(), thread.standing());
        assert_eq!(again.prompt(), thread.prompt());
        assert_eq!(again.history(), thread.history());
        assert_eq!(again.owed(), thread.owed());
        assert_eq!(again.rest(), thread.rest());
        2 * records.len()
    });
}

/// The owner looks at a thread only between ticks. Where these lie cannot be seen in the thread.
#[test]
fn how_records_are_cut_into_batches_cannot_be_seen() {
    let lives = (chances(), prop::collection::vec(any::<bool>(), 121));
    for_any("how_records_are_cut_into_batches_cannot_be_seen", lives, |(chances, ends)| {
        let (records, thread) = lived(chances);
        let mut ticked = Thread::new(crate::story::THREAD);
        for (record, tick_ends) in records.iter().zip(ends) {
            ticked.apply(record.clone());
            if tick_ends {
                // An owner asks all it can ask, and may forget the thread and take it from the journal again.
                let asked = (ticked.prompt(), ticked.owed(), ticked.rest());
                ticked = replay(&records[..record.number as usize]);
                assert_eq!((ticked.prompt(), ticked.owed(), ticked.rest()), asked);
            }
        }
        assert_eq!(ticked.prompt(), thread.prompt());
        assert_eq!(ticked.standing(), thread.standing());
        assert!(ticked == thread);
        2 * records.len()
    });
}

/// Every record is delivered twice in a row. The second life has two numbers for each one of the first: the n-th record is
/// there as 2n-1 and again as 2n.
#[test]
fn delivered_twice_is_delivered_once() {
    // The names of children and posts follow from numbers, which are others in the second life: it makes no children.
    let chances = chances().prop_map(|mut chances| {
        chances.iter_mut().for_each(|chance| match chance {
            Chance::Completion(_, blocks, _) => blocks.retain(|block| !matches!(block, 8..=10)),
            Chance::Event(_, _, deliver @ None, _) => *deliver = Some(Deliver::Inline),
            _ => {}
        });
        chances
    });
    for_any("delivered_twice_is_delivered_once", chances, |chances| {
        let (records, once) = lived(chances);
        let mut twice = Thread::new(crate::story::THREAD);
        for committed in &records {
            for delivery in 1..=2 {
                let before = (twice.history().clone(), twice.standing().pending);
                let mut copy = committed.clone();
                copy.number = twice.last() + 1;
                copy.arrival.record = renumbered(copy.arrival.record);
                let applied = twice.apply(copy);
                if delivery == 2 {
                    let (receipts, others): (Vec<_>, Vec<_>) = applied.effects.into_iter().partition(|effect| {
                        matches!(effect, Effect::Post(Arrival { record: Record::Delivered(_), .. }))
                    });
                    assert_eq!(others, [], "the second delivery of {committed:?} did something");
                    let is_post = matches!(committed.arrival.record, Record::Post(_));
                    assert_eq!(receipts.len(), usize::from(is_post), "every delivery has its receipt");
                    assert!(!matches!(applied.outcome, Outcome::Taken(_)) || is_unnamed(&committed.arrival.record));
                    assert_eq!((twice.history().clone(), twice.standing().pending), before);
                }
            }
        }
        invariant::check(&twice).unwrap();
        let view = |thread: &Thread, renumber: bool| {
            let waits = thread.standing().waits.into_iter().map(|wait| if renumber { rewait(wait) } else { wait });
            let prompt = thread.prompt().map(|prompt| items(&prompt.history, renumber));
            (items(thread.history(), renumber), prompt, waits.collect::<Vec<_>>(), thread.standing().state)
        };
        assert_eq!(view(&once, true), view(&twice, false));
        3 * records.len()
    });
}

fn is_unnamed(record: &Record) -> bool {
    matches!(record, Record::Accepted(_) | Record::Armed { .. } | Record::Fired(_) | Record::Delivered(_))
}

/// The number under which the n-th record is delivered first.
fn first(number: Number) -> Number {
    (2 * number).saturating_sub(1)
}

fn recall(call: CallId) -> CallId {
    CallId { number: first(call.number), ..call }
}

fn renumbered(mut record: Record) -> Record {
    match &mut record {
        // A prompt of the n-th record has seen both its deliveries.
        Record::Completion(completion) => completion.seen *= 2,
        Record::Failure(failure) => failure.seen *= 2,
        Record::Accepted(call) | Record::Fired(call) | Record::Armed { call, .. } => *call = recall(*call),
        Record::Result(result) => result.call = recall(result.call),
        Record::Event(event) => event.subscription = recall(event.subscription),
        Record::Delivered(receipt) => receipt.post.number = first(receipt.post.number),
        Record::Message(_) | Record::Stop(_) | Record::Post(_) => {}
    }
    record
}

fn items(history: &History, renumber: bool) -> Vec<Item> {
    let rename = |item: &Arc<Item>| {
        let mut item = Item::clone(item);
        if renumber {
            match &mut item {
                Item::User { number, .. } | Item::Assistant { number, .. } => *number = first(*number),
                Item::Result(answer) => answer.call = recall(answer.call),
                Item::Event(event) => event.id = recall(event.id),
            }
        }
        item
    };
    history.to_vec().into_iter().map(rename).collect()
}

fn rewait(wait: Wait) -> Wait {
    match wait {
        Wait::Model { seen } => Wait::Model { seen: 2 * seen },
        Wait::Call { call, name, since_ms, accepted } => Wait::Call { call: recall(call), name, since_ms, accepted },
        Wait::Timer { call, since_ms, due_ms } => Wait::Timer { call: recall(call), since_ms, due_ms },
        Wait::Input { call, since_ms } => Wait::Input { call: call.map(recall), since_ms },
    }
}

/// In a world that plays by the rules every input comes before the model, once and in order, through any crashes.
#[test]
fn a_world_that_answers_loses_nothing() {
    let tape = prop::collection::vec(any::<u8>(), 0..400);
    for_any("a_world_that_answers_loses_nothing", tape, |tape| {
        let mut world = World::new(Tape::written(tape));
        world.crashes = true;
        world.live(100);
        invariant::check(&world.thread).unwrap();
        world.records.len()
    });
}

/// One thread of many records: the work of each is counted by the world (items appended, effects), and does not grow.
#[test]
fn linear() {
    const RECORDS: usize = 100_000;
    let mut world = World::new(Tape::endless(20_261_130));
    world.live(RECORDS);
    invariant::check(&world.thread).unwrap();
    eprintln!("linear: {} records applied, {} items", world.records.len(), world.thread.history().len());
    assert!(world.records.len() >= RECORDS && world.thread.history().len() > RECORDS / 4);
}
