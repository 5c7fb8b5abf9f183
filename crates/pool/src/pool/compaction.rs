//! Compaction: which slabs and runs to vacate, while the layers above move what they hold.

use crate::pool::Pool;
use crate::pool::fresh::Fresh;
use crate::pool::guard::Guard;
use crate::reclaim::shortage::PoolFull;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// Which slabs are worth vacating.
#[derive(Clone, Copy, Debug)]
pub struct Sparse {
    /// Bytes of blocks to move, at most.
    pub bytes: u64,
    /// Slabs with more than this percentage of their blocks allocated stay.
    pub percent: u64,
}

impl<M: MappedMedium> Pool<M> {
    /// What the layers above need to move blocks out of sparse slabs and fragmented runs.
    pub fn compaction(&self) -> Compaction<'_, M> {
        Compaction(self)
    }
}

/// The choice of what to vacate in a pool, and its progress. See [`Pool::compaction`].
#[derive(Clone, Copy)]
pub struct Compaction<'p, M: MappedMedium>(&'p Pool<M>);

impl<M: MappedMedium> Compaction<'_, M> {
    /// Bytes of slabs, and those of them that are in no block: the most that vacating slabs could
    /// release.
    pub fn slack(&self) -> (u64, u64) {
        let (inner, shared) = (&*self.0.0, self.0.0.base().shared());
        let units = shared.slab_units.load(self.0.medium(), Relaxed);
        let slabs = units.saturating_mul(1 << inner.units().zones.slab_log2);
        let small = inner.base().sum(&shared.small_base, |slot| &slot.small_bytes);
        (slabs, slabs.saturating_sub(small))
    }

    /// Bytes of a slab: what each vacated one releases.
    pub fn slab_bytes(&self) -> u64 {
        1 << self.0.0.units().zones.slab_log2
    }

    /// Whether a block of this many bytes is an extent, and not in a slab.
    pub fn is_extent(&self, bytes: u64) -> bool {
        self.0.0.units().classes.of(bytes).is_none()
    }

    /// Takes the sparsest slabs out of use whose blocks have room in other slabs of their class,
    /// and releases empty ones. Slabs for which `is_left_out` returns true stay in use. Returns the
    /// offsets of the slabs that must be vacated now.
    pub fn vacate(&self, which: Sparse, is_left_out: &dyn Fn(u64) -> bool) -> Vec<u64> {
        let inner = &*self.0.0;
        let _locked = inner.peers.acquire(&inner.base().shared().vacate);
        let guard = self.0.pin();
        inner.heap().drain_caches(guard.thread_slot());
        let (mut victims, mut left) = (Vec::new(), which.bytes);
        for number in 0..inner.units().classes.len() {
            inner.heap().vacate_class(number, &mut left, which.percent, is_left_out, &mut victims);
        }
        victims
    }

    /// The slabs that any thread is vacating. Takes no time if there are none.
    pub fn vacating(&self) -> Vec<u64> {
        let inner = &*self.0.0;
        if inner.base().shared().vacated.load(self.0.medium(), Relaxed) == 0 {
            return Vec::new();
        }
        let units = inner.units().all_units().filter(|&unit| inner.units().is_vacating(unit));
        units.map(|unit| inner.units().zones.start_of(unit)).collect()
    }

    /// Releases those of these slabs that are empty by now, and puts the others into use again if
    /// `is_final`. Returns how many it released, and the slabs that are still being vacated.
    pub fn end_vacating(&self, slabs: &[u64], is_final: bool) -> (u64, Vec<u64>) {
        let inner = &*self.0.0;
        let _guard = self.0.pin();
        let (mut released, mut left) = (0, Vec::new());
        for &slab in slabs {
            match inner.units().unit_at(slab).and_then(|unit| inner.heap().end_vacating_unit(unit, is_final))
            {
                Some(true) => released += 1,
                Some(false) => {}
                None => left.push(slab),
            }
        }
        left.retain(|&slab| inner.units().unit_at(slab).is_some_and(|unit| inner.units().is_vacating(unit)));
        (released, left)
    }

    /// Calls `each` with the units of an extent of `bytes` bytes at `offset`, by number, and the
    /// granules that it has in each. Does nothing for a block of a slab.
    pub fn for_each_unit_of(&self, offset: u64, bytes: u64, each: &mut dyn FnMut(u64, u32)) {
        if self.0.0.units().classes.of(bytes).is_none()
            && let Some((first, count)) = self.0.0.heap().granules.extent_at(offset, bytes)
        {
            crate::allocator::granules::pieces(first, count)
                .for_each(|piece| each(piece.unit, piece.bits.count_ones()));
        }
    }

    /// The run of whole units for `bytes` bytes that takes the least moving to vacate, as offsets.
    /// It contains no unit with something that cannot be moved: a unit where the number of taken
    /// granules differs from what `movable` returns for the unit's number, or where `is_left_out`
    /// returns true for the unit's offset.
    pub fn cheapest_window(
        &self,
        bytes: u64,
        movable: &dyn Fn(u64) -> u32,
        is_left_out: &dyn Fn(u64) -> bool,
    ) -> Option<Range<u64>> {
        let inner = &*self.0.0;
        let _guard = self.0.pin();
        let wanted = bytes.div_ceil(self.slab_bytes());
        let (first, _) = inner
            .units()
            .zones()
            .filter_map(|zone| inner.heap().cheapest_run(&zone, wanted, movable, is_left_out))
            .min_by_key(|&(_, cost)| cost)?;
        let start = |unit| inner.units().zones.start_of(unit);
        Some(start(first)..start(first + wanted))
    }

    /// Keeps free memory in `window` from being taken, also what becomes free later, until this is
    /// called again or [`Compaction::close_window`]. Returns the slabs in it, which must be vacated
    /// now.
    pub fn open_window(&self, window: &Range<u64>) -> Vec<u64> {
        debug_assert!(window.start < window.end, "a window has a unit");
        let inner = &*self.0.0;
        let _locked = inner.peers.acquire(&inner.base().shared().vacate);
        let guard = self.0.pin();
        let units = inner.units().zones.unit_of(window.start)..inner.units().zones.unit_of(window.end);
        let word = units.start << 32 | (units.end - units.start);
        inner.base().shared().window.store(self.0.medium(), word, Relaxed);
        inner.heap().drain_caches(guard.thread_slot());
        let listed = units.clone().filter_map(|unit| inner.heap().vacate_full(unit));
        for number in listed.collect::<BTreeSet<usize>>() {
            inner.heap().vacate_listed(number, &units);
        }
        units
            .filter(|&unit| inner.units().is_vacating(unit))
            .map(|unit| inner.units().zones.start_of(unit))
            .collect()
    }

    /// The units of `window` that are not free, as offsets.
    pub fn used_units_in(&self, window: &Range<u64>) -> Vec<u64> {
        let starts = window.clone().step_by(self.slab_bytes() as usize);
        let is_taken = |start: &u64| {
            let unit = self.0.0.units().zones.unit_of(*start);
            self.0.0.units().unit(unit).taken.load(self.0.medium(), Relaxed) != 0
        };
        starts.filter(is_taken).collect()
    }

    /// Closes the window, if there is one: its memory can be taken again.
    pub fn close_window(&self) {
        self.0.0.base().shared().window.store(self.0.medium(), 0, Relaxed);
    }

    /// Bytes that are free for anything, and those of the longest free run. Inspects every unit.
    pub fn free_bytes(&self) -> (u64, u64) {
        let inner = &*self.0.0;
        let free = |unit: u64| {
            let usable = inner.units().zones.usable(unit, self.0.size());
            let taken = inner.units().unit(unit).taken.load(self.0.medium(), Relaxed);
            u64::from((!taken & usable).count_ones())
        };
        let granules: u64 = inner.units().all_units().map(free).sum();
        (granules << inner.units().zones.granule_log2(), inner.units().longest_free_run())
    }
}

