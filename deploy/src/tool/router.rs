//! The router: which source does a call.
//!
//! In: dispatches, choices and cancellations of all sources. Out: each to the source that owns the name; an error result if
//! none does; that a thread has closed to all servers, as the protocol has it. Always: a name that two sources share is usable in neither; a name that is unknown only because its server has
//! not been found yet waits for it, for a bounded time after the start.

use super::lane::Job;
use super::local::Local;
use super::outbox::{Outbox, refused};
use super::server::Server;
use crate::catalog::Catalog;
use slackwater_core::effect::Dispatch;
use slackwater_core::port::ToTool;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// What the router works with.
pub(super) struct Router {
    pub(super) receive: mpsc::UnboundedReceiver<ToTool>,
    pub(super) servers: Vec<Server>,
    pub(super) local: Local,
    pub(super) catalog: Catalog,
    /// Something has become known of a server.
    pub(super) changed: Arc<Notify>,
    /// How long after the start a call of an unknown tool waits for servers that have not been found yet.
    pub(super) wait: Duration,
    pub(super) outbox: Outbox,
    pub(super) stop: CancellationToken,
}

/// Who does the calls of a name.
enum Owner<'a> {
    One(&'a mpsc::UnboundedSender<ToTool>),
    Shared,
    Nobody,
}

impl Router {
    /// Routes until nobody can ask any more, or until it is told to stop.
    pub(super) async fn run(mut self) {
        let patience = Instant::now() + self.wait;
        let mut held: Vec<Job> = Vec::new();
        let mut checks: Vec<Dispatch> = Vec::new();
        loop {
            tokio::select! {
                () = self.stop.cancelled() => break,
                ask = self.receive.recv() => match ask {
                    None => break,
                    Some(ToTool::Dispatch(dispatch)) => held.extend(self.route(Job::Call(dispatch), patience)),
                    Some(ToTool::Respond(respond)) => held.extend(self.route(Job::Respond(respond), patience)),
                    Some(ToTool::Check(dispatch)) => checks.extend(self.check(dispatch)),
                    Some(ToTool::Close(thread)) => {
                        for server in &self.servers {
                            let _ = server.asks.send(ToTool::Close(thread));
                        }
                    }
                    Some(ToTool::Cancel(dispatch)) => {
                        held.retain(|job| !job.is_of(dispatch.thread, dispatch.call));
                        if let Owner::One(lane) = self.owner(&dispatch.name) {
                            let _ = lane.send(ToTool::Cancel(dispatch));
                        }
                    }
                    Some(ToTool::Refuse(dispatch, why)) => self.outbox.put(dispatch.thread, refused(dispatch.call, why)),
                },
                () = self.changed.notified() => {
                    held = std::mem::take(&mut held).into_iter().filter_map(|job| self.route(job, patience)).collect();
                    checks = std::mem::take(&mut checks).into_iter().filter_map(|check| self.check(check)).collect();
                }
                () = tokio::time::sleep_until(patience), if !held.is_empty() => {
                    held = std::mem::take(&mut held).into_iter().filter_map(|job| self.route(job, patience)).collect();
                }
            }
        }
        for server in self.servers {
            server.stop().await;
        }
        self.local.stop().await;
    }

    /// Sends a call on its way; or gives it back if it has to wait for a server to be found.
    fn route(&self, job: Job, patience: Instant) -> Option<Job> {
        let (thread, call, name) = match &job {
            Job::Call(dispatch) => (dispatch.thread, dispatch.call, &dispatch.name),
            Job::Respond(respond) => (respond.thread, respond.call, &respond.name),
        };
        match self.owner(name) {
            Owner::One(lane) => {
                let _ = lane.send(match job {
                    Job::Call(dispatch) => ToTool::Dispatch(dispatch),
                    Job::Respond(respond) => ToTool::Respond(respond),
                });
            }
            Owner::Shared => {
                let text = format!(
                    "The tool {name:?} cannot be used: two tool servers offer that name. Use another tool, or tell the user to rename one of them."
                );
                self.outbox.put(thread, refused(call, text));
            }
            Owner::Nobody
                if Instant::now() < patience
                    && self.servers.iter().any(|server| !server.state.borrow().is_settled()) =>
            {
                return Some(job);
            }
            Owner::Nobody => {
                self.outbox.put(thread, refused(call, self.unknown(name)));
            }
        }
        None
    }

    /// Has a server say whether it still knows a call; or gives it back while nobody is known who could.
    fn check(&self, dispatch: Dispatch) -> Option<Dispatch> {
        match self.owner(&dispatch.name) {
            Owner::One(lane) => {
                let _ = lane.send(ToTool::Check(dispatch));
                None
            }
            Owner::Shared | Owner::Nobody => Some(dispatch),
        }
    }

    fn owner(&self, name: &str) -> Owner<'_> {
        let servers = self.servers.iter().filter(|server| server.has(name)).map(|server| &server.asks);
        let mut owners = self.local.has(name).then_some(&self.local.asks).into_iter().chain(servers);
        match (owners.next(), owners.next()) {
            (Some(owner), None) => Owner::One(owner),
            (Some(_), Some(_)) => Owner::Shared,
            (None, _) => Owner::Nobody,
        }
    }

    fn unknown(&self, name: &str) -> String {
        let tools = self.catalog.tools();
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        let mut text = match names.is_empty() {
            true => format!("There is no tool named {name:?}, and no other tool either."),
            false => format!("There is no tool named {name:?}. The tools there are: {}.", names.join(", ")),
        };
        for server in &self.servers {
            if let Some(trouble) = server.state.borrow().trouble() {
                text.push_str(&format!(" The tool server {} cannot be used at present: {trouble}.", server.label));
            }
        }
        text
    }
}
