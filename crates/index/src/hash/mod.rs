//! Hash indexes.

mod change;
mod clht;
mod packed;
mod rewo;
mod turbo;

pub use clht::{Clht, Slots};
pub use rewo::{Nests, Rewo};
pub use turbo::{Buckets, Turbo};
