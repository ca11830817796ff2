//! MCP servers: tools by the Model Context Protocol, over streamable HTTP or with a command.
//!
//! In: calls of the tools of one server. Out: a result for each. Always: one connection a server, whoever calls, and none for
//! an agent; a server that is away is connected to again, and a call waits for it a while; a call that is cancelled is cancelled there.
//!
//! There is no `Accepted`: the protocol has no results that come later, so after a crash a call is done again. Its name in the
//! world, which is the same then, goes along as `slackwater/call` in the request's `_meta`.
//!
//! Protocol: <https://modelcontextprotocol.io/specification>, its versions from 2024-11-05 to 2026-07-28.

use super::command::Process;
use super::config::{Reach, Source};
use super::discovery::{Toolset, checked_tools};
use super::keeper::{Board, State};
use super::lane::Job;
use super::outbox::{failed, refused};
use super::rap::Shared;
use super::server::Server;
use super::terms::Terms;
use super::{Error, lane, pause};
use crate::catalog::ToolSpec;
use reqwest::header::{HeaderName, HeaderValue};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProtocolVersion, RequestMetaObject,
    ResourceContents,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt as _, NotificationContext, Peer, RoleClient, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, ServiceError};
use serde_json::{Map, Value};
use slackwater_core::effect::Dispatch;
use slackwater_core::record::{Content, Origin, Proof, Record, ToolResult};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};

/// The pauses between attempts to connect, in milliseconds.
const CONNECT_FIRST_MS: u64 = 250;
const CONNECT_MAX_MS: u64 = 30_000;
/// How long a server may take to greet, in milliseconds: a command may have to be fetched first.
const GREETING_MS: u64 = 60_000;
/// How long a result is at most, in bytes.
const RESULT_BYTES_MAX: usize = 16 << 20;

/// A connection, while there is one.
type Connected = Option<Peer<RoleClient>>;

/// Starts connecting to a server, and doing its calls.
pub(super) fn start(source: Source, shared: Arc<Shared>) -> Server {
    let (publish, state) = watch::channel(State::default());
    let (connect, peer) = watch::channel(None);
    let (asks, receive) = mpsc::unbounded_channel();
    let label = source.label.clone();
    let board = Board { kind: "mcp", label: label.clone(), shared: shared.clone(), publish };
    let keeper = tokio::spawn(keep(source, board, connect));
    let caller = Arc::new(Caller { label: label.clone(), state: state.clone(), peer, shared: shared.clone() });
    let perform = move |job: Job| {
        let caller = caller.clone();
        async move {
            match job {
                Job::Call(dispatch) => caller.call(dispatch).await,
                Job::Respond(respond) => failed(respond.call, &caller.label, "A tool of MCP asks for no choices."),
            }
        }
    };
    // A cancelled call's future is dropped by the lane, and with it the server is told; threads are nothing to the protocol.
    let lane = lane::run(receive, shared.config.invocations_max, shared.outbox.clone(), perform, |_| {});
    Server { label, state, asks, lane: tokio::spawn(lane), helpers: vec![keeper] }
}

/// Keeps a connection and what the server offers, for as long as it is polled.
async fn keep(source: Source, board: Board, connect: watch::Sender<Connected>) {
    let timeout_ms = source.timeout_ms.or(board.shared.config.timeout_ms);
    let changed = Arc::new(Notify::new());
    let mut failures = 0;
    loop {
        let error = match connected(&source, &board, &changed).await {
            Err(error) => error,
            Ok((service, _process)) => {
                let peer = service.peer().clone();
                let mut ended = std::pin::pin!(service.waiting());
                loop {
                    match offered(&peer, &source, &board, timeout_ms).await {
                        Ok(toolset) => {
                            failures = 0;
                            board.found(toolset);
                            connect.send_replace(Some(peer.clone()));
                        }
                        Err(error) => break error,
                    }
                    tokio::select! {
                        _ = &mut ended => break unreachable(&source, "the connection has ended"),
                        () = changed.notified() => {}
                    }
                }
            }
        };
        connect.send_replace(None);
        board.in_trouble(error);
        failures += 1;
        tokio::time::sleep(pause::after(failures, CONNECT_FIRST_MS, CONNECT_MAX_MS)).await;
    }
}

