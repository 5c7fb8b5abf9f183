//! What tests of this engine and tests over several engines share: a store with small or tiny
//! parts, and random numbers.

use std::path::Path;
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_engine::{Durability, ManualClock};
use terrace_medium::files::Files;
use terrace_wip::{Settings, Wip};

/// Where the store is.
pub(crate) const PATH: &str = "/data/store";

/// Random numbers.
pub(crate) struct Draws(pub(crate) u64);

impl Draws {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// A store with small parts, so that a short history has flushes, merges and splits.
pub(crate) fn settings(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
    let mut settings = Settings::with_memory(1 << 20, Arc::clone(clock) as Arc<_>, 12_345);
    settings.memtable_bytes = 16 << 10;
    settings.compress = false;
    settings.fanout = 3;
    settings.split_into = 3;
    settings.segment_bytes = 16 << 10;
    settings.log_bytes = 64 << 10;
    settings.durability = durability;
    settings
}

/// The same with a clock that no test looks at.
pub(crate) fn of(durability: Durability) -> Settings {
    settings(durability, &Arc::new(ManualClock::at(1000)))
}

/// Settings with the smallest parts, so that a few writes flush, merge and split.
pub(crate) fn tiny(durability: Durability) -> Settings {
    let mut settings = of(durability);
    settings.memtable_bytes = 4 << 10;
    settings.segment_bytes = 4 << 10;
    settings.log_bytes = 24 << 10;
    settings.fanout = 2;
    settings.split_into = 2;
    settings
}

/// Opens the store at `path`.
pub(crate) fn open(files: impl Into<Arc<dyn Files>>, path: &str) -> Result<Wip, DiskError> {
    Wip::open(files, Path::new(path), of(Durability::Power))
}
