//! The memory node, with small serving nodes over loopback.

mod client;
mod damage;
mod fence;
mod path;
mod reads;
mod restart;
mod room;
