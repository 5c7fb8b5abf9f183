//! The engines on files that the crash tests run.

use crate::small::Draws;
use crate::tiny::{self, on_disk};
pub(crate) use crate::tiny::{OfTiered, OfTieredWith, clock};
use std::cell::Cell;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_engine::{Chore, Durability, Engine, ManualClock, OnDisk};
use terrace_index::hash::Turbo;
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_medium::files::Files;
use terrace_pool::Pool;
use terrace_tiered::{Kind, Tiered};
use terrace_wip::{Settings, Wip};

/// An engine, and how it is opened in tests.
pub(crate) trait Subject: 'static {
    /// Its store.
    type Store: Engine + OnDisk + 'static;
    /// How it is opened.
    type Settings: Clone;
    /// Its background work that histories have.
    const CHORES: &[Chore];

    /// Does what else may happen beside.
    fn disturb(_: &Self::Store, _: &mut Draws) {}

    /// Settings with small parts, so that a short history has all kinds of background work.
    fn small(durability: Durability, clock: &Arc<ManualClock>) -> Self::Settings;

    /// Settings with the smallest parts, so that a few writes cause that.
    fn tiny(durability: Durability, clock: &Arc<ManualClock>) -> Self::Settings;

    fn create(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: Self::Settings,
    ) -> Result<Self::Store, DiskError>;

    fn open(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: Self::Settings,
    ) -> Result<Self::Store, DiskError>;
}

/// The disk engine.
pub(crate) struct OfWip;

impl Subject for OfWip {
    type Store = Wip;
    type Settings = Settings;
    const CHORES: &[Chore] = &[Chore::Flush, Chore::Merge, Chore::Log];

    fn small(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
        crate::small::settings(durability, clock)
    }

    fn tiny(durability: Durability, clock: &Arc<ManualClock>) -> Settings {
        Settings { clock: clock.clone(), ..crate::small::tiny(durability) }
    }

    fn create(files: impl Into<Arc<dyn Files>>, path: &str, settings: Settings) -> Result<Wip, DiskError> {
        Wip::create(files, Path::new(path), settings)
    }

    fn open(files: impl Into<Arc<dyn Files>>, path: &str, settings: Settings) -> Result<Wip, DiskError> {
        Wip::open(files, Path::new(path), settings)
    }
}

impl<I> Subject for OfTieredWith<I>
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    type Store = Tiered;
    type Settings = terrace_tiered::Settings;
    const CHORES: &[Chore] = &[Chore::Flush, Chore::Merge, Chore::Log, Chore::Maintain, Chore::Sweep];

    fn disturb(store: &Tiered, draws: &mut Draws) {
        match draws.roll(8) {
            0 => OnDisk::flush(store).unwrap(),
            1 => store.evict(),
            2 => OnDisk::compact(store, Bound::Unbounded, Bound::Unbounded).unwrap(),
            _ => {}
        }
    }

    /// Its smallest parts are those of every test.
    fn small(durability: Durability, clock: &Arc<ManualClock>) -> terrace_tiered::Settings {
        tiny::settings(durability, clock)
    }

    fn tiny(durability: Durability, clock: &Arc<ManualClock>) -> terrace_tiered::Settings {
        tiny::settings(durability, clock)
    }

    fn create(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: terrace_tiered::Settings,
    ) -> Result<Tiered, DiskError> {
        OfTieredWith::<I>::create(files, path, settings)
    }

    fn open(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: terrace_tiered::Settings,
    ) -> Result<Tiered, DiskError> {
        OfTieredWith::<I>::open(files, path, settings)
    }
}

/// The tiered engine, with other DRAM and other settings at each open.
pub(crate) struct OfTieredChanging;

thread_local! {
    /// Opens of this thread.
    static OPENS: Cell<usize> = const { Cell::new(0) };
}

impl Subject for OfTieredChanging {
    type Store = Tiered;
    type Settings = terrace_tiered::Settings;
    const CHORES: &[Chore] = OfTiered::CHORES;

    fn disturb(store: &Tiered, draws: &mut Draws) {
        OfTiered::disturb(store, draws);
    }

    fn small(durability: Durability, clock: &Arc<ManualClock>) -> terrace_tiered::Settings {
        // Long logs: an open with less DRAM has to flush.
        terrace_tiered::Settings { log_bytes: 1 << 20, ..OfTiered::small(durability, clock) }
    }

    fn tiny(durability: Durability, clock: &Arc<ManualClock>) -> terrace_tiered::Settings {
        Self::small(durability, clock)
    }

    fn create(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        settings: terrace_tiered::Settings,
    ) -> Result<Tiered, DiskError> {
        OPENS.set(0);
        OfTiered::create(files, path, settings)
    }

    fn open(
        files: impl Into<Arc<dyn Files>>,
        path: &str,
        mut settings: terrace_tiered::Settings,
    ) -> Result<Tiered, DiskError> {
        let nth = OPENS.replace(OPENS.get() + 1);
        let dram = [300 << 10, 2 << 20, 512 << 10][nth % 3];
        settings.log_bytes = [1 << 20, 16 << 10][nth / 3 % 2];
        settings.segment_bytes = [16 << 10, 64 << 10][nth % 2];
        settings.shares.page_bytes = [4 << 10, 8 << 10][nth / 2 % 2];
        settings.shares.seats = 1 + nth % 3;
        let pools = Box::new(move || Pool::anonymous(dram));
        Tiered::open::<Turbo<Dram, Kind>>(files, Path::new(path), settings, pools).map_err(on_disk)
    }
}
