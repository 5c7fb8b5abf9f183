//! Hash indexes.

#[cfg(test)]
mod alike;
#[cfg(test)]
mod answers;
mod clht;
mod count;
mod level;
mod packed;
#[cfg(test)]
mod power;
mod rewo;
mod turbo;

pub use clht::{Clht, Slots};
pub use level::{Buckets as LevelBuckets, Level};
pub use rewo::{CacheBounds, CacheStats, Nests, Rewo};
pub use turbo::{Buckets, Turbo};
