//! `cluster` and `node`: a cluster of real processes on this machine.
//!
//! [`up`] runs one; the tests lie in [`life`], [`nodes`], [`slots`], [`copies`] and [`refused`].

mod copies;
mod life;
mod nodes;
mod refused;
mod slots;
mod up;

pub(crate) use up::{Up, is_whole};
