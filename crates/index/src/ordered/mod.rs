//! Indexes that keep their keys in order.

mod art;
mod base;
mod ends;
mod hot;
mod keys;
mod link;
mod links;
mod masstree;
mod obsolete;
mod sample;
mod together;

pub use art::Art;
pub use hot::Hot;
pub use keys::{KEY_MAX, OrderedKind};
pub use masstree::Masstree;
