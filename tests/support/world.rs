//! The world that the simulated flow meets: this plays the adapters, keeps their contracts and nothing more.
//!
//! In: what the flow asks. Out: what a journal answers, at once and in order; what models, tools and timers are asked is
//! gathered for the situation to answer. Always: an effect of a record that is not committed is a failure, and so is a prompt
//! with a call that is not answered.

use hydro_lang::live_collections::stream::{ExactlyOnce, TotalOrder};
use hydro_lang::prelude::*;
use hydro_lang::sim::{SimReceiver, SimSender, quiesce};
use slackwater_core::effect::{Dispatch, Outcome, Prompt};
use slackwater_core::flow::{Inputs, Outputs, agent_loop};
use slackwater_core::history::Item;
use slackwater_core::id::{InputId, Number, ThreadId, Ticket};
use slackwater_core::port::{
    FromGateway, FromJournal, FromModel, Rest, ToGateway, ToJournal, ToModel, ToTimer, ToTool,
};
use slackwater_core::record::*;
use slackwater_core::thread::{Thread, invariant};
use std::collections::BTreeMap;

/// The ends of the flow, as the adapters hold them.
pub struct Ends {
    pub from_gateway: SimSender<FromGateway, TotalOrder, ExactlyOnce>,
    pub from_journal: SimSender<FromJournal, TotalOrder, ExactlyOnce>,
    pub from_model: SimSender<FromModel, TotalOrder, ExactlyOnce>,
    pub from_tool: SimSender<Arrival, TotalOrder, ExactlyOnce>,
    pub from_timer: SimSender<Arrival, TotalOrder, ExactlyOnce>,
    pub from_posts: SimSender<Arrival, TotalOrder, ExactlyOnce>,
    pub to_gateway: SimReceiver<ToGateway, TotalOrder, ExactlyOnce>,
    pub appends: SimReceiver<Vec<Arrival>, TotalOrder, ExactlyOnce>,
    pub to_journal: SimReceiver<ToJournal, TotalOrder, ExactlyOnce>,
    pub to_model: SimReceiver<ToModel, TotalOrder, ExactlyOnce>,
    pub to_tool: SimReceiver<ToTool, TotalOrder, ExactlyOnce>,
    pub to_timer: SimReceiver<ToTimer, TotalOrder, ExactlyOnce>,
    pub to_posts: SimReceiver<Arrival, TotalOrder, ExactlyOnce>,
}

impl Ends {
    /// A flow with these ends.
    pub fn of(flow: &mut FlowBuilder<'_>) -> Self {
        Self::around(flow, agent_loop)
    }

    /// The ends of another loop than the plain one.
    pub fn around<'a>(
        flow: &mut FlowBuilder<'a>,
        agent_loop: impl FnOnce(Inputs<Process<'a>>) -> Outputs<Process<'a>>,
    ) -> Self {
        let shard = flow.process::<()>();
        let (from_gateway, gateway) = shard.sim_input();
        let (from_journal, journal) = shard.sim_input();
        let (from_model, model) = shard.sim_input();
        let (from_tool, tool) = shard.sim_input();
        let (from_timer, timer) = shard.sim_input();
        let (from_posts, posts) = shard.sim_input();
        let outputs = agent_loop(Inputs { gateway, journal, model, tool, timer, posts });
        Ends {
            from_gateway,
            from_journal,
            from_model,
            from_tool,
            from_timer,
            from_posts,
            to_gateway: outputs.gateway.sim_output(),
            to_journal: outputs.journal.sim_output(),
            appends: outputs.appends.sim_output(),
            to_model: outputs.model.sim_output(),
            to_tool: outputs.tool.sim_output(),
            to_timer: outputs.timer.sim_output(),
            to_posts: outputs.posts.sim_output(),
        }
    }
}

