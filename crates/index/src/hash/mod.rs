//! Hash indexes.

mod clht;
mod level;
mod packed;
mod rewo;
#[cfg(test)]
#[path = "tests/durability.rs"]
mod test_durability;
#[cfg(test)]
#[path = "tests/keys.rs"]
mod test_keys;
#[cfg(test)]
#[path = "tests/pools.rs"]
pub(crate) mod test_pools;
mod turbo;

pub use clht::{BucketShape as ClhtShape, Clht, remote};
pub use level::{BucketShape as LevelShape, Level};
pub use rewo::{BucketShape as RewoShape, CacheBounds, CacheStats, Rewo};
pub use turbo::{BucketShape as TurboShape, Turbo};
