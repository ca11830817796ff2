//! Route: what a gateway asks goes to the shard that owns the thread, what a shard tells goes to its gateway, and what it asks of
//! tools to a toolhost and back.
//!
//! In: the requests of gateways, and what shards tell. Out: the same, each where it belongs. Always: a thread's requests
//! through one gateway keep their order; an answer goes to the gateway that was asked, an output to all, since a client may
//! be at any; which shard owns a thread is said by whoever places the request.

use super::Port;
use super::operator::Place;
use crate::port::{FromGateway, FromToolhost, ToGateway, ToTool};
use crate::record::Arrival;
use hydro_lang::live_collections::stream::{ExactlyOnce, NoOrder, TotalOrder};
use hydro_lang::location::MemberId;
use hydro_lang::prelude::*;

/// Sends each request to the shard of its group that it was placed at.
pub fn to_placed<'a, G: 'a, S: 'a>(
    requests: Port<(u32, FromGateway), Process<'a, G>>,
    shards: &Cluster<'a, S>,
) -> Port<FromGateway, Cluster<'a, S>> {
    requests
        .map(q!(|(shard, request)| (MemberId::from_raw_id(shard), request)))
        .demux(shards, TCP.fail_stop().bincode())
}

/// What two gateways ask of the same shards.
pub fn together<'a, S: 'a>(
    one: Port<FromGateway, Cluster<'a, S>>,
    other: Port<FromGateway, Cluster<'a, S>>,
) -> Port<FromGateway, Cluster<'a, S>> {
    one.merge_ordered(
        other,
        nondet!(/** which gateway is heard first is the world's choice, and the journal records it as the order */),
    )
}

/// What of it is for the gateway with this number.
pub fn of_gateway<'a, S: 'a>(told: Port<ToGateway, Cluster<'a, S>>, number: u32) -> Port<ToGateway, Cluster<'a, S>> {
    told.filter(q!(move |told| told.is_for(number)))
}

/// Sends what the shards tell to a gateway. Each shard's order is kept.
pub fn to_gateway<'a, G: 'a, S: 'a>(
    told: Port<ToGateway, Cluster<'a, S>>,
    gateway: &Process<'a, G>,
) -> Stream<ToGateway, Process<'a, G>, Unbounded, NoOrder, ExactlyOnce> {
    told.send(gateway, TCP.fail_stop().bincode()).values()
}

/// What was placed at the shard with this number.
pub fn of_shard<'a, G: 'a>(
    requests: Port<(u32, FromGateway), Process<'a, G>>,
    number: u32,
) -> Port<FromGateway, Process<'a, G>> {
    requests.filter(q!(move |placed| placed.0 == number)).map(q!(|placed| placed.1))
}

/// Says of what is asked of tools which toolhost it is for, of so many.
pub fn by_toolhost<'a, S: 'a>(asked: Port<ToTool, Cluster<'a, S>>, count: u32) -> Port<(u32, ToTool), Cluster<'a, S>> {
    asked.map(q!(move |asked| (asked.toolhost(count), asked)))
}

/// Tells what toolhosts say is to become a record from what is not.
pub fn arrivals<'a, L: Place<'a>>(said: Port<FromToolhost, L>) -> (Port<Arrival, L>, Port<FromToolhost, L>) {
    let (arrivals, offers) = said.partition(q!(|said| said.is_arrival()));
    (arrivals.filter_map(q!(|said| said.into_arrival())), offers)
}

/// Sends what shards ask of tools to the toolhosts of their group. Each shard's order is kept.
pub fn to_toolhosts<'a, S: 'a, T: 'a>(
    asked: Port<(u32, ToTool), Cluster<'a, S>>,
    toolhosts: &Cluster<'a, T>,
) -> Port<ToTool, Cluster<'a, T>> {
    asked
        .map(q!(|(toolhost, asked)| (MemberId::from_raw_id(toolhost), asked)))
        .demux(toolhosts, TCP.fail_stop().bincode())
        .values()
        .assume_ordering::<TotalOrder>(
            nondet!(/** which shard is heard first is nothing to a tool: a thread is at one */),
        )
}

/// Sends what toolhosts say to the shards that it is for. Each toolhost's order is kept.
pub fn of_toolhosts<'a, S: 'a, T: 'a>(
    said: Port<(u32, FromToolhost), Cluster<'a, T>>,
    shards: &Cluster<'a, S>,
) -> Port<FromToolhost, Cluster<'a, S>> {
    said.map(q!(|(shard, said)| (MemberId::from_raw_id(shard), said)))
        .demux(shards, TCP.fail_stop().bincode())
        .values()
        .assume_ordering::<TotalOrder>(
            nondet!(/** which toolhost is heard first is the world's choice, and the journal records it as the order */),
        )
}