/// What the adapters know: the journal's records, and what was asked of the others and not yet done.
#[derive(Default)]
pub struct World {
    pub journal: BTreeMap<ThreadId, Vec<Committed>>,
    pub outcomes: Vec<(u64, Outcome)>,
    pub prompts: Vec<Prompt>,
    pub cuts: Vec<Number>,
    pub calls: Vec<Dispatch>,
    /// What operators do not let through; the adapters answer it.
    pub refused_prompts: Vec<(Prompt, String)>,
    pub refused_calls: Vec<(Dispatch, String)>,
    pub timers: Vec<ToTimer>,
    pub rests: Vec<Rest>,
    pub recalls: usize,
    pub awake: isize,
    pub prompted: usize,
}

pub fn thread(n: u8) -> ThreadId {
    ThreadId::from_bytes([n; 16])
}

pub fn origin() -> Origin {
    Origin { who: "test".into(), proof: Proof::Process }
}

pub fn arrival(ticket: Option<u64>, thread: ThreadId, record: Record) -> Arrival {
    Arrival { ticket: ticket.map(|request| Ticket { gateway: 0, request }), thread, at_ms: 1_000, record }
}

/// A message whose id is its text.
pub fn said(text: &str) -> Record {
    Record::Message(Message {
        id: InputId(text.into()),
        origin: origin(),
        content: vec![Content::Text(text.into())],
        thread_name: None,
        metadata: None,
    })
}

pub fn message(to: u8, ticket: u64, text: &str) -> FromGateway {
    FromGateway::Submit(arrival(Some(ticket), thread(to), said(text)))
}

pub fn result(ticket: u64, of: &Dispatch, text: &str) -> FromGateway {
    let result = ToolResult {
        call: of.call,
        origin: origin(),
        content: vec![Content::Text(text.into())],
        is_error: false,
        subscription: false,
        display: None,
    };
    FromGateway::Submit(arrival(Some(ticket), of.thread, Record::Result(result)))
}

/// The result of a call that goes on producing events.
pub fn subscribed(ticket: u64, of: &Dispatch) -> FromGateway {
    let FromGateway::Submit(mut arrival) = result(ticket, of, "watching") else { unreachable!() };
    let Record::Result(result) = &mut arrival.record else { unreachable!() };
    result.subscription = true;
    FromGateway::Submit(arrival)
}

/// An event of that call, named by its ticket.
pub fn event(ticket: u64, of: &Dispatch) -> FromGateway {
    let event = SubscriptionEvent {
        subscription: of.call,
        id: InputId(ticket.to_string()),
        origin: origin(),
        content: vec![Content::Text(format!("event {ticket}"))],
        associative: false,
        last: false,
        deliver: None,
    };
    FromGateway::Submit(arrival(Some(ticket), of.thread, Record::Event(event)))
}

pub fn completion(prompt: &Prompt, blocks: Vec<Block>, end: End) -> FromModel {
    let completion = Completion { seen: prompt.seen, blocks, end, usage: Usage::default(), model: "test".into() };
    FromModel::Answer(Box::new(arrival(None, prompt.thread, Record::Completion(completion))))
}

pub fn says(prompt: &Prompt, text: &str) -> FromModel {
    completion(prompt, vec![Block::Text(text.into())], End::Finished)
}

pub fn calls(prompt: &Prompt, tool: &str, arguments: &str) -> FromModel {
    let call = Block::Call { provider_id: "p".into(), name: tool.into(), arguments: arguments.into() };
    completion(prompt, vec![call], End::Finished)
}

/// Several calls in one turn.
pub fn many_calls(prompt: &Prompt, calls: &[(&str, String)]) -> FromModel {
    let call = |(name, arguments): &(&str, String)| Block::Call {
        provider_id: "p".into(),
        name: (*name).into(),
        arguments: arguments.clone(),
    };
    completion(prompt, calls.iter().map(call).collect(), End::Finished)
}

