//! A cluster of containers: the same gateway, shards and toolhost, each shard a location of its own.
//!
//! In: a flow. Out: its locations, wired. Always: the adapters are those of the cluster host; every channel has a name, which is
//! how Hydro's containers find each other.
//!
//! A shard in a container is a service of its own and no replica of a cluster: it has a number and a disk, while the members of a
//! Hydro cluster in containers are named by whichever tasks run.

use super::cluster::{Gateway, Toolhost, shard};
use hydro_lang::live_collections::stream::{ExactlyOnce, NoOrder};
use hydro_lang::prelude::*;
use slackwater_core::flow::{Port, agent_loop, route};
use slackwater_core::port::{FromGateway, FromToolhost, ToGateway, ToTool};

/// How many shards such a cluster has at most.
pub const SHARDS_MAX: u32 = 8;

/// What the gateway asks, and what the toolhost says, each with the number of the shard that it is for.
type Asks<'a> = (Port<(u32, FromGateway), Process<'a, Gateway>>, Port<(u32, FromToolhost), Process<'a, Toolhost>>);

/// What reaches the gateway from a shard, and what reaches the toolhost.
type Told<'a> = (
    Stream<ToGateway, Process<'a, Gateway>, Unbounded, NoOrder, ExactlyOnce>,
    Stream<ToTool, Process<'a, Toolhost>, Unbounded, NoOrder, ExactlyOnce>,
);

/// The locations of shards. Hydro's manifest names a location by its type, so each has one.
macro_rules! shards {
    ($($shard:ident: $number:literal),*) => {
        $(
            #[doc = concat!("The shard with the number ", stringify!($number), ".")]
            pub struct $shard;
        )*

        /// Makes the shard with this number and joins it to the gateway and the toolhost.
        fn add<'a>(
            flow: &mut FlowBuilder<'a>,
            number: u32,
            (gateway, toolhost): (&Process<'a, Gateway>, &Process<'a, Toolhost>),
            asks: Asks<'a>,
        ) -> Told<'a> {
            match number {
                $($number => join(&flow.process::<$shard>(), number, (gateway, toolhost), asks),)*
                _ => panic!("invariant: a cluster of containers has at most {SHARDS_MAX} shards"),
            }
        }
    };
}

shards!(Shard0: 0, Shard1: 1, Shard2: 2, Shard3: 3, Shard4: 4, Shard5: 5, Shard6: 6, Shard7: 7);

/// A gateway, a toolhost and so many shards. Returns the gateway.
///
/// # Panics
/// When there is no shard, or more than [`SHARDS_MAX`].
pub fn topology<'a>(flow: &mut FlowBuilder<'a>, count: u32) -> Process<'a, Gateway> {
    assert!((1..=SHARDS_MAX).contains(&count), "a cluster of containers has 1 to {SHARDS_MAX} shards");
    let gateway = flow.process::<Gateway>();
    let (requests, to_gateway) =
        gateway.sidecar_bidi::<(u32, FromGateway), ToGateway, _>(q!(|| crate::sidecar::gateway()));
    let toolhost = flow.process::<Toolhost>();
    let (said, to_toolhost) =
        toolhost.sidecar_bidi::<(u32, FromToolhost), ToTool, _>(q!(|| crate::sidecar::toolhost()));
    let told: Vec<Told<'a>> =
        (0..count).map(|number| add(flow, number, (&gateway, &toolhost), (requests.clone(), said.clone()))).collect();
    let (told, asked): (Vec<_>, Vec<_>) = told.into_iter().unzip();
    let some = "invariant: a cluster has a shard";
    to_gateway.complete(told.into_iter().reduce(Stream::merge_unordered).expect(some));
    to_toolhost.complete(asked.into_iter().reduce(Stream::merge_unordered).expect(some));
    gateway
}

/// A shard with its adapters, and its channels to the gateway and the toolhost and back.
fn join<'a, S: 'a>(
    at: &Process<'a, S>,
    number: u32,
    (gateway, toolhost): (&Process<'a, Gateway>, &Process<'a, Toolhost>),
    (requests, said): Asks<'a>,
) -> Told<'a> {
    let channel = |what: &str| TCP.fail_stop().name(format!("{what}-{number}")).bincode();
    let requests = route::of_shard(requests, number).send(at, channel("requests"));
    let said = said.filter(q!(move |said| said.0 == number)).map(q!(|said| said.1)).send(at, channel("said"));
    let (told, asked) = shard(at, requests, said, agent_loop);
    let told = told.send(gateway, channel("told")).weaken_ordering();
    (told, asked.send(toolhost, channel("asked")).weaken_ordering())
}
