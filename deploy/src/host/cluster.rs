//! The cluster host: gateway and shards as processes that hydro_deploy places.
//!
//! In: a gateway's location and the shards' of one cell. Out: the same flow as in one process, its ports joined to sidecars and
//! its channels to Hydro's network. Always: the adapters are those of the embedded host; a thread is at one shard, and all that
//! concerns it goes there.

use hydro_lang::prelude::*;
use slackwater_core::flow::{Inputs, Outputs, agent_loop, route};
use slackwater_core::port::{FromGateway, FromJournal, FromModel, ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use slackwater_core::record::Arrival;

/// Where clients, webhooks and tools enter.
pub struct Gateway;

/// Where threads live.
pub struct Shard;

/// Wires a cell: a gateway and its shards, as many as the cluster's member has. The code is the same for every cell.
pub fn topology<'a>(gateway: &Process<'a, Gateway>, shards: &Cluster<'a, Shard>) {
    let (requests, to_gateway) =
        gateway.sidecar_bidi::<(u32, FromGateway), ToGateway, _>(q!(|| crate::sidecar::gateway()));
    let (from_journal, to_journal) = shards.sidecar_bidi::<FromJournal, ToJournal, _>(q!(|| crate::sidecar::journal()));
    let (from_model, to_model) = shards.sidecar_bidi::<FromModel, ToModel, _>(q!(|| crate::sidecar::model()));
    let (from_tool, to_tool) = shards.sidecar_bidi::<Arrival, ToTool, _>(q!(|| crate::sidecar::tool()));
    let (from_timer, to_timer) = shards.sidecar_bidi::<Arrival, ToTimer, _>(q!(|| crate::sidecar::timer()));
    let (from_posts, to_posts) = shards.sidecar_bidi::<Arrival, Arrival, _>(q!(|| crate::sidecar::posts()));

    let Outputs { gateway: told, chunks, appends, journal, queries, model, tool, timer, posts } = agent_loop(Inputs {
        gateway: route::to_placed(requests, shards),
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
    to_gateway.complete(told.send(gateway, TCP.fail_stop().bincode()).values().merge_unordered(
        chunks.map(q!(|chunk| ToGateway::Chunk(chunk))).send(gateway, TCP.fail_stop().bincode()).values(),
    ));
}
