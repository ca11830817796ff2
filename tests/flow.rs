//! The agent loop in Hydro's simulator: named situations, each explored exhaustively, with the number of executions.
//!
//! In: the inputs of a situation. Out: what is true of every schedule (batches, interleavings of sources) that the simulator
//! finds. Always: the flow is compiled once; a number of executions that changes is a flow that changed.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/world.rs"]
mod world;

use hydro_lang::prelude::*;
use slackwater_core::effect::{Outcome, Refusal};
use slackwater_core::id::{CallId, InputId};
use slackwater_core::port::{FromGateway, FromJournal, FromModel, ToTimer};
use slackwater_core::record::*;
use slackwater_core::thread::State;
use world::*;

hydro_lang::macro_support::ctor::declarative::ctor!(
    #[ctor(unsafe)]
    fn init() {
        hydro_lang::compile::init_test();
    }
);

#[test]
fn agent_loop_in_every_schedule() {
    let mut flow = FlowBuilder::new();
    let ends = std::panic::AssertUnwindSafe(Ends::of(&mut flow));
    let compiled = flow.sim().compiled();
    let a = thread(1);
    let b = thread(2);

    macro_rules! situation {
        ($name:literal, $executions:literal, |$world:ident| $body:block) => {
            let explored = compiled.exhaustive(async || {
                let mut $world = World::default();
                $body
            });
            eprintln!("{}: {explored} executions", $name);
            assert_eq!(explored, $executions, "{}: the number of executions explored", $name);
        };
    }

    situation!("one thread", 1, |world| {
        ends.from_gateway.send(message(1, 1, "hello"));
        world.settle(&ends).await;
        assert_eq!(world.outcomes, [(1, Outcome::Taken(1))], "acknowledged_is_durable");
        ends.from_model.send(says(&world.prompt(), "hi"));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: hello", "model: hi"]);
        world.assert_at_rest(&[a], 1);
    });

    situation!("two threads", 9, |world| {
        ends.from_gateway.send_many([message(1, 1, "hello"), message(2, 2, "good day")]);
        world.settle(&ends).await;
        assert_eq!(world.prompts.len(), 2, "threads do not wait for each other");
        let replies: Vec<_> = world.prompts.drain(..).map(|prompt| says(&prompt, "hi")).collect();
        ends.from_model.send_many(replies);
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: hello", "model: hi"]);
        assert_eq!(world.view(b), ["user: good day", "model: hi"]);
        world.assert_at_rest(&[a, b], 2);
    });

    situation!("duplicate message", 3, |world| {
        ends.from_gateway.send_many([message(1, 1, "hello"), message(1, 2, "hello")]);
        world.settle(&ends).await;
        assert_eq!(world.outcomes, [(1, Outcome::Taken(1)), (2, Outcome::Duplicate(1))], "same_id_once");
        ends.from_model.send(says(&world.prompt(), "hi"));
        world.settle(&ends).await;
        // Once more, when the thread has long left memory.
        ends.from_gateway.send(message(1, 3, "hello"));
        world.settle(&ends).await;
        assert_eq!(world.outcomes[2], (3, Outcome::Duplicate(1)), "same_id_once");
        assert_eq!(world.view(a), ["user: hello", "model: hi"]);
        assert_eq!(world.prompted, 1);
        world.assert_at_rest(&[a], 3);
    });

    situation!("two messages at once", 3, |world| {
        ends.from_gateway.send_many([message(1, 1, "one"), message(1, 2, "two")]);
        world.settle(&ends).await;
        // Either the tick took both, or the first was prompted and then cut.
        while let Some(prompt) = world.prompts.pop() {
            let cut = world.cuts.contains(&prompt.seen);
            ends.from_model.send(if cut { completion(&prompt, vec![], End::Cut) } else { says(&prompt, "hi") });
            world.settle(&ends).await;
        }
        assert_eq!(world.view(a), ["user: one", "user: two", "model: hi"], "batches are not remembered");
        world.assert_at_rest(&[a], 2);
    });

    situation!("result while cold", 1, |world| {
        ends.from_gateway.send(message(1, 1, "build it"));
        world.settle(&ends).await;
        ends.from_model.send(calls(&world.prompt(), "build", "{}"));
        world.settle(&ends).await;
        let call = world.calls.pop().unwrap();
        assert!(world.rests.is_empty(), "a call that nobody took over keeps its thread awake");
        ends.from_tool.send(accepted(&call));
        world.settle(&ends).await;
        assert_eq!(world.rests.len(), 1, "an_idle_thread_is_data");
        ends.from_gateway.send(result(2, &call, "built"));
        world.settle(&ends).await;
        assert_eq!(world.recalls, 1);
        assert_eq!(world.outcomes[1], (2, Outcome::Taken(4)));
        ends.from_model.send(says(&world.prompt(), "done"));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: build it", "model: build()", "Tool: built", "model: done"]);
        world.assert_at_rest(&[a], 2);
    });

    situation!("result and message while cold", 3, |world| {
        ends.from_gateway.send(message(1, 1, "build it"));
        world.settle(&ends).await;
        ends.from_model.send(calls(&world.prompt(), "build", "{}"));
        world.settle(&ends).await;
        let call = world.calls.pop().unwrap();
        ends.from_tool.send(accepted(&call));
        world.settle(&ends).await;
        ends.from_gateway.send_many([message(1, 2, "and?"), result(3, &call, "built")]);
        world.settle(&ends).await;
        while let Some(prompt) = world.prompts.pop() {
            let cut = world.cuts.contains(&prompt.seen);
            ends.from_model.send(if cut { completion(&prompt, vec![], End::Cut) } else { says(&prompt, "done") });
            world.settle(&ends).await;
        }
        // The message came first: the call has its substitute, and the real result is not lost.
        let view = world.view(a).join("\n");
        for said in ["Interrupted: ", "user: and?", "event of build: built"] {
            assert_eq!(view.matches(said).count(), 1, "every_call_has_one_result: {said} in\n{view}");
        }
        world.assert_at_rest(&[a], 3);
    });

    situation!("message during completion", 5, |world| {
        ends.from_gateway.send(message(1, 1, "one"));
        world.settle(&ends).await;
        let prompt = world.prompt();
        ends.from_gateway.send(message(1, 2, "two"));
        ends.from_model.send(says(&prompt, "to one"));
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "to two"));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: one", "model: to one", "user: two", "model: to two"]);
        world.assert_at_rest(&[a], 2);
    });

    situation!("message cuts a completion", 1, |world| {
        ends.from_gateway.send(message(1, 1, "one"));
        world.settle(&ends).await;
        let prompt = world.prompt();
        ends.from_gateway.send(message(1, 2, "two"));
        world.settle(&ends).await;
        assert_eq!(world.cuts, [prompt.seen]);
        ends.from_model.send(completion(&prompt, vec![Block::Text("to o".into())], End::Cut));
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "to two"));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: one", "model, cut: to o", "user: two", "model: to two"]);
        world.assert_at_rest(&[a], 2);
    });

    situation!("timer and message while asleep", 5, |world| {
        ends.from_gateway.send(message(1, 1, "wait"));
        world.settle(&ends).await;
        ends.from_model.send(calls(&world.prompt(), "sleep", r#"{"seconds": 60}"#));
        world.settle(&ends).await;
        assert_eq!(world.rests.last().unwrap().timers.len(), 1, "a thread asleep costs a timer entry");
        let Some(ToTimer::Arm { call, .. }) = world.timers.first().cloned() else { panic!("no timer") };
        ends.from_timer.send(arrival(None, a, Record::Fired(call)));
        ends.from_gateway.send(message(1, 2, "now"));
        world.settle(&ends).await;
        while let Some(prompt) = world.prompts.pop() {
            let cut = world.cuts.contains(&prompt.seen);
            ends.from_model.send(if cut { completion(&prompt, vec![], End::Cut) } else { says(&prompt, "up") });
            world.settle(&ends).await;
        }
        let view = world.view(a);
        assert_eq!(view.iter().filter(|line| line.starts_with("BuiltIn")).count(), 1, "every_call_has_one_result");
        assert_eq!(view.last().unwrap(), "model: up");
        world.assert_at_rest(&[a], 2);
    });

    situation!("three calls, a steer, an approval and a timer", 5427, |world| {
        ends.from_gateway.send(message(1, 1, "all three"));
        world.settle(&ends).await;
        let three = ["build", "slow", "deploy"].map(|name| (name, "{}".to_owned()));
        ends.from_model.send(many_calls(&world.prompt(), &three));
        world.settle(&ends).await;
        let [build, slow, deploy] = std::mem::take(&mut world.calls).try_into().unwrap();
        let asks = Asks::Approval { reason: "it is destructive".into() };
        let asked = Record::Asked(Question { call: deploy.call, origin: Origin::runtime(), asks });
        let deadline = Record::Deadline { call: slow.call, due_ms: 60_000 };
        ends.from_tool.send_many([
            accepted(&build),
            arrival(None, a, deadline),
            accepted(&slow),
            arrival(None, a, asked),
        ]);
        world.settle(&ends).await;
        let rest = world.rests.last().unwrap();
        let question = rest.through;
        assert!(rest.timers.contains(&(slow.call, 60_000)), "an_idle_thread_is_data: {rest:?}");
        // All of it comes at once; only the user's own words have an order.
        let (id, answer) = (InputId("yes".into()), Decision::Approve);
        let verdict = Record::Answered(Verdict { id, origin: Origin::runtime(), question, answer });
        ends.from_gateway.send_many([message(1, 2, "faster"), FromGateway::Submit(arrival(Some(3), a, verdict))]);
        ends.from_timer.send(arrival(None, a, Record::Fired(slow.call)));
        ends.from_tool.send(Arrival { ticket: None, ..result(0, &build, "built").into_submit().unwrap() });
        world.settle(&ends).await;
        let approved = world.calls.pop().unwrap();
        assert!(approved.approved && approved.call == deploy.call && world.calls.is_empty(), "it is done once");
        ends.from_gateway.send(result(4, &approved, "deployed"));
        world.settle(&ends).await;
        while let Some(prompt) = world.prompts.pop() {
            let cut = world.cuts.contains(&prompt.seen);
            ends.from_model.send(if cut { completion(&prompt, vec![], End::Cut) } else { says(&prompt, "well") });
            world.settle(&ends).await;
        }
        let view = world.view(a).join("\n");
        for said in ["user: faster", ": built", ": deployed"] {
            assert_eq!(view.matches(said).count(), 1, "every_call_has_one_result: {said} in\n{view}");
        }
        // The call that was too slow, and the one that the message came before if it did.
        let stood_in = view.matches("Timed out; ").count() + view.matches("Interrupted by a new message; ").count();
        assert_eq!(stood_in, 1 + view.matches("event of build: built").count(), "{view}");
        assert!(view.ends_with("model: well"), "the model has seen all of it: {view}");
        world.assert_at_rest(&[a], 4);
    });

    situation!("a child is made, reports and closes", 27, |world| {
        ends.from_gateway.send(message(1, 1, "have it looked at"));
        world.settle(&ends).await;
        ends.from_model.send(many_calls(&world.prompt(), &[spawn("look")]));
        world.settle(&ends).await;
        let child = a.child(CallId { number: 2, index: 0 });
        let of_child = world.prompt_of(child);
        assert_eq!(of_child.history.len(), 3, "the parent's message, and the child's own copy of the call");
        let of_root = world.prompt_of(a);
        ends.from_model.send_many([
            says(&of_root, "it is looked at"),
            many_calls(&of_child, &[report_and_close(child, "all green")]),
        ]);
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "good"));
        world.settle(&ends).await;
        let view = world.view(a);
        let told = view.iter().filter(|line| line.ends_with("all green")).count();
        assert_eq!((told, view.last().unwrap().as_str()), (1, "model: good"), "{view:?}");
        assert_eq!(world.fold(child).standing().state, State::Closed);
        world.assert_at_rest(&[a, child], 1);
        // A closed thread takes nothing; that it is closed is read from the journal.
        ends.from_gateway.send(FromGateway::Submit(arrival(Some(2), child, said("still there?"))));
        world.settle(&ends).await;
        assert_eq!(world.outcomes.last(), Some(&(2, Outcome::Refused(Refusal::Closed))));
    });

    situation!("two reports to a parent with an open call", 486, |world| {
        ends.from_gateway.send(message(1, 1, "build, and have it looked at"));
        world.settle(&ends).await;
        let calls = [("build", "{}".to_owned()), spawn("one"), spawn("two")];
        ends.from_model.send(many_calls(&world.prompt(), &calls));
        world.settle(&ends).await;
        let [one, two] = [1, 2].map(|index| a.child(CallId { number: 2, index }));
        let [of_one, of_two] = [one, two].map(|child| world.prompt_of(child));
        ends.from_model.send_many([
            many_calls(&of_one, &[report("one is green")]),
            many_calls(&of_two, &[report("two is green")]),
        ]);
        world.settle(&ends).await;
        assert!(world.prompts.iter().all(|prompt| prompt.thread != a), "a report interrupts no tool");
        let build = world.calls.pop().unwrap();
        ends.from_gateway.send(result(2, &build, "built"));
        world.settle(&ends).await;
        let replies: Vec<_> = world.prompts.drain(..).map(|prompt| says(&prompt, "good")).collect();
        assert_eq!(replies.len(), 3, "the parent has one prompt for all of it");
        for reply in replies {
            ends.from_model.send(reply);
            world.settle(&ends).await;
        }
        let view = world.view(a);
        for said in ["one is green", "two is green", "Tool: built"] {
            assert_eq!(view.iter().filter(|line| line.ends_with(said)).count(), 1, "{said} in {view:?}");
        }
        let results =
            view.iter().rposition(|line| line.starts_with("Tool: ") || line.starts_with("BuiltIn: ")).unwrap();
        let reports = view.iter().position(|line| line.starts_with("event of spawn_thread")).unwrap();
        assert!(results < reports, "an open call is answered directly after its turn: {view:?}");
        world.assert_at_rest(&[a, one, two], 2);
    });

    situation!("a flood of events of a subscription", 81, |world| {
        ends.from_gateway.send(message(1, 1, "watch"));
        world.settle(&ends).await;
        let one = Bounds { event_children_max: std::num::NonZeroU32::MIN, ..Bounds::DEFAULT };
        ends.from_model.send(FromModel::Answer(Box::new(arrival(None, a, Record::Bounds(one)))));
        world.settle(&ends).await;
        ends.from_model.send(calls(&world.prompt(), "watch", "{}"));
        world.settle(&ends).await;
        let watch = world.calls.pop().unwrap();
        ends.from_gateway.send(subscribed(2, &watch));
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "I watch"));
        world.settle(&ends).await;
        let before = world.view(a);
        ends.from_gateway.send_many([3, 4, 5].map(|ticket| event(ticket, &watch)));
        world.settle(&ends).await;
        // One at a time, in the order in which they came, and none of them in the parent's own history.
        for ticket in [3, 4, 5] {
            let prompt = world.prompt();
            assert_ne!(prompt.thread, a);
            let newest = prompt.history.newest_first().next().unwrap();
            assert!(format!("{newest:?}").contains(&format!("event {ticket}")), "{newest:?}");
            assert_eq!(world.fold(a).standing().children, 1);
            ends.from_model.send(many_calls(&prompt, &[close(prompt.thread)]));
            world.settle(&ends).await;
        }
        assert_eq!(world.view(a), before);
        assert_eq!(world.outcomes.len(), 5);
        assert!(world.outcomes.iter().all(|(_, outcome)| matches!(outcome, Outcome::Taken(_))));
        world.assert_at_rest(&[a], 5);
    });

    situation!("a summary races with a message and a result", 63, |world| {
        ends.from_gateway.send(message(1, 1, &format!("build it {}", "x".repeat(200))));
        world.settle(&ends).await;
        ends.from_model.send(calls(&world.prompt(), "build", "{}"));
        world.settle(&ends).await;
        let call = world.calls.pop().unwrap();
        ends.from_tool.send(accepted(&call));
        world.settle(&ends).await;
        ends.from_model.send(crossed(a, 1));
        ends.from_gateway.send_many([message(1, 2, "and?"), result(3, &call, "built")]);
        world.settle(&ends).await;
        // The thread goes on while its summary is being made; both may be answered at once.
        let mut summaries = 0;
        while !world.prompts.is_empty() {
            let replies: Vec<_> = world.prompts.drain(..).collect();
            summaries += replies.iter().filter(|prompt| prompt.thread != a).count();
            let cuts = world.cuts.clone();
            ends.from_model.send_many(replies.iter().map(|prompt| match prompt.thread == a {
                true if cuts.contains(&prompt.seen) => completion(prompt, vec![], End::Cut),
                true => says(prompt, "done"),
                false => says(prompt, "They talk."),
            }));
            world.settle(&ends).await;
        }
        let view = world.view(a);
        assert_eq!((view[0].as_str(), summaries), ("summary: They talk.", 1), "at most one attempt a crossing");
        for said in ["user: and?", "built"] {
            assert_eq!(view.iter().filter(|line| line.ends_with(said)).count(), 1, "{said} in {view:?}");
        }
        assert_eq!(view.last().unwrap(), "model: done");
        let summarizer = *world.journal.keys().find(|id| **id != a).unwrap();
        assert_eq!((world.journal.len(), world.fold(summarizer).standing().state), (2, State::Closed));
        world.assert_at_rest(&[a, summarizer], 3);
    });

    situation!("restart with a prompt and a call in flight", 12, |world| {
        // What an earlier run has left: thread a wants a completion, thread b waits for a tool that was never asked.
        ends.from_gateway.send_many([message(1, 1, "one"), message(2, 2, "build it")]);
        world.settle(&ends).await;
        let of_b = world.prompts.iter().position(|prompt| prompt.thread == b).unwrap();
        ends.from_model.send(calls(&world.prompts.remove(of_b), "build", "{}"));
        world.settle(&ends).await;
        let journal = std::mem::take(&mut world.journal);
        let before = world.calls.pop().unwrap();
        let mut world = World { journal, ..World::default() };
        // The same flow goes on as another shard's, with the threads of the first under new names: what is in memory of the
        // first run is of no use to it.
        let renamed = world.rename(10);
        ends.from_journal.send_many(renamed.iter().map(|&(thread, last)| FromJournal::Wake { thread, last }));
        world.settle(&ends).await;
        assert_eq!(world.recalls, 2);
        assert_eq!(world.prompts.iter().map(|prompt| prompt.thread).collect::<Vec<_>>(), [thread(11)]);
        let again = world.calls.pop().unwrap();
        assert_eq!((again.thread, again.call), (thread(12), before.call), "effects_have_names");
        assert!(world.calls.is_empty());
    });
}
