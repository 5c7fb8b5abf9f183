//! What some engines can do and others cannot.

use crate::{Entry, Memory, ReadError, WriteError};
use std::ops::Bound;
use std::path::Path;
use terrace_index::Direction;
use terrace_medium::HugePages;
use terrace_pool::{GrowError, Holder};

/// A store whose data lies in a pool: memory that processes can share and that can grow.
pub trait Pooled {
    /// The other processes that share the store now.
    fn others(&self) -> Vec<Holder>;

    /// Recovers what dead processes held, so that no survivor waits for it. Returns how many there
    /// were.
    fn recover_dead(&self) -> u32;

    /// Kills a process that is stopped, if it still is. Whether it did.
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool>;

    /// Posts a notice for processes that have not opened the store. Returns whether there was room
    /// for it.
    fn post_notice(&self, text: &str) -> bool;

    /// Whether a crash has left memory that nothing reaches.
    fn needs_collection(&self) -> bool;

    /// Takes that memory back while the store is in use. Asks `stop` now and then, also while it
    /// waits for a thread that holds memory up; if so, the next call begins again.
    fn collect(&self, stop: &dyn Fn() -> bool);

    /// Removes expired entries: looks at `budget` records at most, fewer when few expire. Returns
    /// how many it removed. Called again and again, it goes through the whole store.
    fn sweep_expired(&self, budget: usize) -> u64;

    /// Moves a bounded number of records together where much memory lies idle between them, so that
    /// it serves every size. Returns whether that has freed memory, and a call right now may again.
    /// Costs next to nothing where nothing can be gained.
    fn compact(&self) -> bool;

    /// Moves every record that can be moved, though nothing is gained. For tests.
    #[doc(hidden)]
    fn move_all(&self);

    /// Does a bounded piece of background work on the index and frees the memory that index and
    /// records have left. Returns whether there is more.
    fn maintain(&self) -> bool;

    /// Asks for huge pages from `from` on, a piece at a time. Returns where to go on, or `None` at
    /// the end.
    fn collapse_step(&self, from: u64) -> Option<u64>;

    /// How much of the pool lies on huge pages, as the kernel says.
    fn huge_pages(&self) -> std::io::Result<HugePages>;

    /// Makes the pool `bytes` long and returns its size.
    fn grow(&self, bytes: u64) -> Result<u64, GrowError>;

    /// What the store can reach, and what its pool has given for it. Exact while no thread is at
    /// work and after a collection. For tests.
    #[doc(hidden)]
    fn memory(&self) -> Memory;
}

/// A store that keeps its keys in order.
pub trait Ordered {
    /// The entries with keys from `from` to `to`, in byte order or the reverse. A cursor holds no
    /// lock: a key that is there throughout is visited once, one that comes or goes perhaps.
    fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError>;
}

/// A place in a range; from [`Ordered::range`].
pub trait RangeCursor {
    /// The next key and its entry; `None` at the end. After an error the cursor is at its end.
    fn next(&mut self) -> Result<Option<(&[u8], Entry<'_>)>, ReadError>;
}

/// A store whose data lies in files.
pub trait OnDisk {
    /// Writes what is in memory only to tables, so that the log can be cut.
    fn flush(&self) -> Result<(), WriteError>;

    /// Makes a copy of the store, as it is at one instant, in a new directory. Files are linked
    /// where the file system can.
    fn checkpoint(&self, directory: &Path) -> Result<(), WriteError>;

    /// Merges all tables with keys from `from` to `to`, so that what was overwritten or removed
    /// takes no room.
    fn compact(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<(), WriteError>;
}
