//! Tests of the cluster's state machines.

mod entries;
mod history;
#[cfg(feature = "libfabric")]
mod kills;
mod ledger;
mod links;
mod logs;
mod maps;
mod memory;
mod messages;
mod ownership;
mod random;
#[cfg(feature = "libfabric")]
mod serving;
mod simulated;
