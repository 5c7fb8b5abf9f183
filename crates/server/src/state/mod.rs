//! What a server and its connections know. No part of it knows a command.
//!
//! In reading order: [`shared`] is the state that all connections of a server share, and
//! `session_state` that of one connection; both hold their parts and do little themselves.
//! - Of the server: [`config`], [`stats`], [`clients`], [`databases`], `cursors`, `encodings`,
//!   `scripts`, `alone`, `pacing`; in a cluster [`routing`], `shape` and `lines`.
//! - Of a connection: `access`, `selection`, `multi`, `replies`, `waits`.
//! - Of both: `clock`, `failure`, `flow`.

pub(crate) mod session_state;
pub mod shared;

pub(crate) mod access;
pub(crate) mod alone;
pub mod clients;
pub(crate) mod clock;
pub mod config;
pub(crate) mod cursors;
pub mod databases;
pub(crate) mod encodings;
pub(crate) mod failure;
pub(crate) mod flow;
pub(crate) mod lines;
pub(crate) mod multi;
pub(crate) mod pacing;
pub(crate) mod replies;
pub mod routing;
pub(crate) mod scripts;
pub(crate) mod selection;
pub(crate) mod shape;
pub mod stats;
pub(crate) mod waits;
