//! Hash indexes.

mod change;
mod clht;
mod packed;
mod turbo;

pub use clht::{Clht, Slots};
pub use turbo::{Buckets, Turbo};