impl<M: MappedMedium> Guard<'_, M> {
    /// The offsets of the allocated blocks in the slab at `slab`; none if it is not a slab.
    pub fn blocks_in(&self, slab: u64) -> Vec<u64> {
        let inner = self.inner();
        let class = inner.units().class_at(slab).and_then(|number| inner.units().classes.get(number));
        let (Some(unit), Some(class)) = (inner.units().unit_at(slab), class) else { return Vec::new() };
        let mut blocks = Vec::new();
        for word in 0..u64::from(class.words) {
            let mut taken = inner.units().allocated_word(unit, word).load(self.pool().medium(), Relaxed)
                & class.valid(word);
            while taken != 0 {
                blocks.push(slab + class.position(word * 64 + u64::from(taken.trailing_zeros())));
                taken &= taken - 1;
            }
        }
        blocks
    }

    /// Allocates a block for a copy of the one at `from`, which was allocated for `bytes` bytes.
    /// Uses existing slabs of its own class or that of `from`, and takes no new slab.
    ///
    /// # Errors
    /// [`PoolFull`] if these have no free block.
    pub fn alloc_from_existing_slabs(&self, from: u64, bytes: usize) -> Result<Fresh<'_, M>, PoolFull> {
        let (inner, bytes) = (self.inner(), bytes as u64);
        match inner.heap().take_listed(self.thread_slot(), from, bytes) {
            Some(offset) => Ok(Fresh::new(self, offset, bytes)),
            None => Err(inner.limbo().pool_full_error(bytes)),
        }
    }
}
