//! The world that a simulated cluster meets: the adapters of two gateways, two shards and two toolhosts.
//!
//! In: what the shards ask, and what reaches the gateways. Out: what the journals answer, at once and in order, each shard's
//! of its own; the rest is gathered. Always: what a shard commits is of its own threads; a batch of a shard that dies is
//! never answered.

use crate::world::{World, arrival, origin, said, thread};
use hydro_lang::live_collections::stream::{ExactlyOnce, NoOrder, TotalOrder};
use hydro_lang::prelude::*;
use hydro_lang::sim::{SimClusterReceiver, SimClusterSender, SimReceiver, SimSender, quiesce};
use slackwater_core::effect::{Dispatch, Outcome, Prompt};
use slackwater_core::flow::{Inputs, agent_loop, route};
use slackwater_core::id::{ThreadId, Ticket, shard_of};
use slackwater_core::port::{
    FromGateway, FromJournal, FromModel, FromToolhost, ToGateway, ToJournal, ToModel, ToTimer, ToTool,
};
use slackwater_core::record::*;
use std::collections::BTreeMap;

pub const SHARDS: u32 = 2;
pub const TOOLHOSTS: u32 = 2;

// What is generated cannot name the types of a test.
type Gateway = ();
type Shard = ();
type Toolhost = ();

/// What reaches a gateway.
pub type Told<'a> = Stream<ToGateway, Process<'a, Gateway>, Unbounded, NoOrder, ExactlyOnce>;

/// The same in words: from two shards in no order, so they are sorted.
pub type Words = SimReceiver<String, NoOrder, ExactlyOnce>;

type From<T> = SimClusterSender<T, TotalOrder, ExactlyOnce>;
type To<T> = SimClusterReceiver<T, TotalOrder, ExactlyOnce>;

/// The ends of the cluster's flow.
pub struct ClusterEnds {
    requests: [SimSender<(u32, FromGateway), TotalOrder, ExactlyOnce>; 2],
    told: [Words; 2],
    from_journal: From<FromJournal>,
    from_model: From<FromModel>,
    from_tool: From<(u32, FromToolhost)>,
    _from_timer: From<Arrival>,
    from_posts: From<Arrival>,
    appends: To<Vec<Arrival>>,
    to_journal: To<ToJournal>,
    to_model: To<ToModel>,
    to_tool: To<ToTool>,
    _offers: To<FromToolhost>,
    to_timer: To<ToTimer>,
    to_posts: To<Arrival>,
}

impl ClusterEnds {
    /// A cluster with these ends, wired by what wires the real one. A quote may stand only in a test's own file, so that one
    /// has it that puts what gateways are told into words.
    pub fn of<'a>(
        flow: &mut FlowBuilder<'a>,
        words: impl Fn(Told<'a>) -> Words,
    ) -> (Self, Cluster<'a, Shard>, Cluster<'a, Toolhost>) {
        let (first, second) = (flow.process::<Gateway>(), flow.process::<Gateway>());
        let (shards, toolhosts) = (flow.cluster::<Shard>(), flow.cluster::<Toolhost>());
        let (ask_first, of_first) = first.sim_input();
        let (ask_second, of_second) = second.sim_input();
        let (from_journal, journal) = shards.sim_input();
        let (from_model, model) = shards.sim_input();
        let (from_tool, said) = toolhosts.sim_input();
        let (tool, offers) = route::arrivals(route::of_toolhosts(said, &shards));
        let (_from_timer, timer) = shards.sim_input();
        let (from_posts, posts) = shards.sim_input();
        let requests = route::together(route::to_placed(of_first, &shards), route::to_placed(of_second, &shards));
        let outputs = agent_loop(Inputs { gateway: requests, journal, model, tool, timer, posts });
        let to_first = route::to_gateway(route::of_gateway(outputs.gateway.clone(), 0), &first);
        let to_second = route::to_gateway(route::of_gateway(outputs.gateway, 1), &second);
        let told = [words(to_first), words(to_second)];
        let asked = route::to_toolhosts(route::by_toolhost(outputs.tool, TOOLHOSTS), &toolhosts);
        let ends = ClusterEnds {
            requests: [ask_first, ask_second],
            told,
            from_journal,
            from_model,
            from_tool,
            _from_timer,
            from_posts,
            appends: outputs.appends.sim_cluster_output(),
            to_journal: outputs.journal.sim_cluster_output(),
            to_model: outputs.model.sim_cluster_output(),
            to_tool: asked.sim_cluster_output(),
            _offers: offers.sim_cluster_output(),
            to_timer: outputs.timer.sim_cluster_output(),
            to_posts: outputs.posts.sim_cluster_output(),
        };
        (ends, shards, toolhosts)
    }
}

