//! Sockets: one event loop per thread, all of them over one shared store.
//!
//! Loop 0 accepts connections and distributes them round-robin; a connection stays on its loop.
//! (`SO_REUSEPORT` would distribute by a hash, which leaves loops idle when there are few clients,
//! and Unix sockets do not support it.) A turn of a connection is one read into a buffer that the
//! loop's connections share, [`Session::process`](crate::session::Session::process), and one write.
//! A connection that waits for its next request holds no buffer.
//!
//! Invariants:
//! 1. A loop blocks only in its poll. Workers run the commands that take long (`workers.rs`), and a
//!    command that wants a slower tier waits for it aside (`cold.rs`).
//! 2. Replies are sent in order: while a backlog waits, nothing is written past it.
//! 3. The memory that a client can claim is bounded: the bytes of one incomplete command (the
//!    parser's limits), and replies up to `client-output-buffer` plus one command's reply. Beyond
//!    that the server stops reading from the client.
//!
//! In reading order: `event_loop` gives each `connection` its `turn`, with a `stream` below it and
//! a `backlog` of replies; `accept`, `listen` and `unix` bring connections. `hub` is what all loops
//! share; `job`, `workers` and `cold` run what would hold up a loop. `counters`, `metrics`, `page`
//! and `http` make the page of metrics; `error` says why a server does not start.

mod accept;
mod backlog;
mod cold;
mod connection;
mod counters;
mod error;
mod event_loop;
mod http;
mod hub;
mod job;
mod listen;
mod metrics;
mod page;
mod stream;
mod turn;
mod unix;
mod workers;

pub use error::{ListenError, StartError};
pub use listen::Listeners;
pub use page::{MetricsListener, MetricsPage};

pub(crate) use event_loop::{EventLoop, WAKE};
pub(crate) use http::MetricsServer;
pub(crate) use hub::Hub;
pub(crate) use job::Work;
pub(crate) use metrics::Metrics;
pub(crate) use workers::Workers;
