//! Hash indexes.

mod clht;
mod turbo;

pub use clht::{Clht, Slots};
pub use turbo::{Buckets, Turbo};
