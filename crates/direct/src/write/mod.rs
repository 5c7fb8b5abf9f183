//! Writes: `single`, `remove`, `remove_range`.

pub(crate) mod remove;
pub(crate) mod remove_range;
pub(crate) mod single;
