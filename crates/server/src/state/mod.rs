//! What a server and its connections know: settings, counters, clients, databases, scripts. No part
//! of it knows a command.
//!
//! In reading order: [`shared`] is the state that all connections of a server share, and
//! [`session_state`] that of one connection. The others are their parts.

pub(crate) mod session_state;
pub mod shared;

pub(crate) mod alone;
pub mod clients;
pub(crate) mod clock;
pub mod config;
pub(crate) mod cursors;
pub mod databases;
pub(crate) mod encodings;
pub(crate) mod failure;
pub(crate) mod lines;
pub(crate) mod multi;
pub mod routing;
pub(crate) mod scripts;
pub(crate) mod shape;
pub mod stats;
