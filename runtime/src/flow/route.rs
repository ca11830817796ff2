//! Route: what a gateway asks goes to the shard that owns the thread.
//!
//! In: the requests of a gateway. Out: the same, each at its shard. Always: a thread's requests keep their order; which shard
//! owns a thread is said by [`crate::id::shard_of`], or by whoever has placed the request already.

use super::Port;
use crate::port::FromGateway;
use hydro_lang::location::MemberId;
use hydro_lang::prelude::*;

/// Sends each request to its shard, of so many.
pub fn to_shards<'a, G: 'a, S: 'a>(
    requests: Port<FromGateway, Process<'a, G>>,
    shards: &Cluster<'a, S>,
    count: u32,
) -> Port<FromGateway, Cluster<'a, S>> {
    requests
        .map(q!(move |request| (MemberId::from_raw_id(request.shard(count)), request)))
        .demux(shards, TCP.fail_stop().bincode())
}

/// Sends each request to the shard of its group that it was placed at.
pub fn to_placed<'a, G: 'a, S: 'a>(
    requests: Port<(u32, FromGateway), Process<'a, G>>,
    shards: &Cluster<'a, S>,
) -> Port<FromGateway, Cluster<'a, S>> {
    requests
        .map(q!(|(shard, request)| (MemberId::from_raw_id(shard), request)))
        .demux(shards, TCP.fail_stop().bincode())
}
