//! Fixtures of tests: pools of 1 MiB, with one participant or several within one process.

use crate::format::layout::Geometry;
use crate::format::lifetime::Start;
use crate::gc::Collection;
use crate::open::options::PoolOptions;
use crate::pool::Pool;
use crate::pool::inner::Inner;
use crate::sync::lock::Lock;
use tempfile::{TempDir, tempdir_in};
use terrace_medium::MappedMedium;

const SIZE: u64 = 1 << 20;

/// A geometry with four zones.
pub(crate) fn geometry() -> Geometry {
    Geometry { zone_log2: 18, ..Geometry::tiny() }
}

/// An exclusive pool.
pub(crate) fn exclusive_pool<M: MappedMedium>() -> Pool<M> {
    Pool::anonymous_with(SIZE, geometry()).unwrap()
}

/// A pool that `fill` has used, reopened after a clean close or a crash. It is deleted with the
/// directory.
pub(crate) fn reopened<M: MappedMedium>(start: Start, fill: impl FnOnce(&Pool<M>)) -> (TempDir, Pool<M>) {
    let directory = tempdir_in("/dev/shm").unwrap();
    let options = options_in(&directory, geometry());
    let pool = options.create::<M>().unwrap();
    fill(&pool);
    if start == Start::Clean {
        pool.close().unwrap()
    } else {
        pool.abandon()
    }
    let pool = options.open::<M>().unwrap();
    assert_eq!(pool.found(), start);
    (directory, pool)
}

/// `N` participants of a new pool. It is deleted with the directory.
pub(crate) fn participants<M: MappedMedium, const N: usize>(geometry: Geometry) -> (TempDir, [Pool<M>; N]) {
    let directory = tempdir_in("/dev/shm").unwrap();
    let pools = more_participants(&directory, geometry);
    (directory, pools)
}

/// `N` more participants of the pool in `directory`, or the first ones.
pub(crate) fn more_participants<M: MappedMedium, const N: usize>(
    directory: &TempDir,
    geometry: Geometry,
) -> [Pool<M>; N] {
    let options = options_in(directory, geometry).shared(true).assume_persistent(true);
    [(); N].map(|()| options.open_or_create().unwrap())
}

fn options_in(directory: &TempDir, geometry: Geometry) -> PoolOptions {
    PoolOptions::at(directory.path().join("pool")).size(SIZE).geometry(geometry)
}

/// A collection that never stops, for its single steps.
pub(crate) fn collection<M: MappedMedium>(inner: &Inner<M>) -> Collection<'_, M> {
    Collection { peers: &inner.peers, should_stop: &|| false }
}

/// What a thread of `inner` does about a lock that stays held.
pub(crate) fn recovering<M: MappedMedium>(inner: &Inner<M>) -> impl Fn(&Lock) {
    |lock| inner.peers.recover_holder(lock)
}
