//! The gateway's configuration.
//!
//! In: a table of a configuration file. Out: [`Config`]. Always: every bound has a default and its unit in its name; a
//! field that is not known is an error.

use crate::placement::Cell;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where the gateway listens, whom it trusts and how much it lets in.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The address and port to listen on. An address that is not loopback needs `keys`.
    pub listen: SocketAddr,
    /// Where tools and browsers reach the gateway, if that is not `listen`: for example `https://agents.example.org`.
    pub public_url: Option<String>,
    /// Bearer keys, each `name:secret`. When there is one, a request without a key is refused, also on loopback.
    pub keys: Vec<String>,
    /// Values of `Host` that are taken on loopback beside loopback names and the host of `public_url`. Another host is
    /// refused, because a web page could have had its own name point here (DNS rebinding).
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may call the gateway, for example `https://app.example.org`.
    pub allowed_origins: Vec<String>,
    /// This gateway's number in its cluster.
    pub gateway: u32,
    /// How many shards there are.
    pub shards: u32,
    /// What this gateway's cell knows of its cluster, if it is in one.
    #[serde(skip)]
    pub cell: Option<Cell>,
    /// The bounds.
    pub limits: Limits,
}

/// How much the gateway lets in; beyond it, a sender is told to come back later.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// The length of a message's or another small request's body.
    pub message_bytes_max: usize,
    /// The length of a callback's body.
    pub callback_bytes_max: usize,
    /// The length of all bodies together that are being read or whose input is not durable yet.
    pub bodies_bytes_max: usize,
    /// How many inputs may wait to be made durable.
    pub unanswered_max: usize,
    /// How many of them may be one thread's.
    pub unanswered_per_thread_max: usize,
    /// How many events of one subscription are taken in a minute; 0 for as many as come.
    pub events_per_minute_max: u32,
    /// How many questions may wait for their answer.
    pub queries_max: usize,
    /// How many streams of outputs may be open.
    pub subscribers_max: usize,
    /// How many outputs and chunks are kept for a client that reads slowly. Beyond it they are read from the journal again.
    pub subscriber_buffer_events_max: usize,
    /// The length of the texts among them.
    pub subscriber_buffer_bytes_max: usize,
    /// How many connections may be open.
    pub connections_max: usize,
    /// How long a connection may be silent in both directions before it is closed. Streams are never silent for longer than
    /// 15 seconds.
    pub silence_ms_max: u64,
    /// How long a request's body may take to arrive.
    pub body_ms_max: u64,
    /// How long a sender waits for its answer. When it is over nobody knows yet whether the input was taken.
    pub answer_ms_max: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 7070),
            public_url: None,
            keys: Vec::new(),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            gateway: 0,
            shards: 1,
            cell: None,
            limits: Limits::default(),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message_bytes_max: 1 << 20,
            callback_bytes_max: 16 << 20,
            bodies_bytes_max: 256 << 20,
            unanswered_max: 4096,
            unanswered_per_thread_max: 64,
            events_per_minute_max: 600,
            queries_max: 1024,
            subscribers_max: 1024,
            subscriber_buffer_events_max: 256,
            subscriber_buffer_bytes_max: 256 << 10,
            connections_max: 4096,
            silence_ms_max: 60_000,
            body_ms_max: 30_000,
            answer_ms_max: 30_000,
        }
    }
}
