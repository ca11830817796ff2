//! A thread told record by record, the way the tests speak of it.
//!
//! In: what happens, as short calls. Out: what the fold made of it, as short text. Always: every invariant holds after every
//! record, and replaying the records gives the same thread (checked when the story ends).

use slackwater_core::effect::Effect;
use slackwater_core::history::{AnsweredBy, History, Item};
use slackwater_core::id::{CallId, InputId, Number, ThreadId};
use slackwater_core::record::{
    Arrival, Asks, Block, Bounds, Committed, Completion, Content, Decision, End, Failure, FailureClass, Message,
    Origin, Proof, Question, Record, Stop, ToolResult, Usage, Verdict,
};
use slackwater_core::thread::{Applied, Thread, invariant};

/// The bounds that every story has unless it says others.
pub(crate) const PENDING_MAX: usize = Bounds::DEFAULT.pending_max.get() as usize;
pub(crate) const CALLS_PER_TURN_MAX: usize = Bounds::DEFAULT.calls_per_turn_max.get() as usize;
pub(crate) const REFUSED_TURNS_MAX: u32 = Bounds::DEFAULT.refused_turns_max.get();
pub(crate) const DEPTH_MAX: usize = Bounds::DEFAULT.depth_max as usize;
pub(crate) const SUBSCRIPTIONS_MAX: usize = Bounds::DEFAULT.subscriptions_max as usize;
pub(crate) const EVENT_CHILDREN_MAX: usize = Bounds::DEFAULT.event_children_max.get() as usize;
pub(crate) const EVENTS_QUEUED_MAX: usize = Bounds::DEFAULT.events_queued_max as usize;

pub(crate) const THREAD: ThreadId = ThreadId::from_bytes([7; 16]);

/// A thread and the records that made it. The n-th record is received at n seconds.
pub(crate) struct Story {
    pub(crate) thread: Thread,
    pub(crate) records: Vec<Committed>,
}

impl Story {
    pub(crate) fn new() -> Self {
        Self { thread: Thread::new(THREAD), records: Vec::new() }
    }

    pub(crate) fn apply(&mut self, record: Record) -> Applied {
        let number = self.records.len() as Number + 1;
        let committed = committed(number, record);
        self.records.push(committed.clone());
        let applied = self.thread.apply(committed);
        if let Err(broken) = invariant::check(&self.thread) {
            panic!("after record {number}, {broken}");
        }
        applied
    }

    pub(crate) fn message(&mut self, id: &str, text: &str) -> Applied {
        self.apply(message(id, text))
    }

    pub(crate) fn stop(&mut self, id: &str) -> Applied {
        self.apply(Record::Stop(Stop { id: InputId(id.into()), origin: person() }))
    }

    /// The model answers the prompt that had seen `seen`.
    pub(crate) fn turn(&mut self, seen: Number, blocks: Vec<Block>) -> Applied {
        self.apply(completion(seen, blocks, End::Finished))
    }

    pub(crate) fn cut_turn(&mut self, seen: Number, blocks: Vec<Block>) -> Applied {
        self.apply(completion(seen, blocks, End::Cut))
    }

    pub(crate) fn failure(&mut self, seen: Number) -> Applied {
        self.apply(failure(seen))
    }

    pub(crate) fn accepted(&mut self, number: Number, index: u16) -> Applied {
        self.apply(Record::Accepted(CallId { number, index }))
    }

    pub(crate) fn result(&mut self, number: Number, index: u16, text: &str) -> Applied {
        let tool = Origin { who: "tool:build".into(), proof: Proof::Capability };
        self.apply(result(CallId { number, index }, text, false, tool))
    }

    /// A tool says that it failed.
    pub(crate) fn tool_failure(&mut self, number: Number, index: u16, text: &str) -> Applied {
        let tool = Origin { who: "tool:build".into(), proof: Proof::Process };
        self.apply(result(CallId { number, index }, text, true, tool))
    }

    /// The runtime refuses a call that the fold itself could not judge.
    pub(crate) fn runtime_refusal(&mut self, number: Number, index: u16, text: &str) -> Applied {
        self.apply(result(CallId { number, index }, text, true, Origin::runtime()))
    }

    pub(crate) fn armed(&mut self, number: Number, index: u16, due_ms: u64) -> Applied {
        self.apply(Record::Armed { call: CallId { number, index }, due_ms })
    }

    /// A person is asked something on behalf of a call.
    pub(crate) fn asks(&mut self, number: Number, index: u16, asks: Asks) -> Applied {
        self.apply(question(CallId { number, index }, asks))
    }

    /// A person answers.
    pub(crate) fn decides(&mut self, id: &str, question: Number, answer: Decision) -> Applied {
        self.apply(verdict(id, question, answer))
    }

    pub(crate) fn deadline(&mut self, number: Number, index: u16, due_ms: u64) -> Applied {
        self.apply(Record::Deadline { call: CallId { number, index }, due_ms })
    }

    pub(crate) fn fired(&mut self, number: Number, index: u16) -> Applied {
        self.apply(Record::Fired(CallId { number, index }))
    }

    /// What the model is to answer now, one line an item; nothing if it is not asked.
    pub(crate) fn prompt(&self) -> Option<Vec<String>> {
        self.thread.prompt().map(|prompt| lines(&prompt.history))
    }

    /// What stands in the history.
    pub(crate) fn history(&self) -> Vec<String> {
        lines(self.thread.history())
    }
}

impl Drop for Story {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert!(replay(&self.records) == self.thread, "apply_is_deterministic: a replay gives another thread");
        }
    }
}

