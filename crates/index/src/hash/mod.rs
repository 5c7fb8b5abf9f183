//! Hash indexes.

mod clht;
mod level;
mod packed;
mod rewo;
#[cfg(test)]
mod test_durability;
#[cfg(test)]
mod test_keys;
#[cfg(test)]
mod test_pools;
mod turbo;

pub use clht::{BucketShape as ClhtShape, Clht, remote};
pub use level::{BucketShape as LevelShape, Level};
pub use rewo::{BucketShape as RewoShape, CacheBounds, CacheStats, Rewo};
pub use turbo::{BucketShape as TurboShape, Turbo};
