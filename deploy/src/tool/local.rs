//! Local tools: async Rust functions with typed arguments.
//!
//! In: calls with arguments as JSON. Out: the function's answer as `Record::Result`. Always: a function that fails or panics
//! answers with an error result, and the runtime goes on; one is not called with arguments that do not fit.
//!
//! There is no `Accepted` for a local call: it lives in this process, so after a crash it is done again, under the same
//! [`CallContext::id`]. A function whose work must not be done twice keys it by that id.

use super::config::Config;
use super::discovery::checked_tools;
use super::lane::Job;
use super::outbox::{Outbox, failed, refused};
use super::schema::{Schemas, head, unfit};
use super::terms::{Admitted, Terms};
use super::{Error, lane};
use crate::catalog::{Catalog, ToolSpec};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use slackwater_core::effect::Dispatch;
use slackwater_core::id::{CallId, ThreadId};
use slackwater_core::port::ToTool;
use slackwater_core::record::{Content, Origin, Proof, Record, ToolResult};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The name of this source in the catalog, and of its answers.
const LOCAL: &str = "local";

/// How much the model is told of why arguments do not fit a Rust type, in characters.
const UNFIT_LENGTH_MAX: usize = 400;

/// What a function does, if the arguments fit its type.
type Started = Result<BoxFuture<'static, Result<Answer, String>>, serde_json::Error>;
type Function = dyn Fn(&str, CallContext) -> Started + Send + Sync;

/// An async Rust function that a model may call.
#[derive(Clone)]
pub struct LocalTool {
    spec: ToolSpec,
    function: Arc<Function>,
}

impl std::fmt::Debug for LocalTool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalTool").field("spec", &self.spec).finish_non_exhaustive()
    }
}

/// What a local tool answers: text, or pieces of content.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer(pub Vec<Content>);

impl From<String> for Answer {
    fn from(text: String) -> Self {
        Self(vec![Content::Text(text)])
    }
}

impl From<&str> for Answer {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Vec<Content>> for Answer {
    fn from(content: Vec<Content>) -> Self {
        Self(content)
    }
}

/// What a local tool knows of its call.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The thread that makes the call.
    pub thread: ThreadId,
    /// The call.
    pub call: CallId,
    over: CancellationToken,
}

impl CallContext {
    /// The call's name in the world. A call that is done again after a crash has the same.
    pub fn id(&self) -> String {
        self.call.effect_id(self.thread)
    }

    /// Comes when nobody waits for the call any more, or when it is over. The function's own future is dropped then; this is
    /// for what it has spawned.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        self.over.clone().cancelled_owned()
    }
}

impl LocalTool {
    /// A tool that is this function. The arguments' type is its schema: a struct, whose doc comments the model reads. The
    /// function runs on the runtime's own tasks and must not block them; work that blocks belongs into
    /// `tokio::task::spawn_blocking`.
    ///
    /// ```
    /// use slackwater::tool::{CallContext, LocalTool};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct Add {
    ///     /// The first number.
    ///     a: i64,
    ///     /// The second number.
    ///     b: i64,
    /// }
    ///
    /// let add = LocalTool::new("add", "Add two numbers.", |add: Add, _: CallContext| async move {
    ///     add.a.checked_add(add.b).map(|sum| sum.to_string()).ok_or("the sum is too large")
    /// });
    /// ```
    pub fn new<A, F, R, T, E>(name: impl Into<String>, description: impl Into<String>, function: F) -> Self
    where
        A: DeserializeOwned + JsonSchema,
        F: Fn(A, CallContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<T, E>> + Send + 'static,
        T: Into<Answer>,
        E: Display,
    {
        let name = name.into();
        let mut schema = schemars::schema_for!(A);
        // The model has no use for these two, and pays for them in every prompt.
        schema.remove("$schema");
        schema.remove("title");
        let function = move |arguments: &str, context: CallContext| {
            let answer = function(serde_json::from_str::<A>(arguments)?, context);
            Ok(answer.map(|answer| answer.map(Into::into).map_err(|error| format!("{error:#}"))).boxed())
        };
        let spec = ToolSpec { name, description: description.into(), schema: schema.to_value(), annotations: None };
        Self { spec, function: Arc::new(function) }
    }

    /// The same tool with annotations, for example `{"destructive": true}`, in place of those it has.
    pub fn annotated(mut self, annotations: serde_json::Value) -> Self {
        self.spec.annotations = Some(annotations);
        self
    }

    /// The same tool, said to be destructive: by default its calls wait for a person's approval ([`super::Approvals`]).
    pub fn destructive(self) -> Self {
        self.with("destructive", true.into())
    }

    /// The same tool, with the time that a call may take; the model may say another with the call. The function's future is
    /// dropped then, and the model is told.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with("timeoutMs", u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX).into())
    }

