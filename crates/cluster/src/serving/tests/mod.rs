//! Tests of the parts of a serving node.

mod damage;
mod engine;
mod pending;
