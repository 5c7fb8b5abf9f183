//! Serving nodes over a real memory node.

mod cluster;
mod counts;
mod handover;
mod store;

pub(crate) use cluster::{Cluster, wait_until};
