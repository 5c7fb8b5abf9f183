//! The memory node, with small serving nodes over loopback.
#![allow(clippy::disallowed_methods, reason = "real nodes need threads and time")]

pub(crate) mod client;
mod damage;
mod fence;
mod merges;
mod nonsense;
mod path;
mod reads;
pub(crate) mod restart;
mod room;
