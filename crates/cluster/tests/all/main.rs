//! Tests of the cluster's state machines.

mod entries;
mod logs;
mod maps;
mod ownership;
