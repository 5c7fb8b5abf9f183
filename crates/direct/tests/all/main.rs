//! Tests of the engine in a pool, in one program, so that what they share is compiled once.

mod costs;
mod evict;
mod grown;
mod limits;
mod remote;
mod room;
mod words;
