//! The tools: who does a call that a model made.
//!
//! In: dispatches, choices of people, cancellations. Out: `Record::Accepted`, `Record::Result`, or `Record::Asked` when a person
//! has to approve the call first; `Record::Responded` for a choice. Always: a dispatch gets exactly one of these unless it
//! was cancelled, and before it at most a `Record::Deadline`; the same call under way twice is done once; one source's stall never holds another's calls.
//!
//! | part | what it does |
//! | --- | --- |
//! | `config` | which sources there are, and the limits |
//! | `router` | finds the source that owns the name of a call |
//! | `terms` | which arguments a tool takes, how long a call may take, whether a person is asked first |
//! | `schema` | checks a call's arguments, and refuses it when they do not fit |
//! | `lane` | one source's calls: so many at a time, the rest in order |
//! | `server` | a server as the router sees it, whatever it speaks |
//! | `rap` | calls over HTTP, spelled in `wire`, tried again after a `pause` |
//! | `mcp` | calls by the Model Context Protocol, over HTTP or with a command |
//! | `status` | asks a server, after a start, whether it still knows the calls that it had taken over |
//! | `keeper` | finds a server by `discovery`, and runs it if it is a `command` |
//! | `local` | async Rust functions |
//!
//! A crash between doing a call and recording it does it again, under the same id: tools see each call at least once.

mod command;
mod config;
mod discovery;
mod keeper;
mod lane;
mod local;
mod mcp;
mod outbox;
mod pause;
mod rap;
mod router;
mod schema;
mod server;
mod status;
mod terms;
#[cfg(test)]
mod tests;
pub mod wire;

pub use config::{Config, McpConfig, ServerConfig};
pub use local::{Answer, CallContext, LocalTool};
pub use terms::Approvals;

use crate::capability::CapabilityKey;
use crate::catalog::Catalog;
use crate::port::{self, FromAdapter, ToAdapter};
use slackwater_core::port::ToTool;
use slackwater_core::record::Arrival;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// The longest useful wait for a server to be found, in milliseconds: a day.
const UNKNOWN_TOOL_WAIT_MS_MAX: u64 = 86_400_000;

/// Why tools cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A server is not described as it must be.
    #[error("tool server {server}: {fault}")]
    Config {
        /// Which one, as far as it can be told.
        server: String,
        /// What is wrong and what to do.
        fault: String,
    },
    /// The local tools have names or schemas that no model can call.
    #[error("the local tools cannot be used: {}", .0.join("; "))]
    Local(Vec<String>),
    /// A server does not answer as one. Tried again until it does.
    #[error("{url}: {fault}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// What came of it.
        fault: String,
    },
    /// A server's toolset has faults; all of them are listed.
    #[error("{url}: the toolset is refused: {}", .faults.join("; "))]
    Refused {
        /// Where it was found.
        url: String,
        /// Everything that is wrong with it.
        faults: Vec<String>,
    },
    /// A command does not run as a server.
    #[error("the command {command:?} does not run as a tool server: {fault}")]
    Command {
        /// The program.
        command: String,
        /// What is wrong.
        fault: String,
    },
    /// There is no HTTP client to be had.
    #[error("the HTTP client for tool servers cannot be made: {0}; are the system's CA certificates installed?")]
    Client(#[source] reqwest::Error),
}

/// What the host keeps of the running tools. Dropping it stops nothing; they stop when the sink of dispatches is dropped.
#[derive(Debug)]
pub struct Tools {
    servers: Vec<(String, watch::Receiver<keeper::State>)>,
    stop: CancellationToken,
    router: JoinHandle<()>,
}

/// A server that cannot be used at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// Its name in the configuration, or else its URL or command.
    pub server: String,
    /// What is wrong.
    pub why: String,
}

/// Starts the tools. What a host gives: the sources, the catalog they offer their tools to, the key of capabilities, and the
/// address under which callbacks reach the gateway, without the path (`http://127.0.0.1:7080`). Must be called inside a tokio
/// runtime; servers are looked for in the background.
///
/// # Errors
/// [`Error::Config`], [`Error::Local`] and [`Error::Client`]. What goes wrong with a server later is logged and does not stop the others.
pub fn start(
    config: Config,
    local: Vec<LocalTool>,
    catalog: Catalog,
    key: CapabilityKey,
    callback_base: String,
) -> Result<(FromAdapter<Arrival>, ToAdapter<ToTool>, Tools), Error> {
    let (servers, speak_mcp) = (config.sources()?, config.mcp_sources()?);
    let (from, to, inside) = port::ends();
    let outbox = outbox::Outbox::new(inside.send);
    let schemas = schema::Schemas::default();
    let local = local::start(local, &config, &catalog, &schemas, outbox.clone())?;
    let shared = Arc::new(rap::Shared {
        client: rap::client()?,
        key,
        callback_base: callback_base.trim_end_matches('/').to_owned(),
        catalog: catalog.clone(),
        schemas,
        changed: Arc::new(Notify::new()),
        config,
        outbox: outbox.clone(),
    });
    let by_rap = servers.into_iter().map(|source| rap::start(source, shared.clone()));
    let by_mcp = speak_mcp.into_iter().map(|source| mcp::start(source, shared.clone()));
    let servers: Vec<server::Server> = by_rap.chain(by_mcp).collect();
    let states = servers.iter().map(|server| (server.label.clone(), server.state.clone())).collect();
    let stop = CancellationToken::new();
    let router = router::Router {
        receive: inside.receive,
        servers,
        local,
        catalog,
        changed: shared.changed.clone(),
        wait: Duration::from_millis(shared.config.unknown_tool_wait_ms.min(UNKNOWN_TOOL_WAIT_MS_MAX)),
        outbox,
        stop: stop.clone(),
    };
    Ok((from, to, Tools { servers: states, stop, router: tokio::spawn(router.run()) }))
}

impl Tools {
    /// Waits until every server has been found or refused, but no longer than `bound`, and says which cannot be used.
    pub async fn ready(&mut self, bound: Duration) -> Vec<Trouble> {
        let _ = tokio::time::timeout(bound, async {
            for (_, state) in &mut self.servers {
                // A closed channel is a server that has stopped: nothing more will be known of it.
                let _ = state.wait_for(|state| state.is_settled()).await;
            }
        })
        .await;
        self.troubles()
    }

    /// Which servers cannot be used at present.
    pub fn troubles(&self) -> Vec<Trouble> {
        self.servers
            .iter()
            .filter_map(|(server, state)| Some(Trouble { server: server.clone(), why: state.borrow().trouble()? }))
            .collect()
    }

    /// Stops everything: calls under way are dropped, commands are ended.
    pub async fn stop(self) {
        self.stop.cancel();
        // A router that panicked has dropped what it had.
        let _ = self.router.await;
    }
}