    fn with(mut self, field: &str, value: serde_json::Value) -> Self {
        let annotations = self.spec.annotations.get_or_insert_with(|| serde_json::json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(field.to_owned(), value);
        }
        self
    }
}

/// The local tools, running.
pub(super) struct Local {
    /// Where their calls go.
    pub(super) asks: mpsc::UnboundedSender<ToTool>,
    tools: Arc<BTreeMap<String, (LocalTool, Terms)>>,
    lane: JoinHandle<()>,
}

/// Offers the tools and starts doing their calls.
pub(super) fn start(
    tools: Vec<LocalTool>,
    config: &Config,
    catalog: &Catalog,
    schemas: &Schemas,
    outbox: Outbox,
) -> Result<Local, Error> {
    let named = tools.iter().map(|tool| (tool.spec.name.as_str(), &tool.spec.schema));
    let mut checked = checked_tools(named, schemas).map_err(Error::Local)?;
    let known = tools.into_iter().filter_map(|mut tool| {
        let (name, schema) = checked.remove_entry(&tool.spec.name)?;
        let annotations = tool.spec.annotations.clone();
        let (terms, shown) = Terms::new(schema, &tool.spec.schema, annotations, config.timeout_ms);
        tool.spec.schema = shown;
        Some((name, (tool, terms)))
    });
    let tools: BTreeMap<_, _> = known.collect();
    for name in catalog.offer(LOCAL, tools.values().map(|(tool, _)| tool.spec.clone()).collect()) {
        tracing::warn!(server = LOCAL, tool = name, "another source offers a tool of this name; neither is used");
    }
    let tools = Arc::new(tools);
    let (asks, receive) = mpsc::unbounded_channel();
    let (known, approvals, deadlines) = (tools.clone(), Arc::new(config.approvals.clone()), outbox.clone());
    let perform = move |job: Job| {
        let (known, approvals, deadlines) = (known.clone(), approvals.clone(), deadlines.clone());
        async move {
            match job {
                Job::Call(dispatch) => {
                    let (tool, terms) =
                        known.get(&dispatch.name).expect("invariant: the router sends each call to its owner");
                    match terms.admit(&dispatch, &approvals, LOCAL) {
                        Ok(admitted) => call(tool, &dispatch, admitted, &deadlines).await,
                        Err(record) => *record,
                    }
                }
                Job::Respond(respond) => failed(respond.call, LOCAL, "A local tool asks for no choices."),
            }
        }
    };
    // A cancelled call's future is dropped by the lane, and there is nobody else to tell or to ask.
    let lane = tokio::spawn(lane::run(receive, config.local_calls_max, outbox, perform, |_| {}));
    Ok(Local { asks, tools, lane })
}

impl Local {
    /// Whether there is a tool of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.contains_key(name)
    }

    /// Drops the calls under way.
    pub(super) async fn stop(self) {
        drop(self.asks);
        let _ = self.lane.await;
    }
}

async fn call(tool: &LocalTool, dispatch: &Dispatch, admitted: Admitted, deadlines: &Outbox) -> Record {
    let &Dispatch { thread, call, ref name, .. } = dispatch;
    let over = CancellationToken::new();
    // Dropped with this future, however it ends.
    let _guard = over.clone().drop_guard();
    let Admitted { arguments, timeout_ms } = admitted;
    deadlines.put_deadline(thread, call, timeout_ms);
    let answer = match (tool.function)(arguments.get(), CallContext { thread, call, over }) {
        Ok(answer) => answer,
        // A type may want more than a schema can say.
        Err(error) => {
            let error = head(&error.to_string(), UNFIT_LENGTH_MAX);
            return refused(call, unfit(name, format_args!("do not fit: {error}")));
        }
    };
    match answer.await {
        Ok(Answer(content)) => Record::Result(ToolResult {
            call,
            origin: Origin { who: LOCAL.to_owned(), proof: Proof::Process },
            content,
            is_error: false,
            subscription: false,
            display: None,
        }),
        Err(text) => {
            tracing::debug!(tool = name, call = call.effect_id(thread), text, "a local tool failed");
            failed(call, LOCAL, text)
        }
    }
}
