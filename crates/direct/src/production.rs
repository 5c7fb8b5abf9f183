//! The engine over the media and indexes of production: the only place that names both. The caller
//! gets it as `dyn Engine`, so no other crate compiles it again.

use crate::{Direct, Kind, Settings};
use std::sync::Arc;
use terrace_engine::{Engine, OpenError};
use terrace_index::{PointIndex, Stored, hash};
#[cfg(any(
    feature = "art",
    feature = "hot",
    feature = "masstree",
    feature = "bwtree",
    feature = "sptree"
))]
use terrace_index::{RangeIndex, ordered};
#[cfg(feature = "power")]
use terrace_medium::Pmem;
use terrace_medium::{MappedMedium, Shm};
use terrace_pool::Pool;

/// Opens the store in a pool that outlives the process at most, or creates it, over the index of
/// this name. See [`open_over`].
pub fn open_shm(index: &str, pool: Pool<Shm>, settings: Settings) -> Result<Arc<dyn Engine>, OpenError> {
    open_over(index, pool, settings)
}

/// As [`open_shm`], in a pool that outlives the machine.
#[cfg(feature = "power")]
pub fn open_pmem(index: &str, pool: Pool<Pmem>, settings: Settings) -> Result<Arc<dyn Engine>, OpenError> {
    open_over(index, pool, settings)
}

/// Opens the store in `pool` over the index whose [`PointIndex::NAME`] is `index`, or creates it.
/// Any other name stands for P-CLHT. The caller compiles all of it: this is for media of tests.
///
/// # Errors
/// The pool has another index, its content is damaged, or there is none and none may be created.
pub fn open_over<M: MappedMedium>(
    index: &str,
    pool: Pool<M>,
    settings: Settings,
) -> Result<Arc<dyn Engine>, OpenError> {
    match index {
        #[cfg(feature = "turbo")]
        name if name == hash::Turbo::<M, Kind>::NAME => open::<hash::Turbo<M, Kind>, M>(pool, settings),
        #[cfg(feature = "rewo")]
        name if name == hash::Rewo::<M, Kind>::NAME => open::<hash::Rewo<M, Kind>, M>(pool, settings),
        #[cfg(feature = "level")]
        name if name == hash::Level::<M, Kind>::NAME => open::<hash::Level<M, Kind>, M>(pool, settings),
        #[cfg(feature = "art")]
        name if name == ordered::Art::<M, Kind>::NAME => {
            open_ordered::<ordered::Art<M, Kind>, M>(pool, settings)
        }
        #[cfg(feature = "hot")]
        name if name == ordered::Hot::<M, Kind>::NAME => {
            open_ordered::<ordered::Hot<M, Kind>, M>(pool, settings)
        }
        #[cfg(feature = "masstree")]
        name if name == ordered::Masstree::<M, Kind>::NAME => {
            open_ordered::<ordered::Masstree<M, Kind>, M>(pool, settings)
        }
        #[cfg(feature = "bwtree")]
        name if name == ordered::BwTree::<M, Kind>::NAME => {
            open_ordered::<ordered::BwTree<M, Kind>, M>(pool, settings)
        }
        #[cfg(feature = "sptree")]
        name if name == ordered::SpTree::<M, Kind>::NAME => {
            open_ordered::<ordered::SpTree<M, Kind>, M>(pool, settings)
        }
        _ => open::<hash::Clht<M, Kind>, M>(pool, settings),
    }
}

fn open<I, M>(pool: Pool<M>, settings: Settings) -> Result<Arc<dyn Engine>, OpenError>
where
    M: MappedMedium,
    I: PointIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    Ok(Arc::new(Direct::open::<I>(pool, settings)?))
}

#[cfg(any(feature = "art", feature = "hot", feature = "masstree", feature = "bwtree", feature = "sptree"))]
fn open_ordered<I, M>(pool: Pool<M>, settings: Settings) -> Result<Arc<dyn Engine>, OpenError>
where
    M: MappedMedium,
    I: RangeIndex<Medium = M, Kind = Kind> + Stored<Medium = M> + 'static,
{
    Ok(Arc::new(Direct::open_ordered::<I>(pool, settings)?))
}
