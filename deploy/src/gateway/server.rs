//! The server: what every request meets before its handler, and what handlers share.
//!
//! In: connections. Out: responses. Always: no more connections than the bound; every error is a problem document; what
//! the table of routes calls guarded is not reached by a sender who is not known.

use super::body::{BYTES_PER_PERMIT, Fields};
use super::config::{Config, Limits};
use super::forward::{self, Peers};
use super::guard::{self, Guard};
use super::name::{self, Address};
use super::pace::Pace;
use super::problem::Problem;
use super::routes::{Access, ROUTES};
use super::shards::Shards;
use crate::capability::CapabilityKey;
use axum::Router;
use axum::extract::connect_info::Connected;
use axum::extract::{FromRequestParts, Path, Query};
use axum::http::request::Parts;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::serve::{IncomingStream, Listener};
use serde_json::Value;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// What handlers share.
pub(super) struct App {
    pub(super) shards: Shards,
    pub(super) key: CapabilityKey,
    pub(super) config: Config,
    pub(super) guard: Guard,
    /// The bytes of all bodies that are being worked on.
    pub(super) bodies: Arc<Semaphore>,
    /// The gateways of the other cells, if there are any.
    pub(super) peers: Option<Peers>,
    /// How fast events come.
    pub(super) pace: Pace,
    /// Since when it runs.
    pub(super) started: std::time::Instant,
}

pub(super) type AppState = Arc<App>;

impl App {
    pub(super) fn new(shards: Shards, key: CapabilityKey, config: Config, guard: Guard) -> Self {
        let bodies = Arc::new(Semaphore::new(config.limits.bodies_bytes_max.div_ceil(BYTES_PER_PERMIT)));
        let pace = Pace::new(config.limits.events_per_minute_max);
        let peers = Peers::new(config.cell.as_ref());
        Self { shards, key, config, guard, bodies, peers, pace, started: std::time::Instant::now() }
    }
}

/// The routes, and what stands before them.
pub(super) fn router(app: AppState) -> Router {
    let mut router = Router::new();
    for route in ROUTES {
        let handler = (route.handler)();
        router = router.route(
            route.path,
            match route.access {
                Access::Open | Access::Capability => handler,
                Access::Sender => handler.route_layer(middleware::from_fn_with_state(app.clone(), guard::know_sender)),
            },
        );
    }
    router
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(middleware::from_fn_with_state(app.clone(), forward::to_owner))
        .layer(middleware::from_fn_with_state(app.clone(), guard::check_site))
        .with_state(app)
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "not-found",
        "There is nothing at this path",
        format!("There is nothing at {}.", uri.path()),
        "GET / lists what there is; GET /openapi.json describes it.",
    )
}

async fn method_not_allowed(method: Method, uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "method-not-allowed",
        "This path has no such method",
        format!("{} does not take {method}.", uri.path()),
        "Use a method from the header Allow; GET /openapi.json describes them.",
    )
}

/// The thread in a request's path.
pub(super) struct ThreadPath(pub(super) Address);

impl<S: Send + Sync> FromRequestParts<S> for ThreadPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let bad = |detail: String| Problem::field("thread", detail);
        let Path(text) = Path::<String>::from_request_parts(parts, state).await.map_err(|e| bad(e.body_text()))?;
        name::address(&text).map(Self).map_err(|error| bad(format!("{text:?} addresses no thread: {error}.")))
    }
}

/// The parameters in a request's query.
pub(super) struct Parameters(pub(super) Fields);

impl<S: Send + Sync> FromRequestParts<S> for Parameters {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(pairs) = Query::<Vec<(String, String)>>::from_request_parts(parts, state)
            .await
            .map_err(|error| Problem::field("query", error.body_text()))?;
        let mut fields = serde_json::Map::new();
        for (name, value) in pairs {
            if fields.insert(name.clone(), Value::String(value)).is_some() {
                return Err(Problem::field(&name, format!("The parameter {name} is given twice.")));
            }
        }
        Fields::of(String::new(), Value::Object(fields)).map(Self)
    }
}

/// The listener: as many connections as the bound lets in, all of which end when the gateway has stopped.
pub(super) struct Door {
    listener: TcpListener,
    free: Arc<Semaphore>,
    silence_max: Duration,
    closed: CancellationToken,
}

impl Door {
    pub(super) fn new(listener: TcpListener, limits: &Limits, closed: CancellationToken) -> Self {
        let free = Arc::new(Semaphore::new(limits.connections_max));
        Self { listener, free, silence_max: Duration::from_millis(limits.silence_ms_max), closed }
    }
}

impl Listener for Door {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let permit = self.free.clone().acquire_owned().await.expect("invariant: the semaphore is never closed");
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        // Small chunks are sent at once. A socket that cannot do it is merely slower.
        let _ = stream.set_nodelay(true);
        let closed = Box::pin(self.closed.clone().cancelled_owned());
        let silence = Box::pin(tokio::time::sleep(self.silence_max));
        (Connection { stream, peer, closed, silence_max: self.silence_max, silence, _permit: permit }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection, counted, which ends when nothing is said on it for too long.
pub(super) struct Connection {
    stream: TcpStream,
    peer: SocketAddr,
    closed: Pin<Box<WaitForCancellationFutureOwned>>,
    silence_max: Duration,
    silence: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

impl Connection {
    fn check_open(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.closed.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the gateway has stopped"));
        }
        if self.silence.as_mut().poll(context).is_ready() {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the connection was silent for too long"));
        }
        Ok(())
    }

    /// Something was said: the silence begins anew.
    fn heard<T>(&mut self, progress: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Ok(_)) = &progress {
            self.silence.as_mut().reset(Instant::now() + self.silence_max);
        }
        progress
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        self.check_open(context)?;
        let progress = Pin::new(&mut self.stream).poll_read(context, into);
        self.heard(progress)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, from: &[u8]) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        let progress = Pin::new(&mut self.stream).poll_write(context, from);
        self.heard(progress)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        from: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_open(context)?;
        let progress = Pin::new(&mut self.stream).poll_write_vectored(context, from);
        self.heard(progress)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Where a connection comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) SocketAddr);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Self(stream.io().peer)
    }
}
