//! Tests of the store, in one program, so that what they have in common is compiled once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/watched.rs"]
mod watched;
#[path = "../common/writes.rs"]
mod writes;

use common::Draws;

mod conformance;
mod cursors;
mod damage;
mod full;
mod index;
mod keyspace;
mod life;
mod limits;
mod others;
mod points;
mod ranges;
mod salvage;
mod share_points;
mod threads;
mod transaction;
mod watch;
