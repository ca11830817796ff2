//! Random records, legal or not.
//!
//! In: choices of proptest. Out: records for a thread, with ids from small pools so that they meet. Always: which record a
//! chance is depends on the thread that it happens to, so that many hit something.

use crate::story::{
    approval, call, choice, committed, completion, failure, message, person, question, result, say, verdict,
};
use proptest::prelude::*;
use slackwater_core::effect::{Effect, Wait};
use slackwater_core::history::Item;
use slackwater_core::id::{CallId, InputId, Number, PostId, ThreadId};
use slackwater_core::record::{
    Arrival, Asks, Birth, Block, Bounds, Cause, Committed, Content, Decision, Deliver, End, Origin, Post, PostBody,
    Proof, Receipt, Record, Stop, SubscriptionEvent, Undelivered, Usage, ViewUpdate,
};
use slackwater_core::thread::Thread;

/// What may happen next; which record it is depends on the thread that it happens to.
#[derive(Clone, Debug)]
pub(crate) enum Chance {
    Message(u8),
    Stop(u8),
    Completion(Seen, Vec<u8>, End),
    /// A prompt fails, perhaps because it does not fit.
    Failure(Seen, bool),
    /// A wish to compact: by hand with this id, or because a prompt crossed.
    Compact(u8),
    Crossed(Seen),
    Accepted(Which),
    Armed(Which, u64),
    Result(Which, bool, bool, bool),
    Fired(Which),
    /// A tool's result that begins a subscription.
    Subscribed(Which),
    /// An event of the n-th newest result, by its id, with its way of delivery, perhaps the last.
    Event(usize, u8, Option<Deliver>, bool),
    /// A post: which kind, from the n-th thread that something is owed to, by its number.
    Post(u8, usize, u64),
    /// A person is asked something of this kind.
    Asked(Which, u8),
    /// A person answers the n-th open question, or one of this number: under which id, and what.
    Answered(Result<usize, Number>, u8, u8),
    /// A tool knows what was chosen.
    Responded(Number),
    Deadline(Which, u64),
    View(Which),
    Lost(Which),
    StopAll(u8),
    /// The bounds are others from here on.
    Bounds(u8),
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
        7 => (seen(), prop::collection::vec(0..24_u8, 0..5), end).prop_map(|(s, b, e)| Chance::Completion(s, b, e)),
        1 => (seen(), any::<bool>()).prop_map(|(s, o)| Chance::Failure(s, o)),
        1 => (0..9_u8).prop_map(Chance::Compact),
        2 => seen().prop_map(Chance::Crossed),
        2 => which().prop_map(Chance::Accepted),
        1 => (which(), any::<u64>()).prop_map(|(w, due)| Chance::Armed(w, due)),
        5 => (which(), any::<bool>(), any::<bool>(), prop::bool::weighted(0.1))
            .prop_map(|(w, e, r, l)| Chance::Result(w, e, r, l)),
        2 => which().prop_map(Chance::Fired),
        2 => which().prop_map(Chance::Subscribed),
        3 => (0..3_usize, 0..9_u8, deliver, prop::bool::weighted(0.1)).prop_map(|(n, i, d, l)| Chance::Event(n, i, d, l)),
        3 => (which(), 0..5_u8).prop_map(|(w, k)| Chance::Asked(w, k)),
        4 => (prop_oneof![4 => (0..3_usize).prop_map(Ok), 1 => (0..60_u64).prop_map(Err)], 20..60_u8, 0..6_u8)
            .prop_map(|(q, i, a)| Chance::Answered(q, i, a)),
        1 => (0..60_u64).prop_map(Chance::Responded),
        2 => (which(), any::<u64>()).prop_map(|(w, due)| Chance::Deadline(w, due)),
        1 => which().prop_map(Chance::View),
        1 => which().prop_map(Chance::Lost),
        1 => (0..9_u8).prop_map(Chance::StopAll),
        1 => (1..9_u8).prop_map(Chance::Bounds),
        3 => (0..9_u8, 0..4_usize, 0..9_u64).prop_map(|(k, f, n)| Chance::Post(k, f, n)),
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
        15 => call("pin_note", r#"{"note":"the port is 7070"}"#),
        16 => call("unpin_note", r#"{"note_id":"note_1"}"#),
        17 => call("read_result", r#"{"handle":"result_2_0","offset":7}"#),
        _ => call("build", "{}"),
    }
}

/// The arguments of a `spawn_thread`, for one who believes to be there.
fn spawn(path: &[ThreadId]) -> String {
    let path: Vec<String> = path.iter().map(|id| format!("\"{id}\"")).collect();
    format!(r#"{{"instructions":"look","child_of":[{}]}}"#, path.join(","))
}

/// Bounds of so much of everything.
fn narrow(most: u8) -> Bounds {
    let most = std::num::NonZeroU8::new(most).expect("the strategy gives none");
    Bounds {
        calls_per_turn_max: most.into(),
        refused_turns_max: most.into(),
        pending_max: most.into(),
        depth_max: most.get().into(),
        children_max: most.get().into(),
        subscriptions_max: most.get().into(),
        event_children_max: most.into(),
        events_queued_max: most.get().into(),
    }
}

/// The root above the thread, when that is a child.
const ROOT: ThreadId = ThreadId::from_bytes([6; 16]);

/// The thread comes into being as a child that inherits nothing.
fn birth() -> Record {
    let spawn = Cause { name: "spawn_thread".into(), provider_id: "s".into(), arguments: spawn(&[]) };
    let birth = Birth { ancestors: vec![ROOT], through: 1, fresh: true, spawn, event: None, terms: None };
    let id = PostId { from: ROOT, number: 2, index: 0 };
    Record::Post(Post { id, body: PostBody::Birth(Box::new(birth)) })
}

/// The thread comes into being to summarize what its parent has.
fn birth_of_a_summary() -> Record {
    let Record::Post(Post { id, body: PostBody::Birth(birth) }) = birth() else { unreachable!() };
    Record::Post(Post { id, body: PostBody::Summarize { birth, covers: 1, items: 1 } })
}

/// The record that this chance is for this thread.
pub(crate) fn record(thread: &Thread, chance: Chance) -> Record {
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
                    Wait::Call { call, .. }
                    | Wait::Timer { call, .. }
                    | Wait::Input { call: Some(call), .. }
                    | Wait::Question { call, .. } => Some(*call),
                    Wait::Model { .. } | Wait::Summary { .. } | Wait::Input { call: None, .. } => None,
                })
                .collect();
            open.get(at % open.len().max(1)).copied().unwrap_or(CallId { number: 2, index: at as u16 })
        }
    };
    match chance {
        Chance::Bounds(most) => Record::Bounds(narrow(most)),
        Chance::Message(id) => message(&id.to_string(), "hello, hello, hello"),
        Chance::Stop(id) => Record::Stop(Stop { id: InputId(id.to_string()), origin: person() }),
        Chance::Completion(s, blocks, end) => completion(seen(s), blocks.into_iter().map(block).collect(), end),
        Chance::Failure(s, false) => failure(seen(s)),
        Chance::Failure(s, true) => crate::compact::overflow(seen(s)),
        Chance::Compact(id) => crate::compact::by_hand(&id.to_string()),
        Chance::Crossed(s) => crate::compact::crossed(seen(s)),
        Chance::Accepted(w) => Record::Accepted(which(w)),
        Chance::Armed(w, due_ms) => Record::Armed { call: which(w), due_ms },
        Chance::Result(w, is_error, by_runtime, is_long) => {
            let tool = Origin { who: "tool:build".into(), proof: Proof::Process };
            let text = if is_long { "built ".repeat(9_000) } else { "built".to_owned() };
            result(which(w), &text, is_error, if by_runtime { Origin::runtime() } else { tool })
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
        Chance::Asked(w, kind) => question(
            which(w),
            match kind {
                0..=1 => approval(),
                2 => choice("which?"),
                3 => choice("and which now?"),
                _ => Asks::Authorization { url: "https://tool/authorize".into() },
            },
        ),
        Chance::Answered(which, id, answer) => {
            let open = thread.standing().waits.into_iter().filter_map(|wait| match wait {
                Wait::Question { question, .. } => Some(question),
                _ => None,
            });
            let question = which.map_or_else(|number| number, |nth| open.clone().nth(nth).unwrap_or(3));
            let answer = match answer {
                0..=1 => Decision::Approve,
                2 => Decision::Deny { reason: None },
                3 => Decision::Deny { reason: Some("not now".into()) },
                4 => Decision::Choose { index: 1 },
                _ => Decision::Choose { index: 2 },
            };
            verdict(&id.to_string(), question, answer)
        }
        Chance::Responded(number) => {
            let owed = thread.owed().into_iter().find_map(|effect| match effect {
                Effect::Respond(respond) => Some(respond.question),
                _ => None,
            });
            Record::Responded(owed.unwrap_or(number))
        }
        Chance::Deadline(w, due_ms) => Record::Deadline { call: which(w), due_ms },
        Chance::View(w) => Record::View(ViewUpdate {
            call: which(w),
            origin: person(),
            view_type: "diff".into(),
            content: "{}".into(),
        }),
        Chance::Lost(w) => Record::Lost(which(w)),
        Chance::StopAll(id) => Record::StopAll(Stop { id: InputId(id.to_string()), origin: person() }),
        Chance::Post(kind, from, number) => {
            let owed = posts(thread);
            let made_for_a_summary = |arrival: &&Arrival| match &arrival.record {
                Record::Post(post) => matches!(post.body, PostBody::Summarize { .. }),
                _ => false,
            };
            let from = match kind {
                5 | 6 => owed.iter().find(made_for_a_summary),
                _ => owed.get(from),
            };
            let from = from.map_or(ROOT, |arrival| arrival.thread);
            let body = match kind {
                0 if thread.last() == 0 => return birth(),
                0 => PostBody::Message("and this".into()),
                5 => PostBody::Summary {
                    covers: number,
                    text: "it".repeat(number as usize / 2),
                    usage: Usage::default(),
                },
                6 => PostBody::SummaryFailed { why: "no".into(), overflow: number > 4 },
                7 if thread.last() == 0 => return birth_of_a_summary(),
                1 => PostBody::Report { branch: from, text: "done".into() },
                2 => PostBody::Report { branch: ROOT, text: "done".into() },
                3 => PostBody::Closed,
                8 => PostBody::Stop,
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

pub(crate) fn chances() -> impl Strategy<Value = Vec<Chance>> {
    // Nearly every second thread is a child, and some are made for a summary.
    (0..9_u8, prop::collection::vec(chance(), 1..120)).prop_map(|(is, mut chances)| {
        match is {
            0..=3 => chances.insert(0, Chance::Post(0, 0, 0)),
            4 => chances.insert(0, Chance::Post(7, 0, 0)),
            _ => {}
        }
        chances
    })
}
