//! Fixtures, and tests of several parts together.

pub(crate) mod fixtures;
pub(crate) mod interleavings;
mod leaks;
