//! What threads ask of the simulated world, and what follows: prompts, calls, timers, answers to senders.
//!
//! In: what leaves the join. Out: things on their way to the shard. Always: what is asked is compared with what is durable
//! before it is done.

use super::agent::{Later, When};
use super::log::{Broken, broken};
use super::promise;
use super::view::{Run, words};
use super::world::{Asking, Cargo, Delivery, Key, START_MS, World};
use crate::timer;
use slackwater_core::effect::{Dispatch, Due, Outcome, Prompt};
use slackwater_core::flow::awake::ToWorld;
use slackwater_core::id::{CallId, ThreadId, Ticket};
use slackwater_core::port::{ToGateway, ToJournal, ToModel, ToTimer, ToTool};
use slackwater_core::record::{Asks, Content, Origin, Proof, Question, Record, ToolResult};

impl World<'_> {
    /// Does what a thread asks of the world.
    pub(super) fn ask(&mut self, item: ToWorld) -> Result<(), Broken> {
        match item {
            ToWorld::Journal(ToJournal::Recall { thread, before }) => {
                self.fly(self.now_ms, true, Cargo::Recalled(thread, before));
            }
            ToWorld::Journal(ToJournal::Rest(rest)) => self.journal.rest(rest),
            ToWorld::Journal(ToJournal::Append(_) | ToJournal::Query(..)) => {
                return broken("fan_out", "the join asked the journal for what is not its business");
            }
            ToWorld::Model(ToModel::Prompt(prompt)) => self.prompt(prompt)?,
            ToWorld::Model(ToModel::Cut { thread, seen }) => self.cut((thread, seen)),
            ToWorld::Tool(ToTool::Dispatch(dispatch)) => self.dispatch(dispatch)?,
            ToWorld::Tool(ToTool::Cancel(dispatch)) => self.cancel(&dispatch),
            ToWorld::Tool(ToTool::Respond(_)) => {
                return broken("fan_out", "a tool is told of a choice for which it did not ask");
            }
            // A service keeps the calls that it has taken over.
            ToWorld::Tool(ToTool::Check(_)) => {}
            ToWorld::Tool(ToTool::Close(thread)) => {
                self.tell(|world| format!("    the tools are told that {} has closed", world.sim.name(thread)));
            }
            ToWorld::Model(ToModel::Refuse(..)) | ToWorld::Tool(ToTool::Refuse(..)) => {
                return broken("fan_out", "the join refused what only an operator refuses");
            }
            ToWorld::Timer(ToTimer::Arm { thread, call, due }) => self.arm(thread, call, due),
            ToWorld::Timer(ToTimer::Disarm { thread, call }) => self.disarm(thread, call),
            ToWorld::Post(arrival) => self.fly(self.now_ms, false, Cargo::Record(arrival.thread, arrival.record)),
            ToWorld::Gateway(ToGateway::Answer(ticket, outcome)) => self.acknowledge(ticket, outcome)?,
            ToWorld::Gateway(ToGateway::Output(output)) => promise::output(&self.view, &output)?,
            ToWorld::Gateway(ToGateway::Awake(change)) => self.threads_awake += change,
            ToWorld::Gateway(ToGateway::Chunks(_) | ToGateway::Reply(..)) => {}
        }
        Ok(())
    }

    fn prompt(&mut self, prompt: Prompt) -> Result<(), Broken> {
        promise::prompt(&self.view, &prompt)?;
        let key = (prompt.thread, prompt.seen);
        self.tell(|world| {
            let news = prompt.history.newest_first().next().map(|item| words(item)).unwrap_or_default();
            format!("    the model is asked for {} (the newest is {news:?})", world.sim.name(key.0))
        });
        self.view.prompts.push(prompt.clone());
        let reply = self.sim.agent.reply(&prompt);
        let takes_ms = reply.delay_ms + reply.chunk_delay_ms * reply.chunks.len() as u64;
        if self.asked.insert(key, Asking { prompt, reply, cut: None }).is_none() {
            self.fly(self.now_ms + takes_ms, false, Cargo::Answer(key));
        }
        Ok(())
    }

    /// A cut finds the model before any chunk, after any of them, or when it has just finished.
    fn cut(&mut self, key: Key) {
        let Some(asking) = self.asked.get_mut(&key).filter(|asking| asking.cut.is_none()) else { return };
        let chunks = asking.reply.chunks.len();
        let at = self.log.choices.order(chunks + 2);
        if at <= chunks {
            asking.cut = Some(at);
            self.log.counts.cuts += 1;
            self.tell(|_| format!("    the model is cut after {at} of {chunks} chunks"));
        } else {
            self.tell(|_| "    the cut comes when the model has just finished".to_owned());
        }
    }

    fn dispatch(&mut self, dispatch: Dispatch) -> Result<(), Broken> {
        let Dispatch { thread, call, name, arguments, approved, ancestors: _ } = &dispatch;
        let id = call.effect_id(*thread);
        let arguments = serde_json::from_str(arguments).unwrap_or(serde_json::Value::Null);
        let history = promise::dispatch(&self.view, &dispatch, &arguments)?;
        let Some(tool) = self.sim.agent.tools.get(name) else {
            let text = format!("There is no tool {name}.");
            let record = result(*call, Origin::runtime(), &Later::now(text).failed());
            self.fly(self.now_ms, true, Cargo::Record(*thread, record));
            return Ok(());
        };
        if tool.is_gated && !approved {
            self.tell(|_| format!("    {name} waits for an approval of call {}", dispatch.call));
            let asks = Asks::Approval { reason: format!("{name} needs one") };
            let question = Question { call: *call, origin: Origin::runtime(), asks };
            self.fly(self.now_ms, true, Cargo::Record(*thread, Record::Asked(question)));
            return Ok(());
        }
        // The adapter says how long the call may take before it says anything else of it.
        let due_ms = tool.timeout_ms.map(|timeout_ms| START_MS + self.now_ms + timeout_ms);
        let mut deadline = due_ms.map(|due_ms| Record::Deadline { call: *call, due_ms });
        let mut after_deadline = |record| match deadline.take() {
            Some(deadline) => Cargo::Records(*thread, vec![deadline, record]),
            None => Cargo::Record(*thread, record),
        };
        let later = match self.done.get(&id).filter(|_| tool.once).cloned() {
            Some(later) => {
                self.tell(|_| format!("    {name} knows the call {} and does nothing", dispatch.call));
                // A service that has taken the call over delivers its answer anyway.
                Later { times: if later.when == When::Now { later.times } else { 0 }, ..later }
            }
            None => {
                self.tell(|_| format!("    {name}({}) runs as call {}", dispatch.arguments, dispatch.call));
                let (tool_name, at_ms) = (name.clone(), self.now_ms);
                self.view.runs.push(Run {
                    tool: tool_name,
                    thread: *thread,
                    id: id.clone(),
                    arguments,
                    at_ms,
                    history,
                });
                let later = tool.call(&dispatch);
                self.done.insert(id, later.clone());
                later
            }
        };
        let origin = Origin { who: format!("tool:{name}"), proof: Proof::Process };
        let record = result(*call, origin, &later);
        if later.when != When::Now {
            self.fly(self.now_ms, true, after_deadline(Record::Accepted(*call)));
        }
        for _ in 0..later.times {
            match later.when {
                When::Now => self.fly(self.now_ms, true, after_deadline(record.clone())),
                When::Never => {}
                When::After(delay_ms) => {
                    let name = format!("the result of {name} ({:?})", later.text);
                    let (thread, record) = (*thread, record.clone());
                    let delivery = Delivery { name, thread, record, input: None, outcome: None, withdrawn: false };
                    self.send(delivery, self.now_ms + delay_ms, false);
                }
            }
        }
        Ok(())
    }

    /// Nobody waits for a call any more: the tool stops, or has its answer on the way.
    fn cancel(&mut self, dispatch: &Dispatch) {
        let is_result = |thread: ThreadId, record: &Record| {
            thread == dispatch.thread && matches!(record, Record::Result(result) if result.call == dispatch.call)
        };
        let on_the_way: Vec<usize> = (0..self.flying.len())
            .filter(|&at| match &self.flying[at].cargo {
                Cargo::Delivery(of) => is_result(self.deliveries[*of].thread, &self.deliveries[*of].record),
                Cargo::Record(thread, record) => is_result(*thread, record),
                Cargo::Records(thread, records) => records.iter().any(|record| is_result(*thread, record)),
                _ => false,
            })
            .collect();
        if on_the_way.is_empty() || self.log.choices.order(2) == 0 {
            return;
        }
        self.tell(|_| format!("    {} stops", dispatch.name));
        for at in on_the_way.into_iter().rev() {
            if let Cargo::Delivery(of) = self.flying.remove(at).cargo {
                self.deliveries[of].withdrawn = true;
            }
        }
    }

    fn arm(&mut self, thread: ThreadId, call: CallId, due: Due) {
        self.disarm(thread, call);
        let due_ms = match due {
            Due::At(due_ms) => due_ms,
            Due::Wall { date, time, timezone } => match timer::moment(&date, &time, &timezone) {
                Ok(due_ms) => {
                    self.fly(self.now_ms, true, Cargo::Record(thread, Record::Armed { call, due_ms }));
                    due_ms
                }
                Err(why) => return self.fly(self.now_ms, true, Cargo::Record(thread, timer::refused(call, &why))),
            },
        };
        self.fly(due_ms.saturating_sub(START_MS), true, Cargo::Fired(thread, call));
    }

    fn disarm(&mut self, thread: ThreadId, call: CallId) {
        self.flying.retain(|flying| !matches!(flying.cargo, Cargo::Fired(of, name) if (of, name) == (thread, call)));
    }

    fn acknowledge(&mut self, ticket: Ticket, outcome: Outcome) -> Result<(), Broken> {
        let Some(&at) = self.tickets.get(&ticket.request) else {
            return broken("acknowledged_is_durable", "somebody is answered who did not ask, or was answered already");
        };
        self.tickets.remove(&ticket.request);
        promise::acknowledged(&self.view, &self.journal, &self.deliveries[at], &outcome)?;
        self.tell(|world| format!("    the sender of {} is told: {outcome:?}", world.deliveries[at].name));
        if self.deliveries[at].outcome.is_some() {
            return Ok(());
        }
        self.deliveries[at].outcome = Some(outcome.clone());
        if let Some(place) = self.deliveries[at].input {
            self.view.outcomes[place] = Some(outcome);
            self.follow(place);
        }
        Ok(())
    }
}

fn result(call: CallId, origin: Origin, later: &Later) -> Record {
    let content = vec![Content::Text(later.text.clone())];
    Record::Result(ToolResult { call, origin, content, is_error: later.is_error, subscription: false, display: None })
}
