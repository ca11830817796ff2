//! The agent loop with operators at its seams, in Hydro's simulator.
//!
//! In: operators that refuse a message, a prompt and a call by a word in it. Out: what is true of every schedule. Always:
//! whoever sent what is refused has an answer, the thread goes on, and nothing refused at the first seam is recorded.

#![allow(clippy::unwrap_used, missing_docs, reason = "a test that cannot go on should stop")]

#[path = "seams/listen.rs"]
mod listen;
#[allow(dead_code, reason = "shared with the other flows")]
#[path = "support/world.rs"]
mod world;

use hydro_lang::prelude::*;
use slackwater_core::effect::{Declined, Outcome};
use slackwater_core::flow::operator::{Operated, Operators, Place, Seam, Verdict};
use slackwater_core::flow::{Port, agent_loop_with};
use slackwater_core::port::{FromModel, ToGateway, ToModel, ToTool};
use slackwater_core::record::*;
use world::*;

hydro_lang::macro_support::ctor::declarative::ctor!(
    #[ctor(unsafe)]
    fn init() {
        hydro_lang::compile::init_test();
    }
);

/// What is not let through has this word in it.
struct Forbidding;

// A quote in a test cannot name what the test has: these say all in themselves.
impl Operators for Forbidding {
    fn on_arrival<'a, L: Place<'a>>(&self, arrivals: Port<Arrival, L>) -> Seam<Verdict, L> {
        let notes = arrivals.clone().map(q!(|arrival| format!("{:?}", arrival.thread)));
        let judged = arrivals.map(q!(|arrival| {
            let forbidden = format!("{:?}", arrival.record).contains("forbidden");
            let why = || slackwater_core::effect::Declined { reason: "not here".to_owned(), retry_after_ms: None };
            match forbidden {
                true => slackwater_core::flow::operator::Verdict::Refuse(arrival, why()),
                false => slackwater_core::flow::operator::Verdict::Take(arrival),
            }
        }));
        Seam::of(judged).noting(notes)
    }

    fn on_prompt<'a, L: Place<'a>>(&self, prompts: Port<ToModel, L>) -> Seam<ToModel, L> {
        Seam::of(prompts.map(q!(|asked| match asked {
            slackwater_core::port::ToModel::Prompt(prompt) if format!("{prompt:?}").contains("too dear") => {
                slackwater_core::port::ToModel::Refuse(prompt, "no money".to_owned())
            }
            asked => asked,
        })))
    }

    fn on_call<'a, L: Place<'a>>(&self, calls: Port<ToTool, L>) -> Seam<ToTool, L> {
        Seam::of(calls.map(q!(|asked| match asked {
            slackwater_core::port::ToTool::Dispatch(dispatch) if dispatch.name == "wipe" => {
                slackwater_core::port::ToTool::Refuse(dispatch, "not here".to_owned())
            }
            asked => asked,
        })))
    }
}

#[test]
fn what_operators_refuse_is_answered_in_every_schedule() {
    let mut flow = FlowBuilder::new();
    let mut more = None;
    let ends = Ends::around(&mut flow, |inputs| {
        let Operated { outputs, answers, notes: [arrivals, prompts, calls, told] } =
            agent_loop_with(inputs, &Forbidding);
        for seam in [prompts, calls, told] {
            seam.for_each(q!(|note: String| panic!("nobody has noted {note}")));
        }
        more = Some((answers.sim_output(), arrivals.sim_output()));
        outputs
    });
    let (answers, notes) = more.unwrap();
    let (ends, answers, notes) = (
        std::panic::AssertUnwindSafe(ends),
        std::panic::AssertUnwindSafe(answers),
        std::panic::AssertUnwindSafe(notes),
    );
    let compiled = flow.sim().compiled();
    let a = thread(1);
    let declined = Outcome::Declined(Declined { reason: "not here".to_owned(), retry_after_ms: None });

    let refused_message = compiled.exhaustive(async || {
        let mut world = World::default();
        ends.from_gateway.send_many([message(1, 1, "hello"), message(1, 2, "forbidden"), message(2, 3, "forbidden")]);
        world.settle(&ends).await;
        for request in [2, 3] {
            let Some(ToGateway::Answer(ticket, outcome)) = answers.try_next().await else { panic!("no answer") };
            assert_eq!((ticket.request, &outcome), (request, &declined), "nothing_is_dropped_silently");
        }
        assert_eq!(world.outcomes, [(1, Outcome::Taken(1))]);
        assert_eq!(world.journal.len(), 1, "what is refused is not recorded, and makes no thread");
        for thread in [a, a, thread(2)] {
            assert_eq!(notes.try_next().await, Some(thread.to_string()), "each arrival is noted once, in order");
        }
        ends.from_model.send(says(&world.prompt(), "hi"));
        world.settle(&ends).await;
        world.assert_at_rest(&[a], 1);
    });

    let taken_completion = compiled.exhaustive(async || {
        let mut world = World::default();
        // A completion with the word is not refused: nobody waits for an answer to it, and its thread would wait for ever.
        ends.from_gateway.send(message(1, 1, "hello"));
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "that is forbidden"));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: hello", "model: that is forbidden"]);
        world.assert_at_rest(&[a], 1);
    });

    let refused_prompt = compiled.exhaustive(async || {
        let mut world = World::default();
        ends.from_gateway.send(message(1, 1, "too dear"));
        world.settle(&ends).await;
        assert!(world.prompts.is_empty());
        let (prompt, why) = world.refused_prompts.pop().unwrap();
        let failure = Failure { seen: prompt.seen, class: FailureClass::Fatal, message: why, attempts: 0 };
        ends.from_model.send(FromModel::Answer(Box::new(arrival(None, a, Record::Failure(failure)))));
        world.settle(&ends).await;
        assert_eq!(world.view(a), ["user: too dear"]);
        world.assert_at_rest(&[a], 1);
    });

    let refused_call = compiled.exhaustive(async || {
        let mut world = World::default();
        ends.from_gateway.send(message(1, 1, "clean up"));
        world.settle(&ends).await;
        ends.from_model.send(many_calls(&world.prompt(), &[("wipe", "{}".to_owned()), ("sweep", "{}".to_owned())]));
        world.settle(&ends).await;
        let sweep = world.calls.pop().unwrap();
        assert_eq!((sweep.name.as_str(), world.calls.len()), ("sweep", 0));
        let (wipe, why) = world.refused_calls.pop().unwrap();
        let refused = ToolResult {
            call: wipe.call,
            origin: Origin::runtime(),
            content: vec![Content::Text(why)],
            is_error: true,
            subscription: false,
            display: None,
        };
        // The adapter says it, and the other tool answers, in any order.
        ends.from_tool.send(arrival(None, a, Record::Result(refused)));
        ends.from_gateway.send(result(2, &sweep, "swept"));
        world.settle(&ends).await;
        ends.from_model.send(says(&world.prompt(), "done"));
        world.settle(&ends).await;
        let view = world.view(a);
        for said in ["not here", "swept"] {
            assert_eq!(
                view.iter().filter(|line| line.ends_with(said)).count(),
                1,
                "every_call_has_one_result: {view:?}"
            );
        }
        world.assert_at_rest(&[a], 2);
    });
    // One more than the plain loop has to choose: how what is let through is cut into batches again.
    assert_eq!([refused_message, taken_completion, refused_prompt, refused_call], [8, 1, 1, 13]);
}
