//! Indexes that keep their keys in order.

mod art;
mod keys;
mod link;

pub use art::Art;
pub use keys::{KEY_MAX, OrderedKind};
