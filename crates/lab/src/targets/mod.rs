//! The targets of the lab, one file per kind of store.

mod cells;
mod direct;
mod disk;
mod expiring;
mod files;
mod full;
mod histories;
mod index;
mod kinds;
mod on_files;
mod options;
mod pool;
mod tiered;
mod trees;

pub use cells::{Blocks, Cells};
pub use direct::DirectEngine;
pub use disk::DiskEngine;
pub use files::PoolFile;
pub use full::Full;
pub use index::{RECOUNT, Resized, WITH_DRAM};
pub use kinds::{
    ArtBytes, ArtU64, BwTreeBytes, BwTreeU64, ClhtBytes, ClhtRemote, ClhtU64, HotBytes, HotU64, LevelBytes,
    LevelU64, MasstreeBytes, MasstreeU64, RewoBytes, RewoU64, SpTreeBytes, SpTreeU64, TurboBytes, TurboU64,
};
pub use pool::Roots;
pub use tiered::TieredEngine;
