//! The cluster host: gateway and shards as processes that hydro_deploy places.
//!
//! In: a gateway's location and the shards' of one cell. Out: the same flow as in one process, its ports joined to sidecars and
//! its channels to Hydro's network. Always: the adapters are those of the embedded host; a thread is at one shard, and all that
//! concerns it goes there.

use hydro_lang::prelude::*;
use slackwater_core::flow::listen::listen;
use slackwater_core::flow::operator::{Operated, Operators, Place};
use slackwater_core::flow::{Inputs, Outputs, Port, agent_loop, agent_loop_with, route};
use slackwater_core::port::{FromGateway, FromJournal, FromModel, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use slackwater_core::record::Arrival;

/// Where clients, webhooks and tools enter.
pub struct Gateway;

/// Where threads live.
pub struct Shard;

/// Wires a cell: a gateway and its shards, as many as the cluster's member has. The code is the same for every cell.
pub fn topology<'a>(gateway: &Process<'a, Gateway>, shards: &Cluster<'a, Shard>) {
    wire(gateway, shards, |inputs| (agent_loop(inputs), None));
}

/// The same with a user's operators at the seams of each shard's loop. Their answers go to the gateway, and their notes into
/// a file of each shard.
pub fn topology_with<'a>(gateway: &Process<'a, Gateway>, shards: &Cluster<'a, Shard>, operators: &impl Operators) {
    wire(gateway, shards, |inputs| {
        let Operated { outputs, answers, notes: [arrivals, prompts, calls, outputs_told] } =
            agent_loop_with(inputs, operators);
        let (none, to_notes) = shards.sidecar_bidi::<(), String, _>(q!(|| crate::sidecar::notes()));
        none.for_each(q!(|()| {}));
        to_notes.complete(arrivals.merge_unordered(prompts).merge_unordered(calls).merge_unordered(outputs_told));
        (outputs, Some(answers))
    });
}

/// What leaves a shard, and what its operators answer.
type Left<'a> = (Outputs<Cluster<'a, Shard>>, Option<Port<ToGateway, Cluster<'a, Shard>>>);

fn wire<'a>(
    gateway: &Process<'a, Gateway>,
    shards: &Cluster<'a, Shard>,
    loop_of: impl FnOnce(Inputs<Cluster<'a, Shard>>) -> Left<'a>,
) {
    let (requests, to_gateway) =
        gateway.sidecar_bidi::<(u32, FromGateway), ToGateway, _>(q!(|| crate::sidecar::gateway()));
    let mut answers = None;
    let told = shard(shards, route::to_placed(requests, shards), |inputs| {
        let (outputs, more) = loop_of(inputs);
        answers = more;
        outputs
    });
    let told = route::to_gateway(told, gateway);
    match answers {
        None => to_gateway.complete(told),
        Some(answers) => to_gateway.complete(told.merge_unordered(route::to_gateway(answers, gateway))),
    }
}

/// A shard with its adapters, whatever places it: what is asked of it in, and what it tells out.
pub fn shard<'a, L: Place<'a>>(
    shards: &L,
    requests: Port<FromGateway, L>,
    loop_of: impl FnOnce(Inputs<L>) -> Outputs<L>,
) -> Port<ToGateway, L> {
    let (from_journal, to_journal) = shards.sidecar_bidi::<FromJournal, ToJournal, _>(q!(|| crate::sidecar::journal()));
    let (from_model, to_model) = shards.sidecar_bidi::<FromModel, ToModel, _>(q!(|| crate::sidecar::model()));
    let (from_tool, to_tool) = shards.sidecar_bidi::<Arrival, ToTool, _>(q!(|| crate::sidecar::tool()));
    let (from_timer, to_timer) = shards.sidecar_bidi::<Arrival, ToTimer, _>(q!(|| crate::sidecar::timer()));
    let (from_posts, to_posts) = shards.sidecar_bidi::<Arrival, Arrival, _>(q!(|| crate::sidecar::posts()));

    // What is asked passes where it is known who listens, and so does what is told.
    let (pass, passed) = shards.forward_ref::<Port<FromGateway, L>>();
    let Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts } = loop_of(Inputs {
        gateway: passed,
        journal: from_journal,
        model: from_model,
        tool: from_tool,
        timer: from_timer,
        posts: from_posts,
    });
    to_journal.complete(
        journal
            .merge_unordered(appends.map(q!(|batch| ToJournal::Append(batch))))
            .merge_unordered(queries.map(q!(|query| ToJournal::query(query)))),
    );
    to_model.complete(model);
    to_tool.complete(tool);
    to_timer.complete(timer);
    to_posts.complete(posts);
    let (asked, told) = listen(requests, gateway, chunks);
    pass.complete(asked);
    told
}
