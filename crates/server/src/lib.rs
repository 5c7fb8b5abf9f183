//! The Redis-protocol server: sessions without I/O, one file a command, and the event loops that drive them.
#![forbid(unsafe_code)]

pub mod clients;
pub mod config;
pub mod net;
pub mod server;
pub mod session;
pub mod shared;
pub mod stats;
