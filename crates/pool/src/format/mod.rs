//! What lies in a pool's file, and how it changes from one open to the next.
//!
//! Reading order: `layout` (what lies where), `superblock` (what identifies a pool), `lifetime`
//! (how it changes), `slot` (what a thread owns), `finding` (what a check reports).

pub(crate) mod finding;
pub(crate) mod layout;
pub(crate) mod lifetime;
pub(crate) mod slot;
pub(crate) mod superblock;
