//! Tests of the cluster's state machines.

mod entries;
mod links;
mod logs;
mod maps;
mod ownership;
#[cfg(feature = "libfabric")]
mod serving;