/// A child that the root makes.
pub fn spawn(instructions: &str) -> (&'static str, String) {
    ("spawn_thread", format!(r#"{{"instructions":"{instructions}","child_of":[]}}"#))
}

/// A child's report.
pub fn report(text: &str) -> (&'static str, String) {
    ("report_to_parent", format!(r#"{{"report":"{text}"}}"#))
}

/// A child's end.
pub fn close(child: ThreadId) -> (&'static str, String) {
    ("close_thread", format!(r#"{{"thread_id":"{child}"}}"#))
}

/// A child's last words.
pub fn report_and_close(child: ThreadId, report: &str) -> (&'static str, String) {
    ("close_thread", format!(r#"{{"thread_id":"{child}","report_to_parent":"{report}"}}"#))
}

/// A prompt and its answer took more of the window than they should.
pub fn crossed(thread: ThreadId, seen: Number) -> FromModel {
    let why = CompactWhy::Crossed { seen, tokens: 1_000 };
    let compact = Compact { id: InputId(format!("crossed {seen}")), origin: origin(), why };
    FromModel::Answer(Box::new(arrival(None, thread, Record::Compact(compact))))
}

pub fn accepted(of: &Dispatch) -> Arrival {
    arrival(None, of.thread, Record::Accepted(of.call))
}

impl World {
    /// Lets the flow run until it waits for the world, and plays the journal until nothing is left to commit or recall.
    pub async fn settle(&mut self, ends: &Ends) {
        loop {
            quiesce().await;
            let mut answers = Vec::new();
            while let Some(batch) = ends.appends.try_next().await {
                assert!(!batch.is_empty(), "an empty batch would be a sync for nothing");
                answers.push(FromJournal::Committed(batch.into_iter().map(|a| self.commit(a)).collect()));
            }
            while let Some(asked) = ends.to_journal.try_next().await {
                match asked {
                    ToJournal::Recall { thread, before } => {
                        self.recalls += 1;
                        let records = self.journal[&thread].iter().filter(|c| c.number < before).cloned().collect();
                        let ancestry = self.ancestry(thread);
                        answers.push(FromJournal::Recalled { thread, records: Ok(records), ancestry });
                    }
                    ToJournal::Rest(rest) => self.rests.push(rest),
                    ToJournal::Append(_) | ToJournal::Query(..) => panic!("the flow has other ports for these"),
                }
            }
            while let Some(asked) = ends.to_model.try_next().await {
                match asked {
                    ToModel::Prompt(prompt) => {
                        assert!(prompt.seen <= self.last(prompt.thread), "durable_before_act");
                        assert!(invariant::check_view(&prompt.history).unwrap().is_empty());
                        self.prompted += 1;
                        self.prompts.push(prompt);
                    }
                    ToModel::Cut { seen, .. } => self.cuts.push(seen),
                    ToModel::Refuse(prompt, why) => self.refused_prompts.push((prompt, why)),
                }
            }
            while let Some(asked) = ends.to_tool.try_next().await {
                match asked {
                    ToTool::Dispatch(dispatch) => {
                        assert!(dispatch.call.number <= self.last(dispatch.thread), "durable_before_act");
                        self.calls.push(dispatch);
                    }
                    ToTool::Refuse(dispatch, why) => self.refused_calls.push((dispatch, why)),
                    ToTool::Cancel(_) | ToTool::Respond(_) | ToTool::Close(_) | ToTool::Check(_) => {}
                }
            }
            while let Some(asked) = ends.to_timer.try_next().await {
                self.timers.push(asked);
            }
            while let Some(told) = ends.to_gateway.try_next().await {
                match told {
                    ToGateway::Answer(ticket, outcome) => self.outcomes.push((ticket.request, outcome)),
                    ToGateway::Output(output) => {
                        assert!(output.id.number <= self.last(output.thread), "durable_before_act");
                    }
                    ToGateway::Chunks(_) | ToGateway::Reply(..) => {}
                    ToGateway::Awake(change) => self.awake += change,
                }
            }
            // What threads send each other comes back, in its order.
            let mut posts = Vec::new();
            while let Some(post) = ends.to_posts.try_next().await {
                let by = if let Record::Post(post) = &post.record { post.id.number } else { 0 };
                let sender = if let Record::Post(post) = &post.record { post.id.from } else { post.thread };
                assert!(by <= self.last(sender), "durable_before_act");
                posts.push(post);
            }
            if answers.is_empty() && posts.is_empty() {
                return;
            }
            ends.from_journal.send_many(answers);
            ends.from_posts.send_many(posts);
        }
    }

    /// Gives every thread another name: its byte plus this. Returns the new names and the threads' last records.
    pub fn rename(&mut self, plus: u8) -> Vec<(ThreadId, Number)> {
        let journal = std::mem::take(&mut self.journal);
        for (id, mut records) in journal {
            let id = thread(id.as_bytes()[0] + plus);
            records.iter_mut().for_each(|record| record.arrival.thread = id);
            self.journal.insert(id, records);
        }
        self.journal.keys().map(|&id| (id, self.last(id))).collect()
    }

    /// What a thread inherits, as a journal reads it.
    pub fn ancestry(&self, id: ThreadId) -> Vec<(ThreadId, Vec<Committed>)> {
        let mut ancestry = Vec::new();
        let mut next = self.journal[&id].first().and_then(|first| first.arrival.record.base());
        while let Some((id, through)) = next {
            let records = &self.journal[&id];
            ancestry.push((id, records[..through as usize].to_vec()));
            next = records[0].arrival.record.base();
        }
        ancestry.reverse();
        ancestry
    }

    /// Puts a record on stable storage.
    pub fn commit(&mut self, arrival: Arrival) -> Committed {
        let records = self.journal.entry(arrival.thread).or_default();
        let committed = Committed { number: records.len() as Number + 1, arrival };
        records.push(committed.clone());
        committed
    }

    pub fn last(&self, thread: ThreadId) -> Number {
        self.journal.get(&thread).map_or(0, |records| records.len() as Number)
    }

    /// The thread as its records make it, checked.
    pub fn fold(&self, id: ThreadId) -> Thread {
        let mut thread = Thread::inheriting(id, self.ancestry(id));
        for record in &self.journal[&id] {
            thread.apply(record.clone());
            invariant::check(&thread).unwrap();
        }
        thread
    }

    /// The prompt of this thread, which is under way.
    pub fn prompt_of(&mut self, thread: ThreadId) -> Prompt {
        let at = self.prompts.iter().position(|prompt| prompt.thread == thread);
        self.prompts.remove(at.unwrap_or_else(|| panic!("{thread} is not asked")))
    }

    pub fn prompt(&mut self) -> Prompt {
        assert_eq!(self.prompts.len(), 1, "one prompt is under way");
        self.prompts.remove(0)
    }

    /// What the model sees of a thread at the end, in words.
    pub fn view(&self, id: ThreadId) -> Vec<String> {
        self.fold(id).history().to_vec().into_iter().map(|item| words(item)).collect()
    }

    /// At the end: nothing is in flight, everybody has an answer, and the last hint says that the thread rests.
    pub fn assert_at_rest(&self, ids: &[ThreadId], answers: usize) {
        assert!(self.prompts.is_empty(), "a prompt is left");
        assert_eq!(self.awake, 0, "an_idle_thread_is_data");
        assert_eq!(self.outcomes.len(), answers);
        for &id in ids {
            assert_eq!(self.fold(id).prompt(), None);
            let rest = self.rests.iter().rev().find(|rest| rest.thread == id);
            assert_eq!(rest.map(|rest| rest.through), Some(self.last(id)), "an_idle_thread_is_data");
        }
    }
}

fn words(item: &Item) -> String {
    let content = |content: &[Content]| match content {
        [Content::Text(text)] => text.clone(),
        other => format!("{other:?}"),
    };
    match item {
        Item::User { content: c, .. } => format!("user: {}", content(c)),
        Item::Assistant { blocks, cut, .. } => {
            let said: Vec<String> = blocks
                .iter()
                .map(|block| match block {
                    Block::Text(text) => text.clone(),
                    Block::Call { name, .. } => format!("{name}()"),
                    Block::Reasoning { text, .. } => text.clone(),
                })
                .collect();
            format!("{}: {}", if *cut { "model, cut" } else { "model" }, said.join(" "))
        }
        Item::Result(answer) => format!("{:?}: {}", answer.by, content(&answer.content)),
        Item::Event(event) => format!("event of {}: {}", event.original_tool_name, content(&event.content)),
        Item::Summary(summary) => format!("summary: {}", summary.text),
    }
}
