//! What tests of this engine and tests over several engines share: a store with tiny parts, and
//! operations that do not wait for cold reads.

use std::path::Path;
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_disk::cold::ColdReads;
use terrace_engine::{Durability, ManualClock};
use terrace_index::hash::Turbo;
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_medium::files::{AlignedBytes, Files};
use terrace_pool::Pool;
use terrace_tiered::{Kind, MakePool, Settings, Shares, Tiered, TieredError};

/// A clock of a test that does not look at it.
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1000))
}

/// A store with tiny parts, so that a short history has blocks that are sealed and rewritten.
pub(crate) fn settings(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
    let mut settings = Settings::with_dram(1 << 20, Arc::clone(clock) as Arc<_>, 12_345);
    settings.shares = Shares { page_bytes: 4 << 10, block_pages: 4, seats: 2 };
    settings.stripes = 16;
    settings.segment_bytes = 16 << 10;
    settings.log_bytes = 64 << 10;
    settings.durability = durability;
    settings
}

/// The engine, with a pool of a MiB.
pub(crate) type OfTiered = OfTieredWith<Turbo<Dram, Kind>>;

/// The engine, with the index `I`.
pub(crate) struct OfTieredWith<I>(std::marker::PhantomData<I>);

impl<I> OfTieredWith<I>
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    pub(crate) fn create(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: Settings,
    ) -> Result<Tiered, DiskError> {
        Tiered::create::<I>(files, Path::new(path), settings, pools()).map_err(on_disk)
    }

    pub(crate) fn open(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: Settings,
    ) -> Result<Tiered, DiskError> {
        Tiered::open::<I>(files, Path::new(path), settings, pools()).map_err(on_disk)
    }
}

fn pools() -> MakePool {
    Box::new(|| Pool::anonymous(1 << 20))
}

pub(crate) fn on_disk(error: TieredError) -> DiskError {
    match error {
        TieredError::Disk(error) => error,
        other => panic!("{other}"),
    }
}

/// Runs an operation that must not wait for cold reads: it runs again after each that it wants.
pub(crate) fn run_aside<T>(mut operation: impl FnMut() -> T) -> T {
    let mut cold = ColdReads::default();
    loop {
        let done = cold.run(&mut operation);
        if !cold.is_stuck() {
            return done;
        }
        if cold.must_wait() {
            return operation();
        }
        for read in cold.take_wanted() {
            let mut bytes = AlignedBytes::zeroed(read.len);
            read.file.read_exact_at(&mut bytes, read.at()).unwrap();
            cold.give(read, bytes);
        }
    }
}
