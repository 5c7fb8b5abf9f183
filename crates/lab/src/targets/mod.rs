//! What the lab puts through crashes: one file a kind of store.

mod clht;
mod options;

pub use clht::{ClhtBytes, ClhtU64};