/// What the adapters of the cluster know.
#[derive(Default)]
pub struct ClusterWorld {
    /// The journals of both shards, which have no thread in common, and what was asked of the other adapters.
    pub plain: World,
    /// What each gateway was told, in words.
    pub told: [Vec<String>; 2],
    /// The shard that dies: what it appends from now on does not get to its disk.
    pub lose_batches_of: Option<u32>,
}

/// A message through a gateway.
pub fn message_at(gateway: u32, to: u8, request: u64, text: &str) -> FromGateway {
    let ticket = Some(Ticket { gateway, request });
    FromGateway::Submit(Arrival { ticket, ..arrival(None, thread(to), said(text)) })
}

/// A tool's result that nobody waits to be acknowledged, as of a local tool.
pub fn built(of: &Dispatch) -> Arrival {
    let result = ToolResult {
        call: of.call,
        origin: origin(),
        content: vec![Content::Text("built".into())],
        is_error: false,
        subscription: false,
        display: None,
    };
    arrival(None, of.thread, Record::Result(result))
}

impl ClusterEnds {
    pub fn ask(&self, gateway: u32, request: FromGateway) {
        let shard = request.shard_by(|thread| shard_of(thread, SHARDS));
        self.requests[gateway as usize].send((shard, request));
    }

    /// The model of the thread's shard says something.
    pub fn model_says(&self, said: FromModel) {
        let FromModel::Answer(arrival) = &said else { panic!("no answer") };
        let thread = &arrival.thread;
        self.from_model.send(shard_of(*thread, SHARDS), said);
    }

    /// A tool of the thread's toolhost says something.
    pub fn tool_says(&self, said: Arrival) {
        let (shard, toolhost) = (shard_of(said.thread, SHARDS), shard_of(said.thread, TOOLHOSTS));
        self.from_tool.send(toolhost, (shard, FromToolhost::Arrival(Box::new(said))));
    }
}

impl ClusterWorld {
    /// Lets the cluster run until it waits for the world, and plays the journals until nothing is left to commit or recall.
    pub async fn settle(&mut self, ends: &ClusterEnds) {
        loop {
            quiesce().await;
            // All of them are heard before one is answered: what is settled is looked at, and then the next phase begins.
            let mut heard = Vec::new();
            for shard in 0..SHARDS {
                heard.push(self.hear(shard, ends).await);
            }
            for toolhost in 0..TOOLHOSTS {
                self.hear_toolhost(toolhost, ends).await;
            }
            for (told, words) in ends.told.iter().zip(&mut self.told) {
                words.extend(told.collect_sorted::<Vec<String>>().await);
            }
            if heard.iter().all(|(answers, posts)| answers.is_empty() && posts.is_empty()) {
                return;
            }
            for (shard, (answers, posts)) in (0..).zip(heard) {
                answers.into_iter().for_each(|answer| ends.from_journal.send(shard, answer));
                posts.into_iter().for_each(|post| ends.from_posts.send(shard, post));
            }
        }
    }

    /// Hears what reaches a toolhost.
    async fn hear_toolhost(&mut self, toolhost: u32, ends: &ClusterEnds) {
        while let Some(asked) = ends.to_tool.try_next(toolhost).await {
            assert_eq!(asked.toolhost(TOOLHOSTS), toolhost, "what is said of a call goes where the call went");
            if let ToTool::Dispatch(dispatch) = asked {
                assert!(dispatch.call.number <= self.plain.last(dispatch.thread), "durable_before_act");
                self.plain.calls.push(dispatch);
            }
        }
    }

