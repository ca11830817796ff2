//! The records: everything that can happen to a thread, and nothing else.
//!
//! In: what adapters learned of the world. Out: the closed enum [`Record`], which the journal keeps and the fold applies.
//! Always: a variant keeps its place and its fields their order for ever (the journal's encoding is by position), so
//! variants and fields are only ever added at the end, with a new format version.

pub mod bounds;
pub mod post;
pub mod question;
pub mod terms;

pub use bounds::Bounds;
pub use post::{Birth, Cause, Post, PostBody, Receipt, Undelivered};
pub use question::{Asks, Decision, Question, Verdict, ViewUpdate};
pub use terms::Terms;

use crate::id::{CallId, InputId, Number, ThreadId, Ticket};
use serde::{Deserialize, Serialize};

/// One thing that happened to a thread.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// A user wrote. It creates the thread when there is none.
    Message(Message),
    /// A model answered a prompt.
    Completion(Completion),
    /// A prompt could not be answered; the turn ends and its inputs stay.
    Failure(Failure),
    /// A tool took a call over and will answer it later.
    Accepted(CallId),
    /// The moment that a call sleeps until is known.
    Armed {
        /// The sleeping call.
        call: CallId,
        /// When it is due, in milliseconds since the Unix epoch.
        due_ms: u64,
    },
    /// A call has its result.
    Result(ToolResult),
    /// A timer came due.
    Fired(CallId),
    /// Somebody asked the thread to stop what it is doing.
    Stop(Stop),
    /// Something came from another thread of the same tree. A birth creates the thread.
    Post(Post),
    /// What became of something that this thread sent to another.
    Delivered(Receipt),
    /// A subscription produced something.
    Event(SubscriptionEvent),
    /// The thread's bounds are these from here on.
    Bounds(Bounds),
    /// A person is asked something on behalf of a call. The number of this record is the question's name.
    Asked(Question),
    /// A person answered a question.
    Answered(Verdict),
    /// A tool was told what was chosen, by the question's number.
    Responded(Number),
    /// The moment at which a call times out is known.
    Deadline {
        /// The call.
        call: CallId,
        /// When it times out, in milliseconds since the Unix epoch.
        due_ms: u64,
    },
    /// A tool has something for clients that show views.
    View(ViewUpdate),
    /// Somebody asked the thread and all below it to stop what they are doing.
    StopAll(Stop),
    /// The history should be made shorter by a summary.
    Compact(Compact),
    /// A tool that had taken a call over says that it knows nothing of it any more.
    Lost(CallId),
}

/// What a user wrote.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The sender's name for it.
    pub id: InputId,
    /// Who sent it.
    pub origin: Origin,
    /// What it says.
    pub content: Vec<Content>,
    /// The name under which the thread was addressed, if it was not its id. The first one is kept.
    pub thread_name: Option<String>,
    /// Whatever the sender wants kept with it: a JSON object as text.
    pub metadata: Option<String>,
}

/// A piece of what is said, by anybody.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Content {
    /// Text.
    Text(String),
    /// A picture.
    Image {
        /// Its MIME type, for example `image/png`.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
    /// A file that is no picture.
    File {
        /// Its name.
        name: String,
        /// Its MIME type.
        media_type: String,
        /// Its bytes in base64.
        data: String,
    },
}

/// Who sent an input, and how that is known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// The sender, as it calls itself.
    pub who: String,
    /// How that was verified.
    pub proof: Proof,
}

/// How an origin was verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Proof {
    /// It is the runtime itself, or code inside its process.
    Process,
    /// It came over the loopback interface, which only users of this machine reach.
    Loopback,
    /// It carried the capability that was given out with the call.
    Capability,
    /// It carried a bearer key of the gateway.
    Key,
}

/// What a model answered to one prompt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Completion {
    /// The last record that its prompt had seen.
    pub seen: Number,
    /// What it said, in the order in which it said it.
    pub blocks: Vec<Block>,
    /// Why it ended.
    pub end: End,
    /// What it cost.
    pub usage: Usage,
    /// The model that answered, as the provider names it.
    pub model: String,
}

/// A piece of a completion.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Text for the user.
    Text(String),
    /// The model's own reasoning.
    Reasoning {
        /// What of it can be read; may be empty.
        text: String,
        /// The provider's own block, to be sent back to it byte for byte.
        sealed: Option<Sealed>,
    },
    /// A tool call.
    Call {
        /// The provider's id for it.
        provider_id: String,
        /// The tool's name.
        name: String,
        /// The arguments, JSON as text, as the model wrote them.
        arguments: String,
    },
}

/// A block that only its provider understands, for example reasoning with a signature.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sealed {
    /// The kind of provider that made it, for example `anthropic`. Other providers are not shown it.
    pub provider: String,
    /// The block's JSON as it came.
    pub json: String,
}

/// Why a completion ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The model had said all it wanted; it may have made calls.
    Finished,
    /// The model reached its limit of output.
    Length,
    /// The provider or the model declined.
    Declined,
    /// It was cut by a new message or a stop; what it had said so far is kept.
    Cut,
}