pub(crate) fn question(call: CallId, asks: Asks) -> Record {
    Record::Asked(Question { call, origin: Origin::runtime(), asks })
}

pub(crate) fn verdict(id: &str, question: Number, answer: Decision) -> Record {
    Record::Answered(Verdict { id: InputId(id.into()), origin: person(), question, answer })
}

pub(crate) fn approval() -> Asks {
    Asks::Approval { reason: "it is destructive".into() }
}

pub(crate) fn choice(prompt: &str) -> Asks {
    let choices = vec!["yes".into(), "no".into()];
    Asks::Choice { prompt: prompt.into(), choices, default: 1, respond_to: "http://tool/answer".into() }
}

/// The thread that these records make.
pub(crate) fn replay(records: &[Committed]) -> Thread {
    let mut thread = Thread::new(THREAD);
    records.iter().for_each(|record| drop(thread.apply(record.clone())));
    thread
}

pub(crate) fn committed(number: Number, record: Record) -> Committed {
    Committed { number, arrival: Arrival { ticket: None, thread: THREAD, at_ms: number * 1_000, record } }
}

pub(crate) fn message(id: &str, text: &str) -> Record {
    let content = vec![Content::Text(text.into())];
    Record::Message(Message { id: InputId(id.into()), origin: person(), content, thread_name: None, metadata: None })
}

pub(crate) fn completion(seen: Number, blocks: Vec<Block>, end: End) -> Record {
    Record::Completion(Completion { seen, blocks, end, usage: Usage::default(), model: "scripted".into() })
}

pub(crate) fn failure(seen: Number) -> Record {
    Record::Failure(Failure { seen, class: FailureClass::Transient, message: "no answer".into(), attempts: 3 })
}

pub(crate) fn result(call: CallId, text: &str, is_error: bool, origin: Origin) -> Record {
    let content = vec![Content::Text(text.into())];
    Record::Result(ToolResult { call, origin, content, is_error, subscription: false, display: None })
}

pub(crate) fn person() -> Origin {
    Origin { who: "ada".into(), proof: Proof::Loopback }
}

pub(crate) fn say(text: &str) -> Block {
    Block::Text(text.into())
}

pub(crate) fn call(name: &str, arguments: &str) -> Block {
    Block::Call { provider_id: format!("{name}-id"), name: name.into(), arguments: arguments.into() }
}

/// A history, one line an item.
pub(crate) fn lines(history: &History) -> Vec<String> {
    history.to_vec().into_iter().map(|item| line(item)).collect()
}

fn line(item: &Item) -> String {
    match item {
        Item::User { content, .. } => format!("user: {}", words(content)),
        Item::Assistant { blocks, cut, .. } => {
            let blocks: Vec<_> = blocks
                .iter()
                .map(|block| match block {
                    Block::Text(text) => text.clone(),
                    Block::Reasoning { text, .. } => format!("({text})"),
                    Block::Call { name, .. } => format!("[{name}]"),
                })
                .collect();
            format!("{}: {}", if *cut { "cut turn" } else { "turn" }, blocks.join(" "))
        }
        Item::Result(answer) => {
            let by = match answer.by {
                AnsweredBy::Tool => "tool",
                AnsweredBy::ToolFailure => "failed tool",
                AnsweredBy::Refusal => "refusal",
                AnsweredBy::BuiltIn => "built in",
                AnsweredBy::Interrupted => "interrupted",
                AnsweredBy::Cancelled => "cancelled",
                AnsweredBy::TimedOut => "timed out",
                AnsweredBy::Denied => "denied",
                AnsweredBy::Lost => "lost",
            };
            format!("{by} {}: {}", answer.call, words(&answer.content))
        }
        Item::Event(event) => format!("event of {}: {}", event.original_tool_call_id, words(&event.content)),
        Item::Summary(summary) => format!("summary: {}", summary.text),
    }
}

fn words(content: &[Content]) -> String {
    let words: Vec<_> = content
        .iter()
        .map(|piece| match piece {
            Content::Text(text) => text.as_str(),
            Content::Image { .. } => "<image>",
            Content::File { .. } => "<file>",
        })
        .collect();
    words.join(" ")
}

/// What the world is asked, one line an effect; what clients are told is left out.
pub(crate) fn asked(applied: &Applied) -> Vec<String> {
    let asks = applied.effects.iter().filter_map(|effect| match effect {
        Effect::Prompt(prompt) => Some(format!("prompt {}", prompt.seen)),
        Effect::Cut { seen, .. } => Some(format!("cut {seen}")),
        Effect::Dispatch(dispatch) if dispatch.approved => {
            Some(format!("approved dispatch {} {}", dispatch.call, dispatch.name))
        }
        Effect::Dispatch(dispatch) => Some(format!("dispatch {} {}", dispatch.call, dispatch.name)),
        Effect::Respond(respond) => {
            Some(format!("respond {} to {} at {}", respond.selected, respond.call, respond.url))
        }
        Effect::Close(thread) => Some(format!("close {thread}")),
        Effect::Check(dispatch) => Some(format!("check {}", dispatch.call)),
        Effect::Cancel(dispatch) => Some(format!("cancel {} {}", dispatch.call, dispatch.name)),
        Effect::Arm { call, .. } => Some(format!("arm {call}")),
        Effect::Disarm { call, .. } => Some(format!("disarm {call}")),
        Effect::Post(arrival) => Some(format!("post to {}", arrival.thread)),
        Effect::Tell(_) => None,
    });
    asks.collect()
}
