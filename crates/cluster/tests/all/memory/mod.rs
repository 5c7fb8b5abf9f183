//! The memory node, with small serving nodes over loopback.

mod client;
mod path;
