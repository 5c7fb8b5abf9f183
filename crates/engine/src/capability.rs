//! Optional capabilities of engines.

use crate::{Chore, Durability, Durably, Entry, Memory, ReadError, WriteError};
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::time::Duration;
use terrace_index::Direction;
use terrace_medium::HugePages;
use terrace_pool::{GrowError, Holder};

/// A store whose data lies in a pool: memory that processes can share and that can grow.
pub trait Pooled {
    /// The other processes that share the store now.
    fn other_processes(&self) -> Vec<Holder>;

    /// Recovers what dead processes held, so that no survivor waits for it. Returns the number of
    /// dead processes.
    fn recover_dead(&self) -> u32;

    /// Kills a process that is stopped, if it still is. Returns whether it did.
    fn end_stopped(&self, holder: &Holder) -> std::io::Result<bool>;

    /// Posts a notice for processes that have not opened the store. Returns whether there was room
    /// for it.
    fn post_notice(&self, text: &str) -> bool;

    /// Whether a crash has left memory that nothing reaches.
    fn needs_collection(&self) -> bool;

    /// Reclaims that memory while the store is in use. Calls `stop` now and then, also while it
    /// waits for a thread that blocks reclamation; if it returns true, the next call starts over.
    fn collect(&self, stop: &dyn Fn() -> bool);

    /// Removes expired entries: reads at most `budget` records, fewer when few expire. Returns how
    /// many it removed. Repeated calls go through the whole store.
    fn sweep_expired(&self, budget: usize) -> u64;

    /// Moves a bounded number of records together where much memory between them is unused, so that
    /// it serves every size. Returns whether that has freed memory and another call may free more.
    /// Costs next to nothing where nothing can be gained.
    fn compact(&self) -> bool;

    /// Moves every record that can be moved, even where nothing is gained. For tests.
    #[doc(hidden)]
    fn move_all(&self);

    /// Does a bounded piece of background work on the index, and frees the memory that index and
    /// records have retired. Returns whether there is more to do.
    fn maintain(&self) -> bool;

    /// Requests huge pages from `from` on, a piece at a time. Returns where to continue, or `None`
    /// at the end.
    fn collapse_step(&self, from: u64) -> Option<u64>;

    /// How much of the pool lies on huge pages, as the kernel reports it.
    fn huge_pages(&self) -> std::io::Result<HugePages>;

    /// Makes the pool `bytes` long and returns its size.
    fn grow(&self, bytes: u64) -> Result<u64, GrowError>;

    /// The memory that the store can reach, and the memory that its pool has allocated. Exact while
    /// no other thread works, and after a collection. For tests.
    #[doc(hidden)]
    fn memory(&self) -> Memory;
}

/// How many entries a removal has removed from a range, and the first key that is left, if any.
pub type RangeRemoved = (u64, Option<Box<[u8]>>);

/// A store that keeps its keys in order.
pub trait Ordered {
    /// The entries with keys between `from` and `to`, in byte order or the reverse. `from` is the
    /// lower end in either direction; above `to`, the range is empty. The ends may be of any
    /// length.
    ///
    /// A range holds no lock and no memory of the store between two visits. It visits a key that is
    /// present throughout exactly once, and a key that is added, removed or changed meanwhile at
    /// most once.
    fn range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        direction: Direction,
    ) -> Result<Box<dyn RangeCursor + '_>, ReadError>;

    /// Removes the entries with keys between `from` and `to`, the lowest first, each for itself.
    /// Stops after `at_most` keys; keys whose entries have expired count. Returns how many entries
    /// it has removed, and the first key that is left, if any: the call may be repeated from there.
    /// Takes no memory.
    ///
    /// # Errors
    /// [`WriteError::Corrupt`] after the call has removed all that it could, if it met damage.
    fn remove_range(
        &self,
        from: Bound<&[u8]>,
        to: Bound<&[u8]>,
        at_most: u64,
        how: Durably,
    ) -> Result<RangeRemoved, WriteError>;
}

/// A place in a range; from [`Ordered::range`].
pub trait RangeCursor {
    /// Visits the next entries, up to `at_most`, until `each` breaks. Returns whether more may be
    /// left.
    ///
    /// # Errors
    /// [`ReadError::Skipped`] after a visit that met damage: it has visited the other entries, and
    /// the range may be continued. Its cursor is that of [`RangeCursor::position`]. After any other
    /// error the range is at its end.
    fn visit(
        &mut self,
        at_most: usize,
        each: &mut dyn FnMut(&[u8], Entry<'_>) -> ControlFlow<()>,
    ) -> Result<bool, ReadError>;

    /// The key behind which the range goes on, in its direction; `None` before the first one.
    fn position(&self) -> Option<&[u8]>;

    /// From now on the caller wants keys alone: an engine may show empty values, and need not read
    /// those that lie apart from their keys.
    fn without_values(&mut self) {}
}

/// A store whose data lies in files.
pub trait OnDisk {
    /// Writes what is only in memory to tables, so that the log can be cut.
    fn flush(&self) -> Result<(), WriteError>;

    /// Makes a copy of the store, as it is at one instant, in a new directory on the same file
    /// system. Its files are links, so it takes room only for what the store removes later.
    fn checkpoint(&self, directory: &Path) -> Result<(), WriteError>;

    /// Merges all tables with keys from `from` to `to`, so that what was overwritten or removed
    /// takes no room.
    fn compact(&self, from: Bound<&[u8]>, to: Bound<&[u8]>) -> Result<(), WriteError>;

    /// Makes every write so far survive a loss of power.
    fn sync(&self) -> Result<(), WriteError>;

    /// What a write can survive at most.
    fn most(&self) -> Durability {
        Durability::Power
    }

    /// Sets what a write with [`Durably::Store`](crate::Durably::Store) survives from now on: no
    /// more than [`OnDisk::most`].
    fn set_durability(&self, durability: Durability);

    /// What the open has found torn behind the end of the log, and dropped.
    fn torn_tail(&self) -> Option<terrace_disk::Tail> {
        None
    }

    /// Posts a text for processes that have not opened the store. Returns whether it was written.
    fn post_notice(&self, text: &str) -> bool;

    /// How many tables it keeps open for reads, about, at most; `None` if all of them.
    fn most_open(&self) -> Option<u64> {
        None
    }

    /// Why the last step of this work has failed; `None` if it has not. It is tried again, ever
    /// less often.
    fn trouble(&self, chore: Chore) -> Option<WriteError> {
        let _ = chore;
        None
    }

    /// Bytes of items that merges have read since the store was opened.
    fn merged_bytes(&self) -> u64;

    /// Waits until there may be background work to do, for `time` at most.
    fn wait_for_work(&self, time: Duration);
}
