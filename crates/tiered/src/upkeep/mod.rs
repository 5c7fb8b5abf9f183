//! Work beside the writes: pages go to the tier, dead records leave it, expired entries go.
//!
//! - `flush`: how a block goes to the tier.
//! - `reclaim`: how dead records leave it.
//! - `maintain`: expiry, checks, checkpoints.

pub(crate) mod flush;
pub(crate) mod maintain;
pub(crate) mod reclaim;
