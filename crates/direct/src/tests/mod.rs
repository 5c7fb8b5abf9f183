//! Tests of several parts together, and the stores that all tests use.

pub(crate) mod fixtures;
mod one_instant;
mod stray;
mod waits;
