//! For tests: pools of 1 MiB, of one participant or of several within one process.

use crate::{Geometry, Pool, PoolOptions};
use tempfile::{TempDir, tempdir_in};
use terrace_medium::MappedMedium;

const SIZE: u64 = 1 << 20;

/// Four zones.
pub(crate) fn geometry() -> Geometry {
    Geometry { zone_log2: 18, ..Geometry::tiny() }
}

/// A pool that nobody else has.
pub(crate) fn alone<M: MappedMedium>() -> Pool<M> {
    Pool::anonymous_with(SIZE, geometry()).unwrap()
}

/// A new pool, as often as it is asked for. It goes with the directory.
pub(crate) fn participants<M: MappedMedium, const N: usize>(geometry: Geometry) -> (TempDir, [Pool<M>; N]) {
    let directory = tempdir_in("/dev/shm").unwrap();
    let pools = more(&directory, geometry);
    (directory, pools)
}

/// So many more participants of the pool in `directory`, or the first ones.
pub(crate) fn more<M: MappedMedium, const N: usize>(directory: &TempDir, geometry: Geometry) -> [Pool<M>; N] {
    let options = PoolOptions::at(directory.path().join("pool")).size(SIZE).geometry(geometry);
    let options = options.shared(true).assume_persistent(true);
    [(); N].map(|()| options.open_or_create().unwrap())
}
