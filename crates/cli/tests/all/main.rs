//! Tests of the program, in one program, so that what they have in common is compiled once.

#[path = "../common/mod.rs"]
mod common;

mod bench;
mod beside;
mod browser;
mod clients;
#[cfg(feature = "cluster")]
mod cluster;
#[cfg(feature = "cluster")]
mod cluster_clients;
mod disk;
mod huge_pages;
mod inspect;
mod keys;
mod load;
mod load_exact;
mod memory;
mod ordered;
mod places;
mod report;
mod script_libraries;
mod serve;
mod share_seen;
mod start;
mod surroundings;
