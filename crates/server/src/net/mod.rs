//! Sockets: one event loop a thread, all over the one shared store.
//!
//! Loop 0 accepts, and hands connections round-robin to the loops, where they stay. (`SO_REUSEPORT` would spread them by a
//! hash, which leaves some loops idle when clients are few, and Unix sockets do not have it.) A turn of a connection is one
//! read into a buffer that the loop's connections share, [`Session::process`](crate::session::Session::process), and one
//! write; a connection that waits for its next request holds no buffer at all.
//!
//! Invariants:
//! 1. A loop never blocks but in its poll, and runs no command that takes long: workers do (`workers.rs`).
//! 2. Bytes of a reply leave in order: while a backlog waits, nothing is written past it.
//! 3. What a client can make the server hold is bounded: one command's bytes as they arrive (the parser's limits), and replies
//!    up to `client-output-buffer` and one command's reply; beyond that the server stops reading from it.

mod accept;
mod clock;
mod connection;
mod counters;
mod event_loop;
mod http;
mod hub;
mod listen;
mod metrics;
mod stream;
mod unix;
mod workers;

pub use listen::{ListenError, Listeners};

pub(crate) use clock::{precise_ns, unix_ms};
pub(crate) use counters::BOUNDS;
pub(crate) use event_loop::{EventLoop, WAKE};
pub(crate) use http::MetricsServer;
pub(crate) use hub::Hub;
pub(crate) use metrics::Metrics;
pub(crate) use workers::Workers;