    /// Hears what a shard asks. Returns what its journal answers, and what its threads send each other.
    async fn hear(&mut self, shard: u32, ends: &ClusterEnds) -> (Vec<FromJournal>, Vec<Arrival>) {
        let mut answers = Vec::new();
        while let Some(batch) = ends.appends.try_next(shard).await {
            assert!(batch.iter().all(|arrival| shard_of(arrival.thread, SHARDS) == shard), "a thread is at one shard");
            if self.lose_batches_of != Some(shard) {
                answers.push(FromJournal::Committed(
                    batch.into_iter().map(|arrival| self.plain.commit(arrival)).collect(),
                ));
            }
        }
        while let Some(asked) = ends.to_journal.try_next(shard).await {
            match asked {
                ToJournal::Recall { thread, before } => {
                    let records = self.plain.journal[&thread].iter().filter(|c| c.number < before).cloned().collect();
                    let ancestry = self.plain.ancestry(thread);
                    answers.push(FromJournal::Recalled { thread, records: Ok(records), ancestry });
                }
                ToJournal::Rest(rest) => self.plain.rests.push(rest),
                ToJournal::Append(_) | ToJournal::Query(..) => panic!("the flow has other ports for these"),
            }
        }
        while let Some(asked) = ends.to_model.try_next(shard).await {
            if let ToModel::Prompt(prompt) = asked {
                assert!(prompt.seen <= self.plain.last(prompt.thread), "durable_before_act");
                self.plain.prompts.push(prompt);
            }
        }
        assert_eq!(ends.to_timer.try_next(shard).await, None, "nobody sleeps here");
        let mut posts = Vec::new();
        while let Some(post) = ends.to_posts.try_next(shard).await {
            posts.push(post);
        }
        (answers, posts)
    }

    /// The whole wired group starts again on what is durable. The flow is the same, so the threads have new names at the same
    /// shards, which are returned.
    pub fn restart(self, ends: &ClusterEnds) -> (Self, BTreeMap<ThreadId, ThreadId>) {
        let mut next = ClusterWorld::default();
        let mut renamed = BTreeMap::new();
        for (id, mut records) in self.plain.journal {
            let shard = shard_of(id, SHARDS);
            let fresh = |n: &u8| shard_of(thread(*n), SHARDS) == shard && !next.plain.journal.contains_key(&thread(*n));
            let new = thread((101..200).find(fresh).unwrap());
            records.iter_mut().for_each(|record| record.arrival.thread = new);
            let last = records.last().unwrap().number;
            next.plain.journal.insert(new, records);
            ends.from_journal.send(shard, FromJournal::Wake { thread: new, last });
            renamed.insert(id, new);
        }
        (next, renamed)
    }

    /// How often a gateway was told this of a request.
    pub fn told(&self, gateway: u32, request: u64, outcome: &Outcome) -> usize {
        let words = format!("{:?}", ToGateway::Answer(Ticket { gateway, request }, outcome.clone()));
        self.told[gateway as usize].iter().filter(|told| **told == words).count()
    }

    /// How many answers the gateways were told.
    pub fn answers(&self) -> usize {
        self.told.iter().flatten().filter(|told| told.starts_with("Answer(")).count()
    }

    /// What a gateway's clients are shown of a thread.
    pub fn shown(&self, gateway: usize, thread: ThreadId) -> Vec<&String> {
        let words = format!("Output(Output {{ thread: {thread:?},");
        self.told[gateway].iter().filter(|told| told.starts_with(&words)).collect()
    }

    pub fn prompt_of(&mut self, thread: ThreadId) -> Prompt {
        self.plain.prompt_of(thread)
    }

    /// At the end: nothing is in flight, and the last hint of each thread says that it rests.
    pub fn assert_at_rest(&self, ids: &[ThreadId]) {
        assert!(self.plain.prompts.is_empty(), "a prompt is left");
        for id in ids {
            let rest = self.plain.rests.iter().rev().find(|rest| rest.thread == *id);
            assert_eq!(rest.map(|rest| rest.through), Some(self.plain.last(*id)), "an_idle_thread_is_data");
        }
    }
}
