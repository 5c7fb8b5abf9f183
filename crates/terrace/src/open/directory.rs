//! Engines on files: in a directory, or over DRAM and files of a directory or of a pool.

use super::how::How;
use super::replace;
use crate::index::{Engine, Index};
use crate::{ByteSize, Durability, OpenError, Options};
use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::Arc;
use terrace_disk::{BoundedFiles, Directory, DiskError};
use terrace_engine::{Engine as AnyEngine, Salvage};
use terrace_index::{PointIndex, Stored, hash};
use terrace_medium::files::{Files, SystemFiles};
use terrace_medium::{Dram, MappedMedium};
use terrace_tier::PoolFiles;
use terrace_tiered::{Tiered, TieredError};
use terrace_wip::{Settings, Wip};

/// Bounds of the tables that a store keeps open for reads.
const OPEN_TABLES_MIN: u64 = 16;
const OPEN_TABLES_MAX: u64 = 4096;

/// Bytes of memory that a store in a directory needs at least.
const MEMORY_MIN: u64 = 4 << 20;
/// Bytes of DRAM that a store over DRAM and files needs at least.
const DRAM_MIN: u64 = 16 << 20;

impl Engine {
    /// The engine of the store in the directory at `path`; `None` if there is no store, or it does
    /// not tell.
    pub fn in_directory(path: impl AsRef<Path>) -> Option<Self> {
        Self::named(&engine_of(path.as_ref())?)
    }
}

/// Opens or creates the store in a directory.
pub(super) fn engine(options: &Options, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
    let path = options.path.as_deref().ok_or(OpenError::NoPath)?;
    if !options.read_only {
        replace::finish(path).map_err(DiskError::room("finish the repair of", path))?;
    }
    let exists = Wip::exists(&system(), path)?;
    let creates = match how {
        How::Open => false,
        How::Create => true,
        How::OpenOrCreate => !exists,
    };
    // An existing store knows its own.
    let engine = Engine::in_directory(path).filter(|_| exists).unwrap_or(options.engine);
    let files = bounded_files(options);
    match engine {
        Engine::Tiered => tiered(options, Tier { files: files.into(), room: u64::MAX, path, creates }),
        _ => wip(options, files, path, creates),
    }
}

/// Opens or creates the store over DRAM and the files of a pool.
pub(super) fn engine_in_files<M: MappedMedium>(
    options: &Options,
    files: PoolFiles<M>,
    how: How,
) -> Result<Arc<dyn AnyEngine>, OpenError> {
    let path = options.path.as_deref().ok_or(OpenError::NoPath)?;
    let (room, files) = (files.pool().size(), Arc::from(files));
    let creates = !matches!(how, How::Open) && !Directory::exists(&files, path)?;
    tiered(options, Tier { files, room, path, creates })
}

/// Files of which few are open.
fn bounded_files(options: &Options) -> BoundedFiles {
    BoundedFiles::new(SystemFiles, options.open_tables.unwrap_or_else(most_open_tables))
}

fn interval_ms(options: &Options) -> u64 {
    u64::try_from(options.sync_interval.as_millis()).unwrap_or(u64::MAX)
}

/// The error of a store that gets less memory than this.
fn too_little(dram: u64, least: u64) -> OpenError {
    OpenError::Dram { dram, what: format!("a store needs at least {}", terrace_pool::Bytes(least)) }
}

fn wip(
    options: &Options,
    files: BoundedFiles,
    path: &Path,
    creates: bool,
) -> Result<Arc<dyn AnyEngine>, OpenError> {
    if options.durability == Durability::None {
        return Err(OpenError::Durability(options.durability));
    }
    let memory = options.memory.as_bytes();
    if memory < MEMORY_MIN {
        return Err(too_little(memory, MEMORY_MIN));
    }
    let mut settings = Settings::with_memory(memory, Arc::clone(&options.clock), chance());
    settings.durability = options.durability;
    settings.read_only = options.read_only;
    settings.read_aware = options.read_aware;
    settings.interval_ms = interval_ms(options);
    let opened = match creates {
        true => Wip::create(files, path, settings),
        false => Wip::open(files, path, settings),
    };
    Ok(Arc::new(opened?))
}

/// The slower tier of a store over DRAM and files.
struct Tier<'p> {
    files: Arc<dyn Files>,
    /// Bytes that fit into it.
    room: u64,
    path: &'p Path,
    /// Whether the store is to be created.
    creates: bool,
}

