//! The gateway: what faces clients and tools over HTTP, and how this process reaches its threads.
//!
//! In: requests, and what the shards tell. Out: inputs and questions for the shards; answers, streams and problems for the
//! clients. Always: who sends is proven before anything is taken; a sender is told that its input was taken only after the
//! shard said so; everything that waits is bounded.
//!
//! | part | what it is |
//! | --- | --- |
//! | [`Shards`] | the handle that everything else uses; also the Rust API's and the command line's |
//! | [`Subscription`] | one reader of one thread, without gap or repeat |
//! | `server`, `guard`, `routes` | what every request meets, and the table of what can be asked |
//! | `forward` | what is for a thread of another cell goes to its gateway |
//! | `body`, `messages`, `answers`, `threads`, `events`, `callbacks`, `health`, `status` | the handlers |
//! | [`outputs`], [`why`], [`view`] | what clients see |
//! | [`name`], [`openapi`] | how they address threads, and the description of it all |

mod answers;
mod body;
mod buffer;
mod callbacks;
mod config;
mod events;
mod forward;
mod guard;
mod health;
mod messages;
pub mod name;
pub mod openapi;
pub mod outputs;
mod pace;
mod problem;
mod routes;
mod server;
mod shards;
mod status;
mod subscription;
mod threads;
pub mod view;
pub mod why;

pub use config::{Config, Limits};
pub use guard::BadSetting;
pub use shards::{Readiness, Shards, SubmitError};
pub use subscription::{Event, Subscription};

use crate::capability::CapabilityKey;
use crate::port::{FromAdapter, ToAdapter};
use guard::Guard;
use server::{App, Door, Peer};
use slackwater_core::port::{FromGateway, ToGateway};
use std::future::IntoFuture;
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long connections have to end by themselves when the gateway stops.
const FAREWELL_MS: u64 = 500;

/// Why a gateway cannot be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GatewayError {
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}; is another process there? Choose another address with `listen`")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        source: std::io::Error,
    },
    /// Everybody could command the agents.
    #[error(
        "refusing to listen on {0} without keys: whoever reaches that address could command the agents. Configure keys (`keys = [\"name:secret\"]`), or listen on 127.0.0.1"
    )]
    Exposed(SocketAddr),
    /// A setting cannot be used.
    #[error(transparent)]
    Setting(#[from] BadSetting),
}

/// A running gateway. Dropping it does not stop it; [`Gateway::shutdown`] does.
pub struct Gateway {
    shards: Shards,
    address: SocketAddr,
    base_url: String,
    finish: CancellationToken,
    closed: CancellationToken,
    server: Mutex<Option<JoinHandle<()>>>,
}

/// Starts a gateway that listens where the configuration says. Needs a tokio runtime.
///
/// # Errors
/// When it cannot listen there, or a setting cannot be used.
pub fn start(
    config: Config,
    key: CapabilityKey,
) -> Result<(FromAdapter<FromGateway>, ToAdapter<ToGateway>, Gateway), GatewayError> {
    let address = config.listen;
    let guard = Guard::new(&config)?;
    check_exposure(&guard, address)?;
    let listener = TcpListener::bind(address).map_err(|source| GatewayError::Listen { address, source })?;
    start_on(listener, config, key)
}

/// Starts a gateway on a listener that is bound already. Needs a tokio runtime.
///
/// # Errors
/// When the listener or a setting cannot be used.
pub fn start_on(
    listener: TcpListener,
    config: Config,
    key: CapabilityKey,
) -> Result<(FromAdapter<FromGateway>, ToAdapter<ToGateway>, Gateway), GatewayError> {
    let failed = |source| GatewayError::Listen { address: config.listen, source };
    let guard = Guard::new(&config)?;
    let address = listener.local_addr().map_err(failed)?;
    check_exposure(&guard, address)?;
    listener.set_nonblocking(true).map_err(failed)?;
    // After a restart all clients come at once. Those for whom there is no room in the queue would try again only after seconds,
    // and twice as late each time; the system shortens it to what it allows.
    let waiting_max = i32::try_from(config.limits.connections_max).unwrap_or(i32::MAX);
    rustix::net::listen(&listener, waiting_max).map_err(|error| failed(error.into()))?;
    let listener = tokio::net::TcpListener::from_std(listener).map_err(failed)?;

    let base_url = base_url(&config, address);
    let (shards, from, to) = Shards::new(config.clone());
    let (finish, closed) = (CancellationToken::new(), CancellationToken::new());
    let door = Door::new(listener, &config.limits, closed.clone());
    let router = server::router(Arc::new(App::new(shards.clone(), key, config, guard)));
    let service = router.into_make_service_with_connect_info::<Peer>();
    let finished = finish.clone().cancelled_owned();
    let serve = axum::serve(door, service).with_graceful_shutdown(finished).into_future();
    let server = tokio::spawn(async move {
        if let Err(error) = serve.await {
            tracing::error!(%error, "the gateway's server has stopped");
        }
    });
    tracing::info!(%address, "the gateway listens");
    let gateway = Gateway { shards, address, base_url, finish, closed, server: Mutex::new(Some(server)) };
    Ok((from, to, gateway))
}

impl Gateway {
    /// The handle to the shards, for users in this process.
    pub fn shards(&self) -> Shards {
        self.shards.clone()
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL under which tools and browsers reach it, without a path.
    pub fn base_url(&self) -> &str {
        &self.base_url
    }

    /// Says whether the shards run.
    pub fn set_ready(&self, ready: bool) {
        self.shards.set_readiness(if ready { Readiness::Ready } else { Readiness::Starting });
    }

    /// Says that the shards do not run, and why. What waits is answered with it, and nothing more is taken until
    /// [`Gateway::set_ready`].
    pub fn fail(&self, reason: &str) {
        self.shards.set_readiness(Readiness::Failed(reason.to_owned()));
        self.shards.interrupt(reason);
    }

    /// Stops within a second: what waits is answered with an error, streams end, and connections that do not end by
    /// themselves are closed.
    pub async fn shutdown(&self) {
        self.shards.close("the runtime is stopping");
        self.finish.cancel();
        let server = self.server.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(server) = server {
            let farewell = tokio::time::timeout(Duration::from_millis(FAREWELL_MS), server);
            // Either all is said, or the connections below are closed.
            let _ = farewell.await;
        }
        self.closed.cancel();
    }
}

fn check_exposure(guard: &Guard, address: SocketAddr) -> Result<(), GatewayError> {
    let exposed = guard.trusts_loopback() && !address.ip().to_canonical().is_loopback();
    if exposed { Err(GatewayError::Exposed(address)) } else { Ok(()) }
}

/// The URL under which tools and browsers reach a gateway that listens at this address, without a path.
pub fn base_url(config: &Config, address: SocketAddr) -> String {
    match &config.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            // An address that stands for all addresses is none that can be called.
            let host = match address {
                SocketAddr::V4(v4) if v4.ip().is_unspecified() => "127.0.0.1".to_owned(),
                SocketAddr::V6(v6) if v6.ip().is_unspecified() => "[::1]".to_owned(),
                SocketAddr::V4(v4) => v4.ip().to_string(),
                SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
            };
            format!("http://{host}:{}", address.port())
        }
    }
}
