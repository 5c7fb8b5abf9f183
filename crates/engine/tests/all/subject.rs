//! The engines on files that the crash tests run.

use crate::{tiered, wip_moments};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::DiskError;
use terrace_engine::tiered::{Kind, Tiered, TieredError};
use terrace_engine::wip::{Settings, Wip};
use terrace_engine::{Durability, Engine, ManualClock, OnDisk};
use terrace_index::hash::Turbo;
use terrace_medium::Dram;
use terrace_medium::files::Files;

/// An engine, with the smallest parts, so that a few writes cause all kinds of background work.
pub(crate) trait Subject: 'static {
    /// Its store.
    type Store<F: Files>: Engine + OnDisk + 'static;

    /// Creates a store at `path`.
    fn create<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Self::Store<F>, DiskError>;

    /// Opens the store at `path`.
    fn open<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Self::Store<F>, DiskError>;
}

/// The disk engine.
pub(crate) struct OfWip;

/// The tiered engine.
pub(crate) struct OfTiered;

impl Subject for OfWip {
    type Store<F: Files> = Wip<F>;

    fn create<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Wip<F>, DiskError> {
        let settings = Settings { clock: clock.clone(), ..wip_moments::tiny(durability) };
        Wip::create(files, Path::new(path), settings)
    }

    fn open<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Wip<F>, DiskError> {
        let settings = Settings { clock: clock.clone(), ..wip_moments::tiny(durability) };
        Wip::open(files, Path::new(path), settings)
    }
}

fn on_disk(error: TieredError) -> DiskError {
    match error {
        TieredError::Disk(error) => error,
        other => panic!("{other}"),
    }
}

impl Subject for OfTiered {
    type Store<F: Files> = Tiered<F, Dram>;

    fn create<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Tiered<F, Dram>, DiskError> {
        let settings = tiered::settings(durability, clock);
        Tiered::create::<Turbo<Dram, Kind>>(files, Path::new(path), settings, tiered::pools())
            .map_err(on_disk)
    }

    fn open<F: Files>(
        files: F,
        path: &str,
        durability: Durability,
        clock: &Arc<ManualClock>,
    ) -> Result<Tiered<F, Dram>, DiskError> {
        let settings = tiered::settings(durability, clock);
        Tiered::open::<Turbo<Dram, Kind>>(files, Path::new(path), settings, tiered::pools()).map_err(on_disk)
    }
}

/// A clock of a test that does not look at it.
pub(crate) fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(1000))
}
