//! The lab: what Terrace is made of, put through crashes. `cargo lab` is its command.
#![forbid(unsafe_code)]

mod seed;
mod suite;
pub mod targets;

pub use seed::RunSeed;
pub use suite::{SUITES, Suite, suite};
