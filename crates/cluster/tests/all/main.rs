//! Tests of the cluster's state machines.

mod directory;
mod entries;
#[cfg(feature = "libfabric")]
mod kills;
mod links;
mod logs;
mod manager;
mod maps;
mod memory;
mod ownership;
mod random;
#[cfg(feature = "libfabric")]
mod serving;
