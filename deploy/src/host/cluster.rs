//! The cluster host: gateway, shards and toolhosts as processes that hydro_deploy places.
//!
//! In: a gateway's location, and the shards' and the toolhosts' of one cell. Out: the same flow as in one process, its ports joined to sidecars and
//! its channels to Hydro's network. Always: the adapters are those of the embedded host; a thread is at one shard, and all that
//! concerns it goes there.

use hydro_lang::prelude::*;
use slackwater_core::flow::listen::listen;
use slackwater_core::flow::operator::{Operated, Operators, Place};
use slackwater_core::flow::{Inputs, Outputs, Port, agent_loop, agent_loop_with, route};
use slackwater_core::port::{
    FromGateway, FromJournal, FromModel, FromToolhost, ToGateway, ToJournal, ToModel, ToTimer, ToTool,
};
use slackwater_core::record::Arrival;

/// Where clients, webhooks and tools enter.
pub struct Gateway;

/// Where threads live.
pub struct Shard;

/// Where tools run, away from the histories.
pub struct Toolhost;

/// Wires a cell: a gateway, its shards and its toolhosts, as many as the clusters have members. The code is the same for every
/// cell.
pub fn topology<'a>(gateway: &Process<'a, Gateway>, shards: &Cluster<'a, Shard>, toolhosts: &Cluster<'a, Toolhost>) {
    wire(gateway, shards, toolhosts, |inputs| (agent_loop(inputs), None));
}

/// The same with a user's operators at the seams of each shard's loop. Their answers go to the gateway, and their notes into
/// a file of each shard.
pub fn topology_with<'a>(
    gateway: &Process<'a, Gateway>,
    shards: &Cluster<'a, Shard>,
    toolhosts: &Cluster<'a, Toolhost>,
    operators: &impl Operators,
) {
    wire(gateway, shards, toolhosts, |inputs| {
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
    toolhosts: &Cluster<'a, Toolhost>,
    loop_of: impl FnOnce(Inputs<Cluster<'a, Shard>>) -> Left<'a>,
) {
    let (requests, to_gateway) =
        gateway.sidecar_bidi::<(u32, FromGateway), ToGateway, _>(q!(|| crate::sidecar::gateway()));
    let (said, to_toolhosts) =
        toolhosts.sidecar_bidi::<(u32, FromToolhost), ToTool, _>(q!(|| crate::sidecar::toolhost()));
    let mut answers = None;
    let requests = route::to_placed(requests, shards);
    let (told, asked) = shard(shards, requests, route::of_toolhosts(said, shards), |inputs| {
        let (outputs, more) = loop_of(inputs);
        answers = more;
        outputs
    });
    let asked = asked.map(q!(|asked| crate::sidecar::by_toolhost(asked)));
    to_toolhosts.complete(route::to_toolhosts(asked, toolhosts));
    let told = route::to_gateway(told, gateway);
    match answers {
        None => to_gateway.complete(told),
        Some(answers) => to_gateway.complete(told.merge_unordered(route::to_gateway(answers, gateway))),
    }
}

/// A shard with its adapters, whatever places it: what is asked of it and what toolhosts say in, what it tells and what it asks
/// of tools out.
pub fn shard<'a, L: Place<'a>>(
    shards: &L,
    requests: Port<FromGateway, L>,
    said: Port<FromToolhost, L>,
    loop_of: impl FnOnce(Inputs<L>) -> Outputs<L>,
) -> (Port<ToGateway, L>, Port<ToTool, L>) {
    let (from_journal, to_journal) = shards.sidecar_bidi::<FromJournal, ToJournal, _>(q!(|| crate::sidecar::journal()));
    let (from_model, to_model) = shards.sidecar_bidi::<FromModel, ToModel, _>(q!(|| crate::sidecar::model()));
    let (none, to_catalog) = shards.sidecar_bidi::<(), FromToolhost, _>(q!(|| crate::sidecar::catalog()));
    none.for_each(q!(|()| {}));
    let (from_timer, to_timer) = shards.sidecar_bidi::<Arrival, ToTimer, _>(q!(|| crate::sidecar::timer()));
    let (from_posts, to_posts) = shards.sidecar_bidi::<Arrival, Arrival, _>(q!(|| crate::sidecar::posts()));

    let (arrivals, offers) = route::arrivals(said);
    to_catalog.complete(offers);
    // What is asked passes where it is known who listens, and so does what is told.
    let (pass, passed) = shards.forward_ref::<Port<FromGateway, L>>();
    let Outputs { gateway, chunks, appends, journal, queries, model, tool, timer, posts } = loop_of(Inputs {
        gateway: passed,
        journal: from_journal,
        model: from_model,
        tool: arrivals,
        timer: from_timer,
        posts: from_posts,
    });
    to_journal.complete(
        journal
            .merge_unordered(appends.map(q!(|batch| ToJournal::Append(batch))))
            .merge_unordered(queries.map(q!(|query| ToJournal::query(query)))),
    );
    to_model.complete(model);
    to_timer.complete(timer);
    to_posts.complete(posts);
    let (asked, told) = listen(requests, gateway, chunks);
    pass.complete(asked);
    (told, tool)
}
