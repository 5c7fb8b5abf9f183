//! Opening and creating a store, over any medium and any index of byte keys.

use crate::batch::claim::Claims;
use crate::engine::Direct;
use crate::record::key::Kind;
use crate::record::layout::{INDEX, Root};
use crate::record::records::{Records, Settings};
use terrace_engine::{Indexed, OpenError, Ranges, Table};
use terrace_index::{LayerOptions, PointIndex, RangeIndex, Stored};
use terrace_medium::MappedMedium;
use terrace_pool::Pool;

/// The name of the index of the store in `pool` ([`PointIndex::NAME`]). `None` if the pool contains
/// no store, or the root that names the index is damaged.
pub fn index_in<M: MappedMedium>(pool: &Pool<M>) -> Option<String> {
    let root = pool.roots().into_iter().find(|root| root.name == INDEX && root.offset.is_some());
    root.map(|root| root.kind)
}

/// An index, or `None` if there is none and none may be created.
type OpenedIndex<M> = Result<Option<Box<dyn Table<M>>>, OpenError>;

/// Opens the index, or creates it for this number of expected keys.
type OpenIndex<M> = fn(&Pool<M>, Option<u64>, &Settings) -> OpenedIndex<M>;

/// Opens the index, or creates it for `expected_keys` keys.
fn open_index<M: MappedMedium, I>(
    pool: &Pool<M>,
    expected_keys: Option<u64>,
    settings: &Settings,
    ranges: fn(&I) -> Option<&dyn Ranges<M>>,
) -> OpenedIndex<M>
where
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    let mut index = match I::recover(pool, INDEX)? {
        Some(index) => index,
        None => match expected_keys {
            Some(keys) => I::create(pool, INDEX, keys)?,
            None => return Ok(None),
        },
    };
    index.set_cache(settings.index_cache);
    index.set_layers(LayerOptions::of(layer_bytes(pool, settings)));
    Ok(Some(Box::new(Indexed { index, ranges })))
}

/// The DRAM that the layers of an index may have.
fn layer_bytes<M: MappedMedium>(pool: &Pool<M>, settings: &Settings) -> u64 {
    const LEAST: u64 = 1 << 20;
    match settings.index_dram {
        Some(bytes) => bytes,
        None if is_slow::<M>() => (pool.size() / 8).max(LEAST),
        None => 0,
    }
}

/// Whether a medium is slower than DRAM: persistent memory is.
pub(crate) fn is_slow<M: MappedMedium>() -> bool {
    M::VOLATILE_CACHE
}

impl<M: MappedMedium> Direct<M> {
    /// Opens the store in `pool` over the index `I`, and creates it if there is none. Finishes or
    /// aborts the batch that a crash has interrupted. An index by order has no ranges then: see
    /// [`Direct::open_ordered`].
    pub fn open<I>(pool: Pool<M>, settings: Settings) -> Result<Self, OpenError>
    where
        I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
    {
        Self::open_with(pool, settings, |pool, expected_keys, settings| {
            open_index::<M, I>(pool, expected_keys, settings, |_| None)
        })
    }

    /// As [`Direct::open`], over an index by order. The store keeps its keys in order:
    /// [`Engine::ordered`](terrace_engine::Engine::ordered) returns its ranges.
    pub fn open_ordered<I>(pool: Pool<M>, settings: Settings) -> Result<Self, OpenError>
    where
        I: RangeIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
    {
        Self::open_with(pool, settings, |pool, expected_keys, settings| {
            open_index::<M, I>(pool, expected_keys, settings, |index| Some(index))
        })
    }

    /// `open_index` opens the index, or creates it for this number of expected keys. It is a plain
    /// function, so that this is compiled once for all indexes.
    fn open_with(pool: Pool<M>, settings: Settings, open_index: OpenIndex<M>) -> Result<Self, OpenError> {
        let opening = pool.initialize();
        let records = find_records(pool.clone(), settings, open_index)?;
        let (claims, mut batch_finished) = (Claims { records }, None);
        if !pool.is_read_only() && !pool.is_initialized() {
            batch_finished = claims.finish_batch()?;
        }
        opening.done();
        if claims.records.settings.read_only && pool.is_shared() {
            // Protects the data of other processes from stray stores in this one. Where the system
            // lacks such protection, this process still does not store to it.
            let _ = pool.protect_data();
        }
        Ok(Self::of(claims, batch_finished))
    }
}

/// Finds the index and the root block of the store, or creates them if it may.
fn find_records<M: MappedMedium>(
    pool: Pool<M>,
    settings: Settings,
    open_index: OpenIndex<M>,
) -> Result<Records<M>, OpenError> {
    let is_read_only = pool.is_read_only() || settings.read_only;
    let expected_keys = (!is_read_only).then_some(settings.expected_keys);
    let index = open_index(&pool, expected_keys, &settings)?.ok_or(OpenError::Empty)?;
    let root = match Root::find(&pool)? {
        Some(root) => root,
        None if is_read_only => return Err(OpenError::Empty),
        None => Root::create(&pool)?,
    };
    Ok(Records::new(index, pool, root, settings))
}

#[cfg(test)]
#[path = "tests/open.rs"]
mod tests;