/// Connects. A command lives as long as what is returned with the connection.
async fn connected(
    source: &Source,
    board: &Board,
    changed: &Arc<Notify>,
) -> Result<(RunningService<RoleClient, Client>, Option<Process>), Error> {
    let client = Client { changed: changed.clone() };
    let lifecycle = ClientLifecycleMode::Auto {
        preferred_versions: vec![ProtocolVersion::LATEST],
        legacy_version: Some(ProtocolVersion::LATEST_WITH_INITIALIZE),
    };
    let limit = Duration::from_millis(GREETING_MS);
    let (greeted, process) = match &source.reach {
        Reach::Url(url) => {
            let mut config = StreamableHttpClientTransportConfig::with_uri(url.clone());
            config = config.custom_headers(headers(source)?).max_json_response_size(RESULT_BYTES_MAX);
            config = config.max_sse_event_size(RESULT_BYTES_MAX);
            let transport = StreamableHttpClientTransport::with_client(board.shared.client.clone(), config);
            (tokio::time::timeout(limit, client.serve_with_lifecycle(transport, lifecycle)).await, None)
        }
        Reach::Command(command) => {
            let (process, from, to) = Process::piped(&source.label, command)?;
            let greeted = tokio::time::timeout(limit, client.serve_with_lifecycle((from, to), lifecycle)).await;
            (greeted, Some(process))
        }
    };
    let service = greeted
        .map_err(|_| unreachable(source, format!("did not greet within {GREETING_MS} ms")))?
        .map_err(|error| unreachable(source, format!("does not greet as an MCP server: {error}")))?;
    Ok((service, process))
}

fn headers(source: &Source) -> Result<HashMap<HeaderName, HeaderValue>, Error> {
    let header = |(name, value): (&String, &String)| {
        let fault = |what: &str| Error::Config {
            server: source.label.clone(),
            fault: format!("the header {name:?} has {what} that HTTP does not take; correct `headers`"),
        };
        let value = HeaderValue::from_str(value).map_err(|_| fault("a value"))?;
        Ok((HeaderName::try_from(name.as_str()).map_err(|_| fault("a name"))?, value))
    };
    source.headers.iter().map(header).collect()
}

fn unreachable(source: &Source, fault: impl Into<String>) -> Error {
    let at = match &source.reach {
        Reach::Url(url) => url.clone(),
        Reach::Command(_) => source.label.clone(),
    };
    Error::Unreachable { url: at, fault: fault.into() }
}

/// Asks for the tools.
async fn offered(
    peer: &Peer<RoleClient>,
    source: &Source,
    board: &Board,
    timeout_ms: Option<u64>,
) -> Result<Toolset, Error> {
    let listed = tokio::time::timeout(Duration::from_millis(GREETING_MS), peer.list_all_tools()).await;
    let listed = listed
        .map_err(|_| unreachable(source, format!("did not list its tools within {GREETING_MS} ms")))?
        .map_err(|error| unreachable(source, format!("does not list its tools: {error}")))?;
    let listed: Vec<(String, String, Value, Option<Value>)> = listed
        .into_iter()
        .map(|tool| {
            let schema = Value::Object(Map::clone(&tool.input_schema));
            let annotations = tool.annotations.and_then(|hints| serde_json::to_value(hints).ok());
            (tool.name.into_owned(), tool.description.unwrap_or_default().into_owned(), schema, annotations)
        })
        .collect();
    let named = listed.iter().map(|(name, _, schema, _)| (name.as_str(), schema));
    let mut schemas = checked_tools(named, &board.shared.schemas)
        .map_err(|faults| Error::Refused { url: source.label.clone(), faults })?;
    let (mut tools, mut terms) = (Vec::new(), BTreeMap::new());
    for (name, description, schema, annotations) in listed {
        let compiled = schemas.remove(&name).expect("invariant: tools that were checked have their schemas");
        let (of_tool, schema) = Terms::new(compiled, &schema, annotations.clone(), timeout_ms);
        terms.insert(name.clone(), of_tool);
        tools.push(ToolSpec { name, description, schema, annotations });
    }
    let label = source.label.clone();
    Ok(Toolset { name: label.clone(), base: label.clone(), endpoint: label, tools, terms })
}

/// What a server may tell us unasked.
struct Client {
    /// Told when the server offers other tools.
    changed: Arc<Notify>,
}

impl ClientHandler for Client {
    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.notify_one();
    }
}

/// Does the calls of a server.
struct Caller {
    label: String,
    state: watch::Receiver<State>,
    peer: watch::Receiver<Connected>,
    shared: Arc<Shared>,
}

