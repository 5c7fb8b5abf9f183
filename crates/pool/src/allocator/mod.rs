//! The memory of a pool: how it is divided, taken and freed.
//!
//! Reading order: `zones` (units and their descriptions), `classes` (sizes of blocks), `words` (the
//! shared words), `revalidate` (the first use of a unit after an open), `granules` (whole units and
//! extents), `slabs` (units of small blocks), `blocks` (what callers allocate), `compact` (slabs
//! that are taken out of use), `usage` (figures), `verify` (invariants).

pub(crate) mod bitmaps;
pub(crate) mod blocks;
pub(crate) mod classes;
pub(crate) mod compact;
pub(crate) mod granules;
pub(crate) mod heap;
pub(crate) mod marks;
pub(crate) mod revalidate;
pub(crate) mod slabs;
pub(crate) mod units;
pub(crate) mod usage;
pub(crate) mod verify;
pub(crate) mod words;
pub(crate) mod zones;
