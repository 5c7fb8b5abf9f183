//! The Redis-protocol server: sessions without I/O, one file per command, and the event loops.
//!
//! Each part names only those above it in this list: `state` is what the server and each connection
//! know, and knows no command; [`keyspace`] is the keys that a command works on; [`command`] is the
//! commands; [`session`] runs them in order; [`net`] runs sessions; [`server`] starts the threads.
#![forbid(unsafe_code)]

pub mod command;
pub mod keyspace;
pub mod net;
pub mod server;
pub mod session;
mod state;

pub use self::state::{clients, config, databases, routing, shared, stats};
