//! Tests of the pool, in one program, so that what they have in common is compiled once.

#[path = "../common/mod.rs"]
mod common;
#[path = "../table/mod.rs"]
mod table;

mod collect;
mod concurrent;
mod damage;
mod memory;
mod open;
mod places;
mod power;
mod processes;
mod refused;
