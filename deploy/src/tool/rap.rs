//! RAP servers: calls over HTTP.
//!
//! In: dispatches, choices and cancellations of the tools of one server, and threads that have closed. Out: `Record::Accepted`
//! when the server took a call over (its result comes to the gateway), `Record::Responded` when it knows what was chosen, a
//! question to a person, or an error result. Always: a call's id and callback URL are the same in every attempt
//! under one dispatch; 4xx is final, 5xx and network errors are tried again a bounded number of times.

use super::config::{Config, Source};
use super::discovery::{in_words, read_at_most};
use super::keeper::{self, State};
use super::lane::Job;
use super::outbox::{Outbox, failed, now_ms, refused};
use super::schema::Schemas;
use super::server::Server;
use super::terms::Admitted;
use super::wire::{CancelToolCall, CloseThread, Invocation, UserChoiceResponse};
use super::{Error, lane, pause, status};
use crate::capability::CapabilityKey;
use crate::catalog::Catalog;
use serde::Serialize;
use serde_json::value::RawValue;
use slackwater_core::effect::{Dispatch, Respond};
use slackwater_core::port::ToTool;
use slackwater_core::record::Record;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc, watch};

/// How many notices to one server are under way at a time. More are dropped: they are a courtesy.
const NOTICES_MAX: usize = 64;
/// How much of an answer's body is read, and how much of it the model is shown, in bytes.
const BODY_LENGTH_MAX: usize = 64 << 10;
const SHOWN_LENGTH_MAX: usize = 500;
const DAY_MS: u64 = 86_400_000;

/// What all servers share.
pub(super) struct Shared {
    pub(super) client: reqwest::Client,
    pub(super) key: CapabilityKey,
    /// The gateway's address without a slash at the end.
    pub(super) callback_base: String,
    pub(super) catalog: Catalog,
    /// The schemas of all tools.
    pub(super) schemas: Schemas,
    /// Told whenever something becomes known of a server.
    pub(super) changed: Arc<Notify>,
    pub(super) config: Config,
    pub(super) outbox: Outbox,
}

/// The client of all servers. It never follows a redirect, which would turn an invocation into another request, and never
/// uses a proxy, which would not find the servers of this machine.
pub(super) fn client() -> Result<reqwest::Client, Error> {
    reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .no_proxy()
        .build()
        .map_err(Error::Client)
}

/// Starts looking for a server, and doing its calls.
pub(super) fn start(source: Source, shared: Arc<Shared>) -> Server {
    let (publish, state) = watch::channel(State::default());
    let (asks, receive) = mpsc::unbounded_channel();
    let label = source.label.clone();
    let doubt = Arc::new(Notify::new());
    let keeper = tokio::spawn(keeper::keep(source, shared.clone(), publish, doubt.clone()));
    let caller = Arc::new(Caller { label: label.clone(), state: state.clone(), doubt, shared: shared.clone() });
    let notices = Arc::new(Semaphore::new(NOTICES_MAX));
    let (checks, to_check) = mpsc::unbounded_channel();
    let checker = tokio::spawn(status::check(to_check, caller.clone()));
    let teller = caller.clone();
    let lane = tokio::spawn(lane::run(
        receive,
        shared.config.invocations_max,
        shared.outbox.clone(),
        move |job| {
            let caller = caller.clone();
            async move {
                match job {
                    Job::Call(dispatch) => caller.call(dispatch).await,
                    Job::Respond(respond) => caller.respond(respond).await,
                }
            }
        },
        move |ask| match ask {
            ToTool::Check(dispatch) => {
                let _ = checks.send(dispatch);
            }
            ask => teller.clone().tell(ask, &notices),
        },
    ));
    Server { label, state, asks, lane, helpers: vec![keeper, checker] }
}

/// Does the calls of a server.
pub(super) struct Caller {
    pub(super) label: String,
    pub(super) state: watch::Receiver<State>,
    doubt: Arc<Notify>,
    pub(super) shared: Arc<Shared>,
}

/// Why an attempt failed, in words for the model.
enum Failed {
    /// Trying again will not help.
    Finally(String),
    /// It may pass.
    ForNow(String),
}

impl Caller {
    async fn call(&self, dispatch: Dispatch) -> Record {
        let found = self.state.borrow().toolset.clone();
        // The router has found the tool a moment ago; it is gone again only if the server has changed since.
        let Some((toolset, terms)) = found.and_then(|set| Some((set.clone(), set.terms.get(&dispatch.name)?.clone())))
        else {
            return refused(
                dispatch.call,
                format!("There is no tool named {:?} any more. Go on without it.", dispatch.name),
            );
        };
        let Admitted { arguments, timeout_ms } =
            match terms.admit(&dispatch, &self.shared.config.approvals, &toolset.name) {
                Ok(admitted) => admitted,
                Err(record) => return *record,
            };
        self.shared.outbox.put_deadline(dispatch.thread, dispatch.call, timeout_ms);
        let body = self.invocation(&dispatch, arguments);
        match self.deliver("the call over", "the call", &body.id, &body, None).await {
            Ok(()) => Record::Accepted(dispatch.call),
            Err(text) => failed(dispatch.call, &toolset.name, text),
        }
    }

