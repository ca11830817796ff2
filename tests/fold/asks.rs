//! The rules of questions to people: approvals, choices, authorizations, and stops of a subtree (behaviour, section 4).

use crate::story::{Story, approval, asked, call, choice, committed, person, question, say, verdict};
use crate::tree::{ROOT, Tree};
use slackwater_core::effect::{Effect, Outcome, Refusal, Shown, Wait};
use slackwater_core::id::{CallId, InputId};
use slackwater_core::port::NEVER;
use slackwater_core::record::{Asks, Decision, PostBody, Record, Stop, ViewUpdate};
use slackwater_core::thread::{QUESTIONS_MAX, State, Thread, invariant};

const HELD: &str = "interrupted 2.0: Interrupted by a new message before it was approved. The question stays open: if it is \
    approved later, the call is done and its result arrives as an event. Do not call it again.";

/// A thread whose call 2.0 waits for an approval: question 3.
fn asking() -> Story {
    let mut story = Story::new();
    story.message("a", "deploy it");
    story.turn(1, vec![call("deploy", r#"{"version":"1.2"}"#)]);
    let applied = story.asks(2, 0, approval());
    assert_eq!(asked(&applied), [""; 0], "no tool hears of it");
    story
}

fn refused(outcome: &Outcome) -> Refusal {
    let Outcome::Refused(why) = outcome else { panic!("{outcome:?} is no refusal") };
    *why
}

#[test]
fn a_call_that_waits_for_its_approval_costs_nothing_and_says_so() {
    let mut story = asking();
    assert_eq!(story.thread.owed(), []);
    assert!(story.thread.rest().is_some(), "the thread may leave memory");
    let standing = story.thread.standing();
    assert_eq!(standing.state, State::Asking);
    let wait = Wait::Question {
        question: 3,
        call: CallId { number: 2, index: 0 },
        name: "deploy".into(),
        arguments: r#"{"version":"1.2"}"#.into(),
        asks: approval(),
        since_ms: 3_000,
    };
    assert_eq!(standing.waits, [wait]);
    let again = story.asks(2, 0, approval());
    assert_eq!((again.outcome, again.effects), (Outcome::Duplicate(3), vec![]), "asked again after a crash");
}

#[test]
fn an_approved_call_is_done_once() {
    let mut story = asking();
    assert_eq!(asked(&story.decides("yes", 3, Decision::Approve)), ["approved dispatch 2.0 deploy"]);
    assert_eq!(story.thread.owed().len(), 1, "until the tool has it");
    assert_eq!(story.decides("yes", 3, Decision::Approve).outcome, Outcome::Duplicate(4));
    assert_eq!(refused(&story.decides("no", 3, Decision::Deny { reason: None }).outcome), Refusal::QuestionAnswered);
    assert_eq!(story.asks(2, 0, approval()).outcome, Outcome::Duplicate(3), "it is not asked twice");
    story.accepted(2, 0);
    assert_eq!(story.thread.owed(), []);
    story.result(2, 0, "1.2 is out");
    assert_eq!(story.prompt().unwrap().last().unwrap(), "tool 2.0: 1.2 is out");
}

#[test]
fn a_denied_call_is_answered_so() {
    for (reason, said) in [
        (None, "denied 2.0: Not done: denied by the user. Do not try it again unless you are asked to."),
        (Some("after six".to_owned()), "denied 2.0: Not done: denied by the user, who says: after six"),
    ] {
        let mut story = asking();
        assert_eq!(asked(&story.decides("no", 3, Decision::Deny { reason })), [""; 0]);
        assert_eq!(story.prompt().unwrap().last().unwrap(), said);
        assert!(matches!(story.result(2, 0, "done anyway").outcome, Outcome::Duplicate(_)));
    }
}

#[test]
fn an_answer_names_an_open_question_and_fits_it() {
    let mut story = asking();
    let choose = Decision::Choose { index: 0 };
    for question in [0, 1, 2, 4, 99] {
        assert_eq!(refused(&story.decides("x", question, Decision::Approve).outcome), Refusal::NoSuchQuestion);
    }
    assert_eq!(refused(&story.decides("x", 3, choose.clone()).outcome), Refusal::WrongAnswer);
    let mut story = Story::new();
    story.message("a", "deploy it");
    story.turn(1, vec![call("deploy", "{}")]);
    story.accepted(2, 0);
    story.asks(2, 0, choice("where?"));
    assert_eq!(refused(&story.decides("x", 4, Decision::Approve).outcome), Refusal::WrongAnswer);
    assert_eq!(refused(&story.decides("x", 4, Decision::Choose { index: 2 }).outcome), Refusal::NoSuchChoice);
    // What is refused has no name yet.
    assert_eq!(story.decides("x", 4, choose).outcome, Outcome::Taken(7));
}

#[test]
fn a_question_is_asked_only_for_a_call_that_is_under_way() {
    let mut story = asking();
    let of = |story: &mut Story, number, index, asks| refused(&story.asks(number, index, asks).outcome);
    assert_eq!(of(&mut story, 2, 1, approval()), Refusal::NoSuchCall);
    assert_eq!(of(&mut story, 2, 0, choice("which?")), Refusal::NoSuchCall, "no tool knows of the call yet");
    story.decides("yes", 3, Decision::Approve);
    story.accepted(2, 0);
    story.result(2, 0, "done");
    assert_eq!(of(&mut story, 2, 0, choice("which?")), Refusal::QuestionWithdrawn);
    let mut story = Story::new();
    story.message("a", "sleep");
    story.turn(1, vec![call("sleep", r#"{"seconds":9}"#), call("build", "{}")]);
    assert_eq!(of(&mut story, 2, 0, approval()), Refusal::NoSuchCall);
    story.accepted(2, 1);
    assert_eq!(of(&mut story, 2, 1, approval()), Refusal::NoSuchCall, "it is under way already");
    story.message("b", "wait");
    assert_eq!(of(&mut story, 2, 1, choice("which?")), Refusal::QuestionWithdrawn, "nobody waits for it");
}

#[test]
fn text_answers_no_question() {
    let mut story = asking();
    let applied = story.message("b", "yes");
    assert_eq!(asked(&applied), [""; 0], "nothing is done, and nothing cancelled");
    assert_eq!(story.prompt().unwrap()[2..], [HELD.to_owned(), "user: yes".to_owned()]);
}

/// The message and what was approved are both before the model.
#[test]
fn a_message_while_an_approval_is_pending_and_the_approval_after_it_are_both_seen() {
    let mut story = asking();
    story.message("b", "and tell me the time");
    let waits = story.thread.standing().waits;
    assert!(matches!(waits[..], [Wait::Question { question: 3, .. }, Wait::Model { .. }]), "{waits:?}");
    assert_eq!(asked(&story.decides("yes", 3, Decision::Approve)), ["approved dispatch 2.0 deploy"]);
    assert!(story.thread.rest().is_none());
    story.result(2, 0, "1.2 is out");
    let expected =
        ["user: deploy it", "turn: [deploy]", HELD, "user: and tell me the time", "event of deploy-id: 1.2 is out"];
    assert_eq!(story.prompt().unwrap(), expected);
}

#[test]
fn an_approval_after_the_turn_is_done_and_its_result_wakes_the_thread() {
    let mut story = asking();
    story.message("b", "never mind");
    story.turn(4, vec![say("well")]);
    assert!(story.thread.rest().is_some() && story.prompt().is_none());
    let waits = story.thread.standing().waits;
    assert!(matches!(waits[..], [Wait::Question { question: 3, .. }, Wait::Input { .. }]), "{waits:?}");
    story.decides("yes", 3, Decision::Approve);
    assert!(story.prompt().is_none(), "the model is not asked before there is a result");
    assert_eq!(story.thread.owed().len(), 1);
    story.accepted(2, 0);
    assert!(story.thread.rest().is_some());
    story.deadline(2, 0, 99_000);
    let call = CallId { number: 2, index: 0 };
    assert_eq!(story.thread.rest().unwrap().timers, [(call, 99_000), (call, NEVER)]);
    assert_eq!(asked(&story.result(2, 0, "1.2 is out")), ["disarm 2.0"]);
    assert_eq!(story.prompt().unwrap().last().unwrap(), "event of deploy-id: 1.2 is out");
}

#[test]
fn a_denial_after_the_turn_is_an_event() {
    let mut story = asking();
    story.message("b", "never mind");
    story.turn(4, vec![say("well")]);
    story.decides("no", 3, Decision::Deny { reason: Some("too late".into()) });
    let last = "event of deploy-id: Not done: denied by the user, who says: too late";
    assert_eq!(story.prompt().unwrap().last().unwrap(), last);
}

#[test]
fn a_stop_withdraws_every_question() {
    let mut story = asking();
    assert_eq!(asked(&story.stop("s")), [""; 0], "no tool has heard of the call");
    assert_eq!(refused(&story.decides("yes", 3, Decision::Approve).outcome), Refusal::QuestionWithdrawn);
    // Also one whose call a message came before; the model is told with its next input.
    let mut story = asking();
    story.message("b", "never mind");
    story.turn(4, vec![say("well")]);
    story.stop("s");
    assert_eq!(refused(&story.decides("yes", 3, Decision::Approve).outcome), Refusal::QuestionWithdrawn);
    assert_eq!(story.prompt(), None);
    story.message("c", "go on");
    let notice =
        "event of deploy-id: Not done, and not to be approved any more, because this thread was stopped: deploy.";
    assert_eq!(story.prompt().unwrap()[5..], [notice, "user: go on"]);
}

#[test]
fn a_stop_ends_what_was_approved_late() {
    let mut story = asking();
    story.message("b", "never mind");
    story.turn(4, vec![say("well")]);
    story.decides("yes", 3, Decision::Approve);
    story.deadline(2, 0, 99_000);
    assert_eq!(asked(&story.stop("s")), ["disarm 2.0", "cancel 2.0 deploy"]);
    assert_eq!(story.thread.owed(), []);
    story.result(2, 0, "done all the same");
    assert_eq!(story.prompt(), None, "it does not set a stopped thread going");
    assert_eq!(story.thread.standing().pending, 1);
}

#[test]
fn two_that_ask_are_answered_in_any_order() {
    let mut story = Story::new();
    story.message("a", "both");
    story.turn(1, vec![call("left", "{}"), call("right", "{}"), call("build", "{}")]);
    story.asks(2, 0, approval());
    story.accepted(2, 1);
    story.asks(2, 1, choice("right where?"));
    story.result(2, 2, "built");
    assert_eq!(
        asked(&story.decides("one", 5, Decision::Choose { index: 1 })),
        ["respond 1 to 2.1 at http://tool/answer"]
    );
    assert_eq!(asked(&story.decides("two", 3, Decision::Approve)), ["approved dispatch 2.0 left"]);
    assert_eq!(story.thread.owed().len(), 2, "nothing else is done again");
    story.result(2, 0, "left is done");
    story.result(2, 1, "right is done");
    let expected = ["tool 2.2: built", "tool 2.0: left is done", "tool 2.1: right is done"];
    assert_eq!(story.prompt().unwrap()[2..], expected);
}

#[test]
fn a_choice_is_owed_to_the_tool_until_it_knows() {
    let mut story = Story::new();
    story.message("a", "deploy it");
    story.turn(1, vec![call("deploy", "{}")]);
    // The tool may ask before it has said that it took the call over.
    story.asks(2, 0, choice("where?"));
    story.accepted(2, 0);
    assert_eq!(story.asks(2, 0, choice("where?")).outcome, Outcome::Duplicate(3));
    assert!(story.thread.rest().is_some(), "while the person thinks");
    story.decides("there", 3, Decision::Choose { index: 0 });
    story.accepted(2, 0);
    assert!(story.thread.rest().is_none(), "that the call was taken over says nothing of the choice");
    assert!(matches!(&story.thread.owed()[..], [Effect::Respond(respond)] if respond.selected == 0));
    story.apply(Record::Responded(2));
    assert_eq!(story.thread.owed().len(), 1, "another question's");
    story.apply(Record::Responded(3));
    assert_eq!(story.thread.owed(), []);
    // The call goes on; the same question may come again.
    assert_eq!(story.asks(2, 0, choice("where?")).outcome, Outcome::Taken(10));
    assert_eq!(story.asks(2, 0, choice("sure?")).outcome, Outcome::Taken(11));
    assert_eq!(refused(&story.decides("x", 10, Decision::Choose { index: 0 }).outcome), Refusal::QuestionWithdrawn);
    assert_eq!(asked(&story.message("b", "stop that")), ["cancel 2.0 deploy"], "a tool that waits is told");
    assert_eq!(refused(&story.decides("x", 11, Decision::Choose { index: 0 }).outcome), Refusal::QuestionWithdrawn);
}

#[test]
fn an_authorization_ends_with_the_result() {
    let mut story = Story::new();
    story.message("a", "read my mail");
    story.turn(1, vec![call("mail", "{}")]);
    story.accepted(2, 0);
    let asks = Asks::Authorization { url: "https://mail/authorize".into() };
    let applied = story.asks(2, 0, asks.clone());
    let shown = applied.effects.iter().any(|effect| {
        matches!(effect, Effect::Tell(output) if matches!(&output.shown, Shown::Question { asks: shown, .. } if *shown == asks))
    });
    assert!(shown, "clients see where to go");
    assert_eq!(refused(&story.decides("x", 4, Decision::Approve).outcome), Refusal::WrongAnswer);
    story.result(2, 0, "no mail");
    assert_eq!(story.prompt().unwrap().last().unwrap(), "tool 2.0: no mail");
    assert_eq!(refused(&story.decides("x", 4, Decision::Approve).outcome), Refusal::QuestionWithdrawn);
}

#[test]
fn a_view_is_shown_and_is_nothing_to_the_model() {
    let mut story = Story::new();
    story.message("a", "build it");
    story.turn(1, vec![call("build", "{}")]);
    let view = |number| {
        let call = CallId { number, index: 0 };
        Record::View(ViewUpdate { call, origin: person(), view_type: "diff".into(), content: "{}".into() })
    };
    let applied = story.apply(view(2));
    assert_eq!(applied.effects.len(), 1, "one output, and no word of what the thread waits for: {:?}", applied.effects);
    assert_eq!(refused(&story.apply(view(1)).outcome), Refusal::NoSuchCall);
    story.result(2, 0, "built");
    assert_eq!(story.prompt().unwrap().len(), 3);
}

#[test]
fn a_stop_may_include_all_below() {
    let mut tree = Tree::default();
    tree.message(ROOT, "work");
    let child = tree.spawn(ROOT, "build", &[]);
    tree.deliver();
    let grandchild = tree.spawn(child, "build", &[child]);
    tree.deliver();
    for thread in [ROOT, child, grandchild] {
        tree.turn(thread, vec![call("build", "{}")]);
    }
    let stop = |id: &str| Stop { id: InputId(id.into()), origin: person() };
    tree.apply(ROOT, Record::Stop(stop("alone")));
    tree.deliver();
    let states = |tree: &Tree| [ROOT, child, grandchild].map(|thread| tree.threads[&thread].standing().state);
    assert_eq!(states(&tree), [State::Idle, State::Working, State::Working]);
    let applied = tree.apply(ROOT, Record::StopAll(stop("all")));
    assert_eq!(applied.outcome, Outcome::Taken(tree.threads[&ROOT].last()));
    tree.deliver();
    assert_eq!(states(&tree), [State::Idle; 3]);
    let stops = tree.told.iter().filter(|(_, shown)| *shown == Shown::Stopped).count();
    assert_eq!(stops, 4);
    assert!(tree.threads.values().all(|thread| thread.rest().is_some()), "nothing is owed");
    let again = tree.apply(ROOT, Record::StopAll(stop("all")));
    assert!(matches!(again.outcome, Outcome::Duplicate(_)) && again.effects.is_empty());
    // Only a parent's word counts.
    let posts: Vec<PostBody> = tree
        .posts
        .iter()
        .filter_map(|arrival| match &arrival.record {
            Record::Post(post) => Some(post.body.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(posts, []);
}

#[test]
fn a_thread_that_closes_withdraws_its_questions_and_tells_the_tools() {
    let mut tree = Tree::default();
    tree.message(ROOT, "work");
    let child = tree.spawn(ROOT, "deploy", &[]);
    tree.deliver();
    tree.turn(child, vec![call("deploy", "{}")]);
    let number = tree.threads[&child].last();
    tree.apply(child, question(CallId { number, index: 0 }, approval()));
    tree.message(child, "never mind");
    let close = format!(r#"{{"thread_id":"{child}"}}"#);
    tree.turn(child, vec![call("close_thread", &close)]);
    assert!(tree.asked.contains(&Effect::Close(child)));
    let cancels = tree.asked.iter().filter(|effect| matches!(effect, Effect::Cancel(_))).count();
    assert_eq!(cancels, 0, "no tool has heard of the call");
    let late = tree.apply(child, verdict("x", number + 1, Decision::Approve));
    assert_eq!(late.outcome, Outcome::Refused(Refusal::Closed));
}

/// Answered and withdrawn questions make room; when all are open, there is none.
#[test]
fn questions_are_bounded() {
    let mut story = Story::new();
    story.message("a", "ask");
    story.turn(1, vec![call("one", "{}"), call("two", "{}")]);
    story.accepted(2, 0);
    let mut thread = story.thread.clone();
    let ask = |thread: &mut Thread, index, asks| {
        let record = question(CallId { number: 2, index }, asks);
        thread.apply(committed(thread.last() + 1, record)).outcome
    };
    let first = thread.last() + 1;
    for number in 0..=QUESTIONS_MAX {
        let outcome = ask(&mut thread, 0, choice(&format!("is it {number}?")));
        assert!(matches!(outcome, Outcome::Taken(_)), "{number}: {outcome:?}");
    }
    invariant::check(&thread).unwrap();
    let answer = |thread: &mut Thread, question| {
        let record = verdict("x", question, Decision::Choose { index: 0 });
        thread.apply(committed(thread.last() + 1, record)).outcome
    };
    assert_eq!(refused(&answer(&mut thread, first)), Refusal::NoSuchQuestion, "it is forgotten");
    assert_eq!(refused(&answer(&mut thread, first + 1)), Refusal::QuestionWithdrawn);
    let last = thread.last() - 2;
    assert!(matches!(answer(&mut thread, last), Outcome::Taken(_)));
    // What a tool is being told is not forgotten.
    ask(&mut thread, 1, approval());
    assert_eq!(thread.owed().len(), 1);
    thread.apply(committed(thread.last() + 1, Record::Responded(last)));
    assert_eq!(thread.owed(), []);
    invariant::check(&thread).unwrap();
}

/// Three calls, one steer, one approval and one timer, in every order in which they can come: all is answered once, the
/// approved call is done once, and the model has seen the steer.
#[test]
fn three_calls_a_steer_an_approval_and_a_timer_in_all_orders() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Move {
        /// The first tool answers.
        Left,
        /// The second tool's time is over.
        Timer,
        /// A person approves the third call.
        Approve,
        /// The third tool answers, once it was asked.
        Right,
        /// A user writes.
        Steer,
        /// The second tool answers all the same, after its time.
        Late,
    }
    const MOVES: [Move; 6] = [Move::Left, Move::Timer, Move::Approve, Move::Right, Move::Steer, Move::Late];

    fn orders(before: &[Move], all: &mut Vec<Vec<Move>>) {
        if before.len() == MOVES.len() {
            all.push(before.to_vec());
        }
        for next in MOVES {
            let waits_for = match next {
                Move::Right => Some(Move::Approve),
                Move::Late => Some(Move::Timer),
                _ => None,
            };
            if !before.contains(&next) && waits_for.is_none_or(|first| before.contains(&first)) {
                orders(&[before, &[next]].concat(), all);
            }
        }
    }

    let mut all = Vec::new();
    orders(&[], &mut all);
    assert_eq!(all.len(), 180, "six moves, two of which have another before them");
    // The model answers at once, or only when all have come.
    for (order, eager) in all.iter().flat_map(|order| [(order, true), (order, false)]) {
        let mut story = Story::new();
        story.message("a", "all three");
        story.turn(1, vec![call("left", "{}"), call("slow", "{}"), call("right", "{}")]);
        story.accepted(2, 0);
        story.accepted(2, 1);
        story.deadline(2, 1, 60_000);
        story.asks(2, 2, approval());
        let mut done = Vec::new();
        for next in order {
            let applied = match next {
                Move::Left => story.result(2, 0, "left is done"),
                Move::Timer => story.fired(2, 1),
                Move::Approve => story.decides("yes", 6, Decision::Approve),
                Move::Right => story.result(2, 2, "right is done"),
                Move::Steer => story.message("steer", "faster"),
                Move::Late => story.result(2, 1, "slow is done"),
            };
            done.extend(asked(&applied).into_iter().filter(|what| what.contains("dispatch")));
            if let Some(prompt) = story.thread.prompt()
                && eager
            {
                story.turn(prompt.seen, vec![say("well")]);
            }
        }
        while let Some(prompt) = story.thread.prompt() {
            story.turn(prompt.seen, vec![say("well")]);
        }
        assert_eq!(done, ["approved dispatch 2.2 right"], "{order:?}");
        let history = story.history();
        let place = |what: &str| {
            let mut found = history.iter().enumerate().filter(|(_, line)| line.ends_with(what)).map(|(at, _)| at);
            let place = found.next().unwrap_or_else(|| panic!("{order:?}: no {what:?} in {history:?}"));
            assert_eq!(found.next(), None, "{order:?}: {what:?} is there twice");
            place
        };
        for what in ["left is done", "slow is done", "right is done", ": faster"] {
            place(what);
        }
        assert_eq!(story.thread.owed(), [], "{order:?}");
        assert_eq!(story.thread.rest().map(|rest| rest.timers), Some(vec![]), "{order:?}");
        let waits = story.thread.standing().waits;
        assert!(matches!(waits[..], [Wait::Input { .. }]), "{order:?}: {waits:?}");
    }
}
