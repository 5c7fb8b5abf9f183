//! The engine of the store at a path: which one lies there, or is to be created.

use super::directory;
use super::how::How;
use crate::index::{Engine, Index};
use crate::{ByteSize, Durability, OpenError, Options};
use std::path::Path;
use std::sync::Arc;
use terrace_direct::Settings;
use terrace_engine::Engine as AnyEngine;
use terrace_index::CacheBounds;
#[cfg(feature = "power")]
use terrace_medium::Pmem;
use terrace_medium::{MappedMedium, Shm};
use terrace_pool::{Pool, PoolOptions};
use terrace_tier::PoolFiles;

/// Opens the engine whose records all lie in the pool, over the index of this name.
type OpenDirect<M> = fn(&str, Pool<M>, Settings) -> Result<Arc<dyn AnyEngine>, terrace_engine::OpenError>;

/// Opens or creates the engine of the store that the options name.
pub(crate) fn engine(options: &Options, how: How) -> Result<Arc<dyn AnyEngine>, OpenError> {
    if !options.anonymous && is_in_directory(options) {
        return directory::engine(options, how);
    }
    match (options.anonymous, options.durability) {
        (true, _) | (false, Durability::None | Durability::Process) => {
            engine_in_pool::<Shm>(options, how, terrace_direct::open_shm)
        }
        #[cfg(feature = "power")]
        (false, Durability::Power) => engine_in_pool::<Pmem>(options, how, terrace_direct::open_pmem),
        #[cfg(not(feature = "power"))]
        (false, Durability::Power) => Err(OpenError::NotBuilt { feature: "power" }),
        (false, asked) => Err(OpenError::Durability(asked)),
    }
}

/// As [`engine`], in a pool on this medium. `direct` opens the engine if all its records lie there:
/// the production media have one instance of it, in its own crate.
pub(super) fn engine_in_pool<M: MappedMedium>(
    options: &Options,
    how: How,
    direct: OpenDirect<M>,
) -> Result<Arc<dyn AnyEngine>, OpenError> {
    let index = options.index.unwrap_or_default();
    if !matches!(how, How::Open) && !index.is_built() {
        return Err(OpenError::not_built(index));
    }
    let asked = pool_options(options)?;
    let pool = match how {
        How::Create => asked.create::<M>(),
        How::Open => asked.open::<M>(),
        How::OpenOrCreate => asked.open_or_create::<M>(),
    }?;
    if let Some(files) = files_of(options, &pool)? {
        return directory::engine_in_files(options, files, how);
    }
    // The pool of an existing store names its index. If this release does not know the index,
    // opening fails with its name.
    let index = match terrace_direct::index_in(&pool) {
        Some(name) => Index::named(&name).unwrap_or(Index::Clht),
        None => index,
    };
    if !index.is_built() {
        return Err(OpenError::not_built(index));
    }
    let settings = settings(options, promised::<M>(options));
    direct(index.name(), pool, settings).map_err(|error| contents(options, &error))
}

/// Whether the store lies in a directory: what is there counts before what is asked for.
fn is_in_directory(options: &Options) -> bool {
    let is_pool = |path: &Path| options.tier_in_pool || path.exists();
    match (options.path.as_deref(), options.engine) {
        (Some(path), _) if path.is_dir() => true,
        (_, Engine::Direct) => false,
        (Some(path), Engine::Tiered) => !is_pool(path),
        _ => true,
    }
}

/// What a store on this medium survives.
fn promised<M: MappedMedium>(options: &Options) -> Durability {
    match options.anonymous {
        true => Durability::None,
        false if M::VOLATILE_CACHE => Durability::Power,
        false => Durability::Process,
    }
}

/// The files in a pool, if a store over DRAM and a pool lies there, or is to.
fn files_of<M: MappedMedium>(options: &Options, pool: &Pool<M>) -> Result<Option<PoolFiles<M>>, OpenError> {
    let Some(top) = options.path.as_deref().filter(|_| !options.anonymous) else {
        return Ok(None);
    };
    let refused = |error: std::io::Error| contents(options, &error);
    match PoolFiles::open(pool.clone(), top).map_err(refused)? {
        None if options.engine == Engine::Tiered && pool.roots().is_empty() && !pool.is_read_only() => {
            PoolFiles::create(pool.clone(), top).map(Some).map_err(refused)
        }
        files => Ok(files),
    }
}

fn contents(options: &Options, error: &dyn std::error::Error) -> OpenError {
    OpenError::Contents { pool: options.path.clone().unwrap_or_default(), what: error.to_string() }
}

fn settings(options: &Options, durability: Durability) -> Settings {
    let (least, most) = options.index_cache;
    Settings {
        expected_keys: options.expected_keys,
        index_cache: CacheBounds { min: least.as_bytes(), max: most.as_bytes() },
        index_dram: options.index_dram.map(ByteSize::as_bytes),
        verify_reads: options.verify_reads,
        read_only: options.read_only,
        durability,
        clock: options.clock.clone(),
    }
}

fn pool_options(options: &Options) -> Result<PoolOptions, OpenError> {
    let mut asked = match &options.path {
        _ if options.anonymous => PoolOptions::anonymous(),
        Some(path) => PoolOptions::at(path),
        None => return Err(OpenError::NoPath),
    };
    asked = asked
        .size(options.size.as_bytes())
        .huge_pages(options.huge_pages)
        .assume_persistent(options.assume_persistent)
        // A reader that shares the store takes part in it and sets pins.
        .read_only(options.read_only && !options.shared)
        .shared(options.shared)
        .salvage(options.salvage);
    if let Some(participants) = options.participants {
        asked = asked.participants(participants);
    }
    if let Some(max_size) = options.max_size {
        asked = asked.max_size(max_size.as_bytes());
    }
    if let Some(id) = options.boot_id {
        asked = asked.boot_id(id);
    }
    if let Some(program) = &options.program {
        asked = asked.program(program);
    }
    Ok(asked)
}
