//! The agent loop in Hydro's simulator: named situations, each explored exhaustively, with the number of executions.
//!
//! In: the inputs of a situation. Out: what is true of every schedule (batches, interleavings of sources) that the simulator
//! finds. Always: the flow is compiled once; a number of executions that changes is a flow that changed.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/world.rs"]
mod world;

use hydro_lang::prelude::*;
use slackwater_core::effect::Outcome;
use slackwater_core::port::{FromJournal, ToTimer};
use slackwater_core::record::*;
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