/// Tokens, by the provider's count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt, cached ones included.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Those of the input that were read from the provider's cache.
    pub cached_tokens: u64,
}

/// Why a prompt could not be answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The last record that the prompt had seen.
    pub seen: Number,
    /// What kind of failure.
    pub class: FailureClass,
    /// What the user is told.
    pub message: String,
    /// How often it was tried.
    pub attempts: u32,
}

/// The kinds of a provider's failures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// It may pass: a network error, a 5xx, a stream that broke off.
    Transient,
    /// The provider asked for a pause.
    Throttled,
    /// The prompt does not fit the model.
    Overflow,
    /// It will not pass: a wrong key, an unknown model, a request that the provider refuses.
    Fatal,
}

/// A call's result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call that it answers.
    pub call: CallId,
    /// Who sent it.
    pub origin: Origin,
    /// What it says.
    pub content: Vec<Content>,
    /// Whether the tool says that it failed.
    pub is_error: bool,
    /// Whether the call goes on producing events.
    pub subscription: bool,
    /// How a person's client may show it: the tool's own JSON as text.
    pub display: Option<String>,
}

/// A request to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stop {
    /// The sender's name for it.
    pub id: InputId,
    /// Who asked.
    pub origin: Origin,
}

/// Something that a subscription produced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubscriptionEvent {
    /// The call that subscribed.
    pub subscription: CallId,
    /// Its name: given by the sender, or made from the content. The same id of the same subscription is the same event.
    pub id: InputId,
    /// Who sent it.
    pub origin: Origin,
    /// What happened.
    pub content: Vec<Content>,
    /// Whether it belongs into the thread itself.
    pub associative: bool,
    /// Whether it is the subscription's last.
    pub last: bool,
    /// How it is to be delivered, if the sender says: inline when it is associative, otherwise in a child of its own.
    pub deliver: Option<Deliver>,
}

/// How an event reaches a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Deliver {
    /// In a child of its own.
    Child,
    /// In the thread itself.
    Inline,
    /// In the thread itself, together with others.
    Digest {
        /// With so many.
        count: u32,
        /// Or as many as have come so long after the first, in milliseconds.
        wait_ms: u64,
    },
}

/// A request to make the history shorter by a summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compact {
    /// The sender's name for it.
    pub id: InputId,
    /// Who asked.
    pub origin: Origin,
    /// Why.
    pub why: CompactWhy,
}

/// Why a history should be made shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactWhy {
    /// A prompt and its answer took more than the share of the model's window that was configured.
    Crossed {
        /// The last record that the prompt had seen.
        seen: Number,
        /// How many tokens they took, cached ones included.
        tokens: u64,
    },
    /// Somebody wants it.
    ByHand,
}

/// A record on its way into the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arrival {
    /// Who waits for an answer; nobody for what the runtime's own adapters send.
    pub ticket: Option<Ticket>,
    /// The thread it happens to.
    pub thread: ThreadId,
    /// When it was received, in milliseconds since the Unix epoch.
    pub at_ms: u64,
    /// What happened.
    pub record: Record,
}

/// A record that is on stable storage, with its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Committed {
    /// Its place in its thread.
    pub number: Number,
    /// What was committed.
    pub arrival: Arrival,
}

impl Record {
    /// Whether the record may be the first of its thread. Any other record of an unknown thread is refused.
    pub fn creates_thread(&self) -> bool {
        matches!(
            self,
            Record::Message(_) | Record::Post(Post { body: PostBody::Birth(_) | PostBody::Summarize { .. }, .. })
        )
    }

    /// What the thread whose first record this is inherits: another thread, through the record of this number.
    pub fn base(&self) -> Option<(ThreadId, Number)> {
        match self {
            Record::Post(Post { body: PostBody::Birth(birth) | PostBody::Summarize { birth, .. }, .. })
                if !birth.fresh =>
            {
                birth.ancestors.last().map(|&parent| (parent, birth.through))
            }
            _ => None,
        }
    }
}

impl Origin {
    /// The runtime itself. An error result from here is the runtime's refusal of a call (no such tool, bad arguments), not
    /// a tool's failure.
    pub fn runtime() -> Self {
        Self { who: "slackwater".to_owned(), proof: Proof::Process }
    }

    /// Whether it is the runtime itself, and not a tool or user inside its process.
    pub fn is_runtime(&self) -> bool {
        self.proof == Proof::Process && self.who == "slackwater"
    }
}

impl Block {
    /// The length of what it carries, in bytes.
    pub fn byte_length(&self) -> usize {
        match self {
            Block::Text(text) => text.len(),
            Block::Reasoning { text, sealed } => sealed.as_ref().map_or(text.len(), |sealed| sealed.json.len()),
            Block::Call { name, arguments, .. } => name.len() + arguments.len(),
        }
    }
}

impl Content {
    /// The length of what it carries, in bytes.
    pub fn byte_length(&self) -> usize {
        match self {
            Content::Text(text) => text.len(),
            Content::Image { data, .. } | Content::File { data, .. } => data.len(),
        }
    }
}
