//! The memory of a pool: how it is divided, taken and freed.
//!
//! Three receivers, each on the one before: `units::Units` (descriptions and bitmaps),
//! `granules::Granules` (whole units and extents), `heap::Heap` (blocks). None of them knows a
//! reader or another process.
//!
//! Reading order: `zones` (what describes a unit), `classes` (sizes of blocks), `words` (the shared
//! words), `units` (finding a unit), `bitmaps` (the blocks of a slab), `revalidate` (the first use
//! of a unit after an open), `granules`, `heap`, `slabs` (lists and caches), `blocks` (taking and
//! freeing), `marks` (what a collection leaves alone), `compact` (slabs taken out of use), `usage`
//! (figures), `verify` (invariants).

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
