//! What a gateway of a cluster is told, in Hydro's simulator: of threads that somebody listens to, everything.
//!
//! In: who listens, what is asked, what is told. Out: what is true of every schedule. Always: once a question has passed that
//! came after the word that somebody listens, nothing that is told is missed.

use crate::world::thread;
use hydro_lang::prelude::*;
use slackwater_core::effect::{Outcome, Output, Shown};
use slackwater_core::flow::listen::listen;
use slackwater_core::id::{OutputId, ThreadId, Ticket};
use slackwater_core::port::{Chunk, FromGateway, Part, Query, ToGateway};

fn asks(thread: ThreadId) -> FromGateway {
    FromGateway::Query(Ticket { gateway: 0, request: 1 }, Query::Thread(thread))
}

fn output(thread: ThreadId, number: u64) -> ToGateway {
    let shown = Shown::Stopped;
    ToGateway::Output(Output { thread, id: OutputId { number, index: 0 }, at_ms: 0, shown })
}

fn piece(thread: ThreadId, text: &str) -> Chunk {
    Chunk { thread, seen: 1, part: Part::Text(text.to_owned()) }
}

#[test]
fn who_listens_misses_nothing_in_every_schedule() {
    let mut flow = FlowBuilder::new();
    let shard = flow.process::<()>();
    let ((ask, asked), (tell, told), (stream, chunks)) = (shard.sim_input(), shard.sim_input(), shard.sim_input());
    let (passed, heard) = listen(asked, told, chunks);
    let ends = std::panic::AssertUnwindSafe((ask, tell, stream, passed.sim_output(), heard.sim_output()));
    let compiled = flow.sim().compiled();
    let (a, b) = (thread(1), thread(2));
    let answer = ToGateway::Answer(Ticket { gateway: 0, request: 2 }, Outcome::Taken(1));

    let explored = compiled.exhaustive(async || {
        let (ask, tell, stream, passed, heard) = &*ends;
        // In the moment in which somebody begins to listen, something is told.
        tell.send_many([output(a, 1), answer.clone()]);
        ask.send_many([FromGateway::Listen { thread: a, on: true }, asks(a)]);
        assert_eq!(passed.next().await, asks(a), "who listens is no question");
        tell.send_many([output(a, 2), output(b, 2)]);
        stream.send_many([vec![piece(b, "nobody")], vec![piece(b, "no"), piece(a, "somebody")]]);
        hydro_lang::sim::quiesce().await;
        let mut said = Vec::new();
        while let Some(told) = heard.try_next().await {
            said.push(told);
        }
        // The first may have been told before the word was there; then the answer to the question has it.
        let (pieces, mut others): (Vec<_>, Vec<_>) =
            said.into_iter().partition(|told| matches!(told, ToGateway::Chunks(_)));
        if others.first() == Some(&output(a, 1)) {
            others.remove(0);
        }
        assert_eq!(others, [answer.clone(), output(a, 2)], "nothing of the thread that nobody listens to");
        assert_eq!(pieces, [ToGateway::Chunks(vec![piece(a, "somebody")])]);

        ask.send_many([FromGateway::Listen { thread: a, on: false }, asks(b)]);
        assert_eq!(passed.next().await, asks(b));
        tell.send_many([output(a, 3), answer.clone()]);
        hydro_lang::sim::quiesce().await;
        assert_eq!(heard.try_next().await, Some(answer.clone()));
        assert_eq!(heard.try_next().await, None);
    });
    assert_eq!(explored, 5_152, "the number of executions explored");
}
