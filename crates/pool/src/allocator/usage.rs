//! Accounting: what the memory of a pool is used for.

use crate::allocator::units::Units;
use crate::allocator::zones::{UnitState, UnitUse, Zone};
use crate::format::lifetime::Start;
use crate::format::slot::ThreadSlot;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;

/// The use of a pool's bytes. While other threads allocate, the figures are of about the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Bytes of the pool.
    pub size: u64,
    /// Bytes in blocks, rounded up to their sizes. Includes those that wait for their readers.
    pub used_by_blocks: u64,
    /// Bytes of slabs that are in no block: free for small blocks of the slab's size, or lost to
    /// the slab's bitmaps and tail.
    pub slab_free: u64,
    /// Bytes of the pool's own metadata.
    pub metadata: u64,
    /// Bytes that were retired and wait for their readers.
    pub waiting_bytes: u64,
    /// Threads that are pinned now.
    pub readers: u32,
    /// Pinned threads that were pinned already before other blocks were retired: those blocks wait
    /// for them.
    pub blocking_readers: u32,
    /// Bytes in blocks that leaked because no memory for a limbo entry was left. The next open
    /// collects them.
    pub lost: u64,
    /// Bytes of memory that was found damaged, so nothing is allocated there. A salvage makes a
    /// pool without it.
    pub damaged: u64,
    /// Bytes free for anything.
    pub free: u64,
    /// Bytes of the largest extent that there is room for. The rest of `free` is in smaller pieces.
    pub largest_free_extent: u64,
    /// Whether memory that a crash or a dead process left has yet to be collected; until then
    /// `used_by_blocks` is an upper bound.
    pub collecting: bool,
}

/// Continues a run of free granules. Returns the longest run that ends in, or lies in, this word.
fn longest_run(run: &mut u64, taken: u64) -> u64 {
    let mut free = !taken;
    if free == !0 {
        *run += 64;
        return *run;
    }
    let joined = *run + u64::from(free.trailing_ones());
    *run = u64::from(free.leading_ones());
    let mut inside = 0;
    while free != 0 {
        // Each turn shortens every run by one.
        free &= free << 1;
        inside += 1;
    }
    joined.max(inside)
}

/// Bytes of all units, by what the descriptions say of them.
#[derive(Default)]
pub(crate) struct Tally {
    /// Slabs whose blocks are counted.
    pub(crate) slabs: u64,
    /// Slabs that a crash left and that were not revalidated yet.
    pub(crate) uncounted: u64,
    pub(crate) extents: u64,
    pub(crate) damaged: u64,
    pub(crate) free: u64,
}

impl<M: MappedMedium> Units<M> {
    /// Inspects every unit of a pool of `size` bytes.
    pub(crate) fn tally(&self, size: u64) -> Tally {
        let mut tally = Tally::default();
        for zone in self.zones() {
            for unit in self.units_in(&zone) {
                self.add_to(&mut tally, &zone, unit, size);
            }
        }
        tally
    }

    fn add_to(&self, tally: &mut Tally, zone: &Zone, unit: u64, size: u64) {
        let (granule, slab) = (1 << self.zones.granule_log2(), 1 << self.zones.slab_log2);
        let entry = self.unit(unit);
        let usable = self.zones.usable(unit, size);
        let taken = entry.taken.load(self.medium(), Relaxed);
        let state = UnitState(entry.state.load(self.medium(), Relaxed));
        let head = self.zones.header_granules(zone, unit);
        let is_of_this_open = state.open_seq() == self.base.open_seq || self.base.start == Start::Clean;
        match state.class() {
            _ if state.usage() == UnitUse::Quarantined => {
                tally.damaged += u64::from((usable & !head).count_ones()) * granule;
                return;
            }
            Some(_) if is_of_this_open => tally.slabs += slab,
            Some(_) => tally.uncounted += slab,
            None => tally.extents += u64::from((taken & usable & !head).count_ones()) * granule,
        }
        tally.free += u64::from((!taken & usable).count_ones()) * granule;
    }

    /// Bytes of the largest extent that there is room for. Inspects every unit.
    pub(crate) fn longest_free_run(&self) -> u64 {
        let zones = &self.zones;
        let of_zone = |zone| {
            let mut run = 0;
            let taken = |unit| {
                self.unit(unit).taken.load(self.medium(), Relaxed) | !zones.usable(unit, self.base.size())
            };
            self.units_in(&zone).map(|unit| longest_run(&mut run, taken(unit))).max().unwrap_or(0)
        };
        self.zones().map(of_zone).max().unwrap_or(0) << zones.granule_log2()
    }

    /// Bytes in small blocks, those in slot caches included, and in extents, by the bitmaps. No
    /// thread allocates or frees meanwhile.
    pub(crate) fn count_all(&self) -> (u64, u64) {
        let (mut small, mut large) = (0u64, 0u64);
        for (zone, unit) in self.zones().flat_map(|zone| self.units_in(&zone).map(move |unit| (zone, unit))) {
            let entry = self.unit(unit);
            let state = UnitState(entry.state.load(self.medium(), Relaxed));
            match state.class() {
                // Units that a crash left are counted when they are revalidated.
                _ if state.usage() == UnitUse::Quarantined => {}
                _ if state.open_seq() != self.base.open_seq && self.base.start != Start::Clean => {}
                Some(number) => {
                    let class = self.classes.get(number);
                    small += class.map_or(0, |class| self.count_blocks(unit, class) * u64::from(class.size));
                }
                None => {
                    let usable = self.zones.usable(unit, self.base.size());
                    let head = self.zones.header_granules(&zone, unit);
                    let taken = entry.taken.load(self.medium(), Relaxed) & usable & !head;
                    large += u64::from(taken.count_ones()) << self.zones.granule_log2();
                }
            }
        }
        (small, large)
    }

    /// Bytes of blocks in a slot's caches.
    pub(crate) fn cached(&self, slot: &ThreadSlot) -> u64 {
        let caches = (0..self.classes.len()).filter_map(|number| {
            let free = slot.caches[number].free.load(self.medium(), Relaxed);
            Some(u64::from(free.count_ones()) * u64::from(self.classes.get(number)?.size))
        });
        caches.sum()
    }
}

#[cfg(test)]
#[path = "tests/usage.rs"]
mod tests;
