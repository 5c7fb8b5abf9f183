//! Tests of files in a pool, in one program.

mod conformance;
mod costs;
mod damage;
mod reopen;
mod room;
