//! Indexes that keep their keys in order.

mod art;
mod base;
mod bw;
mod check;
mod ends;
mod hot;
mod keys;
mod link;
mod links;
mod masstree;
mod obsolete;
mod sample;
mod sp;
mod together;

pub use art::Art;
pub use bw::{BwShape, BwTree};
pub use hot::Hot;
pub use keys::{KEY_MAX, OrderedKind};
pub use masstree::Masstree;
pub use sp::SpTree;
