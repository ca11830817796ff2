//! A cluster of containers: the same gateway and shards, each shard a location of its own.
//!
//! In: a flow. Out: its locations, wired. Always: the adapters are those of the cluster host; every channel has a name, which is
//! how Hydro's containers find each other.
//!
//! A shard in a container is a service of its own and no replica of a cluster: it has a number and a disk, while the members of a
//! Hydro cluster in containers are named by whichever tasks run.

use super::cluster::{Gateway, shard};
use hydro_lang::live_collections::stream::{ExactlyOnce, NoOrder};
use hydro_lang::prelude::*;
use slackwater_core::flow::{Port, agent_loop, route};
use slackwater_core::port::{FromGateway, ToGateway};

/// How many shards such a cluster has at most.
pub const SHARDS_MAX: u32 = 8;

/// What reaches the gateway from a shard.
type Told<'a> = Stream<ToGateway, Process<'a, Gateway>, Unbounded, NoOrder, ExactlyOnce>;

/// The locations of shards. Hydro's manifest names a location by its type, so each has one.
macro_rules! shards {
    ($($shard:ident: $number:literal),*) => {
        $(
            #[doc = concat!("The shard with the number ", stringify!($number), ".")]
            pub struct $shard;
        )*

        /// Makes the shard with this number and joins it to the gateway.
        fn add<'a>(
            flow: &mut FlowBuilder<'a>,
            number: u32,
            gateway: &Process<'a, Gateway>,
            requests: Port<(u32, FromGateway), Process<'a, Gateway>>,
        ) -> Told<'a> {
            match number {
                $($number => join(&flow.process::<$shard>(), number, gateway, requests),)*
                _ => panic!("invariant: a cluster of containers has at most {SHARDS_MAX} shards"),
            }
        }
    };
}

shards!(Shard0: 0, Shard1: 1, Shard2: 2, Shard3: 3, Shard4: 4, Shard5: 5, Shard6: 6, Shard7: 7);

/// A gateway and so many shards. Returns the gateway; all other locations are shards.
///
/// # Panics
/// When there is no shard, or more than [`SHARDS_MAX`].
pub fn topology<'a>(flow: &mut FlowBuilder<'a>, count: u32) -> Process<'a, Gateway> {
    assert!((1..=SHARDS_MAX).contains(&count), "a cluster of containers has 1 to {SHARDS_MAX} shards");
    let gateway = flow.process::<Gateway>();
    let (requests, to_gateway) =
        gateway.sidecar_bidi::<(u32, FromGateway), ToGateway, _>(q!(|| crate::sidecar::gateway()));
    let told = (0..count).map(|number| add(flow, number, &gateway, requests.clone()));
    to_gateway.complete(told.reduce(Stream::merge_unordered).expect("invariant: a cluster has a shard"));
    gateway
}

/// A shard with its adapters, and its channels to the gateway and back.
fn join<'a, S: 'a>(
    at: &Process<'a, S>,
    number: u32,
    gateway: &Process<'a, Gateway>,
    requests: Port<(u32, FromGateway), Process<'a, Gateway>>,
) -> Told<'a> {
    let channel = |what: &str| TCP.fail_stop().name(format!("{what}-{number}")).bincode();
    let requests = route::of_shard(requests, number).send(at, channel("requests"));
    shard(at, requests, agent_loop).send(gateway, channel("told")).weaken_ordering()
}
