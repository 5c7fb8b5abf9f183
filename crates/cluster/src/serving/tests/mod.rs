//! Tests of the parts of a serving node.

mod engine;
mod pending;
