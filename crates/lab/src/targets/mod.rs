//! What the lab puts through crashes: one file a kind of store.

mod cells;
mod clht;
mod direct;
mod options;
mod pool;

pub use cells::Cells;
pub use clht::{ClhtBytes, ClhtU64};
pub use direct::DirectEngine;
pub use pool::Roots;
