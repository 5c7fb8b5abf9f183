//! Tests of the cluster's state machines.

mod entries;
mod links;
mod logs;
mod maps;
mod memory;
mod ownership;
