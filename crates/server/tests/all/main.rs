//! Tests of the server, in one program, so that what they have in common is compiled once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../redis/mod.rs"]
mod redis;

mod arrival;
mod cluster;
mod cluster_clients;
mod cold;
mod commands;
mod cursors;
mod databases;
mod differential;
mod ending;
mod evict;
mod long;
mod net_limits;
mod net_metrics;
mod net_serving;
mod ordered;
mod scripts;