impl Caller {
    async fn call(&self, dispatch: Dispatch) -> Record {
        let (call, label) = (dispatch.call, &self.label);
        let terms = self.state.borrow().toolset.as_ref().and_then(|set| set.terms.get(&dispatch.name).cloned());
        // The router has found the tool a moment ago; it is gone again only if the server has changed since.
        let Some(terms) = terms else {
            return refused(call, format!("{label} does not offer the tool {:?} any more.", dispatch.name));
        };
        let admitted = match terms.admit(&dispatch, &self.shared.config.approvals, label) {
            Ok(admitted) => admitted,
            Err(record) => return *record,
        };
        self.shared.outbox.put_deadline(dispatch.thread, call, admitted.timeout_ms);
        let Some(peer) = self.connection().await else {
            let why = self.state.borrow().trouble().unwrap_or_else(|| "it is not connected".to_owned());
            return failed(call, label, format!("{label} cannot be used at present: {why}. The call was not made."));
        };
        // Arguments that fit the schema of an object are one.
        let arguments = serde_json::from_str(admitted.arguments.get()).unwrap_or_default();
        let mut meta = RequestMetaObject::default();
        meta.0.insert("slackwater/call".to_owned(), call.effect_id(dispatch.thread).into());
        let mut asked = CallToolRequestParams::new(dispatch.name).with_arguments(arguments);
        asked.meta = Some(meta);
        match peer.call_tool_once(asked).await {
            Ok(CallToolResponse::Complete(result)) => self.result(&dispatch.call, result),
            Ok(CallToolResponse::InputRequired(_)) => {
                failed(call, label, format!("{label} asks for more than the call says, which is not supported."))
            }
            Ok(_) => failed(call, label, format!("{label} answers with a task that goes on, which is not supported.")),
            Err(ServiceError::McpError(error)) => {
                failed(call, label, format!("{label} refused the call: {}", error.message))
            }
            Err(error) => failed(
                call,
                label,
                format!("{label} did not answer: {error}. It is not known whether the call was done."),
            ),
        }
    }

    /// The connection, once there is one; nothing after a while.
    async fn connection(&self) -> Connected {
        let limit = Duration::from_millis(self.shared.config.invocation_timeout_ms);
        let mut peer = self.peer.clone();
        // One that has ended a moment ago is still known.
        let lives = |peer: &Connected| peer.as_ref().is_some_and(|peer| !peer.is_transport_closed());
        let found = tokio::time::timeout(limit, peer.wait_for(lives)).await;
        found.ok()?.ok()?.clone()
    }

    fn result(&self, call: &slackwater_core::id::CallId, result: CallToolResult) -> Record {
        let mut content: Vec<Content> = result.content.into_iter().map(piece).collect();
        if content.is_empty()
            && let Some(structured) = result.structured_content
        {
            content.push(Content::Text(structured.to_string()));
        }
        if content.iter().map(Content::byte_length).sum::<usize>() > RESULT_BYTES_MAX {
            let text = format!("The result of {} is longer than {RESULT_BYTES_MAX} bytes. Ask for less.", self.label);
            return failed(*call, &self.label, text);
        }
        Record::Result(ToolResult {
            call: *call,
            origin: Origin { who: self.label.clone(), proof: Proof::Process },
            content,
            is_error: result.is_error.unwrap_or(false),
            subscription: false,
            display: None,
        })
    }
}

/// A piece of a result, as a model is shown it.
fn piece(block: ContentBlock) -> Content {
    match block {
        ContentBlock::Text(text) => Content::Text(text.text),
        ContentBlock::Image(image) => Content::Image { media_type: image.mime_type, data: image.data },
        ContentBlock::Audio(audio) => {
            Content::File { name: "audio".to_owned(), media_type: audio.mime_type, data: audio.data }
        }
        ContentBlock::Resource(resource) => match resource.resource {
            ResourceContents::TextResourceContents { uri, text, .. } => Content::Text(format!("{uri}:\n{text}")),
            ResourceContents::BlobResourceContents { uri, mime_type, blob, .. } => {
                let media_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                Content::File { name: uri, media_type, data: blob }
            }
            other => as_it_came(&other),
        },
        ContentBlock::ResourceLink(link) => {
            let about = link.description.map(|text| format!(": {text}")).unwrap_or_default();
            Content::Text(format!("{} <{}>{about}", link.name, link.uri))
        }
        other => as_it_came(&other),
    }
}

/// What a later version of the protocol may bring.
fn as_it_came(piece: &impl serde::Serialize) -> Content {
    Content::Text(serde_json::to_string(piece).unwrap_or_default())
}
