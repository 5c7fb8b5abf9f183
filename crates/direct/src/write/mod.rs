//! Writes, as a caller sees them: they wait, make room and try again.
//!
//! In reading order: `single` (puts, removals and changes of single keys), `commit` (several keys
//! at one instant), `remove` and `remove_range`.

pub(crate) mod commit;
pub(crate) mod remove;
pub(crate) mod remove_range;
pub(crate) mod single;
