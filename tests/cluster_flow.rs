//! The flow of a cluster in Hydro's simulator: two gateways, two shards, two toolhosts, and posts between the threads of a shard.
//!
//! In: the inputs of a situation, at either gateway. Out: what is true of every schedule of both shards and of the network.
//! Always: what crosses between locations is what the cluster's topology sends; the adapters, which are sidecars there, are
//! played here; the number of executions of a small situation is asserted, a larger one is fuzzed
//! (`SLACKWATER_CLUSTER_EXECUTIONS`, 100 by default).

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "support/cluster_world.rs"]
mod cluster_world;
#[allow(dead_code, reason = "shared with the other flows")]
#[path = "support/world.rs"]
mod world;

use cluster_world::{ClusterEnds, ClusterWorld, SHARDS, TOOLHOSTS, built, message_at};
use hydro_lang::prelude::*;
use slackwater_core::effect::Outcome;
use slackwater_core::id::{CallId, ThreadId, shard_of};
use slackwater_core::thread::State;
use world::*;

hydro_lang::macro_support::ctor::declarative::ctor!(
    #[ctor(unsafe)]
    fn init() {
        hydro_lang::compile::init_test();
    }
);

/// How many executions of the large situation are tried.
fn executions() -> usize {
    std::env::var("SLACKWATER_CLUSTER_EXECUTIONS").map_or(100, |text| text.parse().expect("a number"))
}

/// Threads by number that are at this shard.
fn at(shard: u32) -> impl DoubleEndedIterator<Item = u8> {
    (1..200).filter(move |&n| shard_of(thread(n), SHARDS) == shard)
}

