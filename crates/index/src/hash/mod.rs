//! Hash indexes.

mod clht;

pub use clht::{Clht, Slots};
