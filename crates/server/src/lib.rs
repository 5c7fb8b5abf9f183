//! The Redis-protocol server: sessions without I/O, one file per command, and the event loops.
#![forbid(unsafe_code)]

mod alone;
pub mod clients;
pub mod command;
pub mod config;
mod cursors;
pub mod databases;
mod encodings;
pub mod keyspace;
pub mod net;
pub mod routing;
mod scripts;
pub mod server;
pub mod session;
pub mod shared;
pub mod stats;
