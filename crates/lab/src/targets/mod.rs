//! What the lab puts through crashes: one file a kind of store.

mod clht;
mod direct;
mod options;
mod pool;

pub use clht::{ClhtBytes, ClhtU64};
pub use direct::DirectEngine;
pub use pool::Roots;