fn tiered(options: &Options, tier: Tier<'_>) -> Result<Arc<dyn AnyEngine>, OpenError> {
    match options.index_of_tiers() {
        Index::Clht => tiered_over::<hash::Clht<Dram, terrace_tiered::Kind>>(options, tier),
        #[cfg(feature = "turbo")]
        Index::Turbo => tiered_over::<hash::Turbo<Dram, terrace_tiered::Kind>>(options, tier),
        #[cfg(feature = "rewo")]
        Index::Rewo => tiered_over::<hash::Rewo<Dram, terrace_tiered::Kind>>(options, tier),
        #[cfg(feature = "level")]
        Index::Level => tiered_over::<hash::Level<Dram, terrace_tiered::Kind>>(options, tier),
        Index::Art | Index::Hot | Index::Masstree | Index::BwTree | Index::SpTree => {
            Err(OpenError::IndexOfTiers(options.index_of_tiers()))
        }
        #[cfg(not(all(feature = "turbo", feature = "rewo", feature = "level")))]
        index => Err(OpenError::not_built(index)),
    }
}

fn tiered_over<I>(options: &Options, tier: Tier<'_>) -> Result<Arc<dyn AnyEngine>, OpenError>
where
    I: PointIndex<Medium = Dram, Kind = terrace_tiered::Kind> + Stored<Medium = Dram> + 'static,
{
    let dram = options.memory.as_bytes();
    if dram < DRAM_MIN {
        return Err(too_little(dram, DRAM_MIN));
    }
    let Tier { files, room, path, creates } = tier;
    // Blocks and log of a tier that is not much larger than the DRAM fit into the tier.
    let mut settings =
        terrace_tiered::Settings::with_dram(dram.min(room / 4), Arc::clone(&options.clock), chance());
    settings.durability = options.durability;
    settings.read_only = options.read_only;
    settings.interval_ms = interval_ms(options);
    let huge_pages = options.huge_pages;
    let pool: terrace_tiered::MakePool =
        Box::new(move || terrace_pool::PoolOptions::anonymous().size(dram).huge_pages(huge_pages).create());
    let opened = match creates {
        true => Tiered::create::<I>(files, path, settings, pool),
        false => Tiered::open::<I>(files, path, settings, pool),
    };
    let store = opened.map_err(|error| match error {
        TieredError::Disk(error) => error.into(),
        TieredError::Pool(error) => error.into(),
        error => OpenError::Dram { dram, what: error.to_string() },
    })?;
    Ok(Arc::new(store))
}

/// The operating system's files.
fn system() -> Arc<dyn Files> {
    Arc::new(SystemFiles)
}

/// How many tables a store keeps open for reads: a part of what the process may have open.
fn most_open_tables() -> u64 {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    (limit.unwrap_or(u64::MAX) / 4).clamp(OPEN_TABLES_MIN, OPEN_TABLES_MAX)
}

/// A number that nobody can guess, for seeds of hash tables and the store's identity: the standard
/// library's are random.
fn chance() -> u64 {
    RandomState::new().hash_one(std::process::id())
}

/// The name of the engine of the store in the directory at `path`. Where its identity is damaged,
/// the other files tell.
fn engine_of(path: &Path) -> Option<String> {
    match Directory::engine_of(&system(), path) {
        Err(DiskError::Corrupt { .. }) => {
            let names =
                std::fs::read_dir(path).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
            let of_file = |name: String| match name.rsplit_once('.')?.1 {
                "block" | "large" => Some(Engine::Tiered.name().into()),
                "table" => Some(Engine::Wip.name().into()),
                _ => None,
            };
            names.into_iter().find_map(of_file)
        }
        named => named.ok(),
    }
}

/// The notice of the process that has the store at `path` open.
pub(crate) fn notice(path: &Path) -> Option<String> {
    Directory::notice(&system(), path)
}

/// Visits what is sound of the store of this engine at `path`, and what is not. What has to be
/// noted meanwhile has `memory` bytes.
pub(super) fn salvage(
    engine: Engine,
    path: &Path,
    memory: ByteSize,
    each: &mut Salvage<'_>,
) -> Result<(), OpenError> {
    Ok(match engine {
        Engine::Tiered => terrace_tiered::salvage(&system(), path, memory.as_bytes(), each),
        _ => Wip::salvage_from(&system(), path, each),
    }?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, WriteError};

    #[test]
    fn open_tables_are_a_part_of_what_may_be_open() {
        assert!((OPEN_TABLES_MIN..=OPEN_TABLES_MAX).contains(&most_open_tables()));
        let place = tempfile::tempdir().unwrap();
        let options = Store::options().directory(place.path().join("store")).memory(ByteSize::mib(4));
        let open_tables = |store: Store| store.disk().unwrap().open_tables();
        assert_eq!(open_tables(options.clone().create().unwrap()), Some(most_open_tables()));
        assert_eq!(open_tables(options.open_tables(5).open().unwrap()), Some(5));
        let in_memory = Store::options().anonymous().size(ByteSize::mib(1)).create().unwrap();
        assert!(matches!(in_memory.disk(), Err(WriteError::NotOnDisk)));
    }
}