    async fn respond(&self, respond: Respond) -> Record {
        let Respond { thread, call, name, question, url, selected } = respond;
        let body = UserChoiceResponse { id: call.effect_id(thread), selected };
        match self.deliver("what the user chose", "what the user chose", &body.id, &body, Some(&url)).await {
            Ok(()) => Record::Responded(question),
            Err(text) => failed(call, &name, text),
        }
    }

    /// Tries until the server has taken something: at this URL, or else at its endpoint; or says, for the model, why it has
    /// not.
    async fn deliver<B: Serialize>(
        &self,
        taken: &str,
        refused: &str,
        id: &str,
        body: &B,
        url: Option<&str>,
    ) -> Result<(), String> {
        let config = &self.shared.config;
        let mut failures = 0;
        loop {
            let why = match self.attempt(refused, body, url).await {
                Ok(()) => return Ok(()),
                Err(Failed::Finally(text)) => return Err(text),
                Err(Failed::ForNow(text)) => text,
            };
            failures += 1;
            tracing::debug!(server = self.label, call = id, failures, why, "a post failed");
            if failures >= config.invocation_attempts {
                return Err(format!(
                    "The tool server did not take {taken} in {failures} attempts: it {why}. Whether the tool did anything is not known. Try again later, go on without it, or tell the user."
                ));
            }
            tokio::time::sleep(pause::after(failures, config.retry_first_ms, config.retry_max_ms)).await;
        }
    }

    fn invocation(&self, dispatch: &Dispatch, arguments: Box<RawValue>) -> Invocation {
        let Dispatch { thread, call, name, ancestors, .. } = dispatch;
        let expires_ms = now_ms().saturating_add(self.shared.config.callback_lifetime_days.saturating_mul(DAY_MS));
        let token = self.shared.key.token(*thread, *call, expires_ms);
        Invocation {
            operation: name.clone(),
            arguments,
            id: call.effect_id(*thread),
            call_id: None,
            callback_url: format!("{}/v1/callbacks/{token}", self.shared.callback_base),
            group_id: thread.to_string(),
            user_id: None,
            thread_ancestors: ancestors.iter().map(ToString::to_string).collect(),
        }
    }

    async fn attempt<B: Serialize>(&self, refused: &str, body: &B, url: Option<&str>) -> Result<(), Failed> {
        let url = match url {
            Some(url) => url.to_owned(),
            // Asked anew at each attempt: a command that was started again is somewhere else.
            None => self.state.borrow().endpoint().map_err(Failed::ForNow)?.endpoint.clone(),
        };
        let response = self
            .shared
            .client
            .post(&url)
            .timeout(Duration::from_millis(self.shared.config.invocation_timeout_ms))
            .json(body)
            .send()
            .await
            .map_err(|error| {
                self.doubt.notify_one();
                Failed::ForNow(in_words(&error))
            })?;
        let status = response.status();
        // The body is read so that the connection can be used again; what it says only matters when it is a complaint.
        let said = read_at_most(response, BODY_LENGTH_MAX).await.unwrap_or_default();
        if status.is_success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        let said = match said.trim() {
            "" => String::new(),
            said => format!(" and said: {}", said.chars().take(SHOWN_LENGTH_MAX).collect::<String>()),
        };
        self.doubt.notify_one();
        if status.is_server_error() {
            return Err(Failed::ForNow(format!("answered {status}{said}")));
        }
        Err(Failed::Finally(format!(
            "The tool server refused {refused}: it answered {status}{said}. Do not repeat the call unchanged; correct it, go on without it, or tell the user."
        )))
    }

    /// Tells the server that nobody waits for a call any more, or that a thread has closed. Nobody waits for this either.
    fn tell(self: Arc<Self>, ask: ToTool, notices: &Arc<Semaphore>) {
        match ask {
            ToTool::Cancel(Dispatch { thread, call, .. }) => {
                let body = CancelToolCall { thread_id: thread.to_string(), tool_call_id: call.effect_id(thread) };
                self.notify("cancel_tool_call", body, notices);
            }
            ToTool::Close(thread) => {
                self.notify("close_thread", CloseThread { thread_id: thread.to_string() }, notices);
            }
            ToTool::Dispatch(_) | ToTool::Respond(_) | ToTool::Check(_) | ToTool::Refuse(..) => {
                unreachable!("invariant: a lane does what is answered, and the checker asks")
            }
        }
    }

    fn notify(self: Arc<Self>, path: &str, body: impl Serialize + Send + 'static, notices: &Arc<Semaphore>) {
        let Some(toolset) = self.state.borrow().toolset.clone() else { return };
        let Ok(permit) = notices.clone().try_acquire_owned() else {
            tracing::debug!(server = self.label, path, "too many notices at a time; one was dropped");
            return;
        };
        let url = format!("{}/{path}", toolset.base);
        tokio::spawn(async move {
            let timeout = Duration::from_millis(self.shared.config.invocation_timeout_ms);
            match self.shared.client.post(&url).timeout(timeout).json(&body).send().await {
                Ok(response) => tracing::debug!(url, status = %response.status(), "a tool server was told"),
                Err(error) => tracing::debug!(url, why = in_words(&error), "a tool server could not be told"),
            }
            drop(permit);
        });
    }
}
