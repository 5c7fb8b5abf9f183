//! The memory node, with small serving nodes over loopback.
#![allow(clippy::disallowed_methods, reason = "real nodes need threads and time")]

mod client;
mod damage;
mod fence;
mod path;
mod reads;
mod restart;
mod room;
