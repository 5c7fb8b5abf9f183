//! Tests of the cluster: its state machines alone, its nodes in this process, and real processes.
#![allow(clippy::disallowed_methods, reason = "nodes have threads and clocks")]
#![allow(clippy::print_stdout, reason = "figures of a run")]

mod directory;
mod entries;
mod history;
#[cfg(feature = "libfabric")]
mod kills;
mod ledger;
mod links;
mod logs;
mod manager;
mod maps;
mod memory;
mod messages;
mod ownership;
mod random;
#[cfg(feature = "libfabric")]
mod serving;
mod simulated;
