//! Serving nodes over a real memory node.

mod address;
mod arrival;
mod cluster;
mod counts;
mod handover;
mod lease;
mod store;
mod unmerged;

pub(crate) use cluster::{Cluster, wait_until};