#[test]
fn the_cluster_in_every_schedule() {
    let mut flow = FlowBuilder::new();
    let (ends, shards, toolhosts) =
        ClusterEnds::of(&mut flow, |told| told.map(q!(|told| format!("{told:?}"))).sim_output());
    let ends = std::panic::AssertUnwindSafe(ends);
    let compiled = flow
        .sim()
        .with_cluster_size(&shards, SHARDS as usize)
        .with_cluster_size(&toolhosts, TOOLHOSTS as usize)
        .unit_test_fuzz_iterations(executions())
        .compiled();
    let (near, far) = (at(0).next().unwrap(), at(1).next().unwrap());
    let other = at(0).nth(1).unwrap();

    // What was explored and what should have been, told together at the end.
    let mut counts: Vec<(&str, usize, usize)> = Vec::new();
    macro_rules! situation {
        ($name:literal, $executions:literal, |$world:ident| $body:block) => {
            let explored = compiled.exhaustive(async || {
                let mut $world = ClusterWorld::default();
                $body
            });
            eprintln!("{}: {explored} executions", $name);
            counts.push(($name, explored, $executions));
        };
    }

    situation!("each gateway asks for a thread of another shard", 48, |world| {
        ends.ask(0, message_at(0, near, 1, "hello"));
        ends.ask(1, message_at(1, far, 1, "good day"));
        world.settle(&ends).await;
        // The same number of a request at two gateways: each has its own answer.
        let taken = Outcome::Taken(1);
        assert_eq!((world.told(0, 1, &taken), world.told(1, 1, &taken), world.answers()), (1, 1, 2));
        for n in [near, far] {
            let reply = says(&world.prompt_of(thread(n)), "hi");
            ends.model_says(reply);
        }
        world.settle(&ends).await;
        assert_eq!(world.plain.view(thread(near)), ["user: hello", "model: hi"]);
        assert_eq!(world.plain.view(thread(far)), ["user: good day", "model: hi"]);
        // Clients may be at any gateway: both are shown both threads.
        for n in [near, far] {
            assert!(world.shown(0, thread(n)).len() >= 2);
            assert_eq!(world.shown(0, thread(n)), world.shown(1, thread(n)));
        }
        world.assert_at_rest(&[thread(near), thread(far)]);
    });

    situation!("the same message through both gateways", 10, |world| {
        ends.ask(0, message_at(0, near, 1, "hello"));
        ends.ask(1, message_at(1, near, 2, "hello"));
        world.settle(&ends).await;
        let (taken, duplicate) = (Outcome::Taken(1), Outcome::Duplicate(1));
        let first_is_taken = (world.told(0, 1, &taken), world.told(1, 2, &duplicate)) == (1, 1);
        let second_is_taken = (world.told(0, 1, &duplicate), world.told(1, 2, &taken)) == (1, 1);
        assert!(first_is_taken != second_is_taken, "same_id_once: {:?}", world.told);
        assert_eq!(world.answers(), 2);
        ends.model_says(says(&world.prompt_of(thread(near)), "hi"));
        world.settle(&ends).await;
        assert_eq!(world.plain.view(thread(near)), ["user: hello", "model: hi"]);
        world.assert_at_rest(&[thread(near)]);
    });

    situation!("a child is made, reports and closes while the other shard works", 1836, |world| {
        ends.ask(0, message_at(0, near, 1, "have it looked at"));
        world.settle(&ends).await;
        let root = thread(near);
        ends.model_says(many_calls(&world.prompt_of(root), &[spawn("look")]));
        world.settle(&ends).await;
        let child = root.child(CallId { number: 2, index: 0 });
        assert_eq!(shard_of(child, SHARDS), 0, "a tree is at one shard");
        ends.model_says(says(&world.prompt_of(root), "it is looked at"));
        ends.model_says(many_calls(&world.prompt_of(child), &[report_and_close(child, "all green")]));
        ends.ask(1, message_at(1, far, 1, "hello"));
        world.settle(&ends).await;
        ends.model_says(says(&world.prompt_of(root), "good"));
        ends.model_says(says(&world.prompt_of(thread(far)), "hi"));
        world.settle(&ends).await;
        let view = world.plain.view(root);
        let told = view.iter().filter(|line| line.ends_with("all green")).count();
        assert_eq!((told, view.last().unwrap().as_str()), (1, "model: good"), "{view:?}");
        assert_eq!(world.plain.fold(child).standing().state, State::Closed);
        world.assert_at_rest(&[root, child, thread(far)]);
    });

    situation!("two shards call tools, and both have their results", 6912, |world| {
        ends.ask(0, message_at(0, near, 1, "build it"));
        ends.ask(1, message_at(1, far, 1, "build it, too"));
        world.settle(&ends).await;
        for n in [near, far] {
            ends.model_says(calls(&world.prompt_of(thread(n)), "build", "{}"));
        }
        world.settle(&ends).await;
        let calls = std::mem::take(&mut world.plain.calls);
        assert_eq!(calls.len(), 2, "each call is at one toolhost, once");
        calls.iter().for_each(|call| ends.tool_says(built(call)));
        world.settle(&ends).await;
        for n in [near, far] {
            ends.model_says(says(&world.prompt_of(thread(n)), "it is built"));
        }
        world.settle(&ends).await;
        for n in [near, far] {
            let view = world.plain.view(thread(n));
            assert_eq!(view.iter().filter(|line| *line == "Tool: built").count(), 1, "{view:?}");
        }
        world.assert_at_rest(&[thread(near), thread(far)]);
    });

    situation!("a shard dies between two commits", 72, |world| {
        // The first message of each thread is durable; the second's batch is lost with the shard, and so is its cell.
        ends.ask(0, message_at(0, near, 1, "one"));
        ends.ask(1, message_at(1, far, 1, "two"));
        world.settle(&ends).await;
        ends.model_says(calls(&world.prompt_of(thread(far)), "build", "{}"));
        world.settle(&ends).await;
        let before = world.plain.calls.pop().unwrap();
        world.lose_batches_of = Some(0);
        ends.ask(0, message_at(0, other, 2, "three"));
        world.settle(&ends).await;
        assert_eq!(world.answers(), 2, "acknowledged_is_durable");

        // The wired group starts again on what is durable. The same flow goes on with the threads under new names, which are
        // at the same shards: what is in memory of the first run is of no use to them.
        let (mut world, renamed) = world.restart(&ends);
        world.settle(&ends).await;
        let [new_near, new_far] = [near, far].map(|n| renamed[&thread(n)]);
        assert_eq!(world.plain.prompts.iter().map(|prompt| prompt.thread).collect::<Vec<_>>(), [new_near]);
        let again = world.plain.calls.pop().unwrap();
        assert_eq!((again.thread, again.call), (new_far, before.call), "effects_have_names");
        assert!(world.plain.calls.is_empty());
        // Its client was told nothing and sends it again.
        let unlucky = at(0).rfind(|&n| !world.plain.journal.contains_key(&thread(n))).unwrap();
        ends.ask(0, message_at(0, unlucky, 2, "three"));
        world.settle(&ends).await;
        assert_eq!((world.told(0, 2, &Outcome::Taken(1)), world.answers()), (1, 1));
    });

    assert!(counts.iter().all(|(_, explored, expected)| explored == expected), "executions explored: {counts:?}");

    // Many threads, both gateways, trees and tools at once: too many schedules for all of them.
    compiled.fuzz(async || {
        let mut world = ClusterWorld::default();
        let roots: Vec<ThreadId> = at(0).take(3).chain(at(1).take(3)).map(thread).collect();
        for (gateway, root) in [0, 1].into_iter().cycle().zip(&roots) {
            let n = root.as_bytes()[0];
            ends.ask(gateway, message_at(gateway, n, u64::from(n), "work"));
            // Sent again through the other one, as a client does that had no answer.
            ends.ask(1 - gateway, message_at(1 - gateway, n, u64::from(n), "work"));
        }
        world.settle(&ends).await;
        assert_eq!(world.answers(), 2 * roots.len());
        // Each root has a child look at it and a tool build it, and says one thing to all that comes of it.
        while let Some(prompt) = world.plain.prompts.pop() {
            let is_root = roots.contains(&prompt.thread);
            let reply = match (is_root, prompt.seen) {
                (true, 1..=2) => many_calls(&prompt, &[spawn("look"), ("build", "{}".to_owned())]),
                (true, _) => says(&prompt, "good"),
                (false, _) => many_calls(&prompt, &[report_and_close(prompt.thread, "all green")]),
            };
            ends.model_says(reply);
            while let Some(build) = world.plain.calls.pop() {
                ends.tool_says(built(&build));
            }
            world.settle(&ends).await;
        }
        for root in &roots {
            let view = world.plain.view(*root);
            for said in ["user: work", "Tool: built"] {
                assert_eq!(view.iter().filter(|line| *line == said).count(), 1, "same_id_once: {view:?}");
            }
            assert_eq!(view.iter().filter(|line| line.ends_with("all green")).count(), 1, "{view:?}");
        }
        world.assert_at_rest(&roots);
    });
}
