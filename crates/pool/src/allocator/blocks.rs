//! Blocks: taken for a thread slot, and freed.

use crate::allocator::bitmaps::LARGER_CLASSES;
use crate::allocator::classes::Class;
use crate::allocator::heap::Heap;
use crate::format::slot::{ThreadSlot, add_own};
use terrace_medium::MappedMedium;

impl<M: MappedMedium> Heap<M> {
    /// Allocates `bytes` bytes, if they are available at once.
    #[inline(always)]
    pub(crate) fn take(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let Some(number) = self.units().classes.of(bytes) else { return self.take_large(slot, bytes) };
        let class = self.units().classes.get(number)?;
        let offset = self.take_block(slot, number, class)?;
        add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
        Some(offset)
    }

    fn take_large(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let offset = self.granules.take_extent(bytes)?;
        add_own(self.medium(), &slot.large_bytes, self.units().classes.footprint(bytes));
        Some(offset)
    }

    /// Allocates a block of a larger class for `bytes` bytes, aligned as one of its own class: at
    /// most [`LARGER_CLASSES`] classes up.
    pub(crate) fn take_larger(&self, slot: &ThreadSlot, bytes: u64) -> Option<u64> {
        let classes = &self.units().classes;
        let own = classes.of(bytes)?;
        (own + 1..=own + LARGER_CLASSES).find_map(|number| {
            let class = classes.get(number).filter(|class| class.is_aligned_like(bytes))?;
            debug_assert!(u64::from(class.size) >= bytes, "a larger class has larger blocks");
            let offset = self.take_block(slot, number, class)?;
            add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
            Some(offset)
        })
    }

    /// Allocates `bytes` bytes from existing slabs, of their own class or of the class of the slab
    /// around `from`.
    pub(crate) fn take_listed(&self, slot: &ThreadSlot, from: u64, bytes: u64) -> Option<u64> {
        let own = self.units().classes.of(bytes)?;
        let other =
            self.units().class_at(from).filter(|&found| found != own && self.units().serves(found, own));
        [Some(own), other].into_iter().flatten().find_map(|number| {
            let class = self.units().classes.get(number)?;
            let offset = self.take_block_listed(slot, number, class)?;
            add_own(self.medium(), &slot.small_bytes, u64::from(class.size));
            Some(offset)
        })
    }

    /// Frees a block. If there is no such block, or it is free already, only a fault is counted.
    #[inline(always)]
    pub(crate) fn free(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        let class = self
            .units()
            .classes
            .of(bytes)
            .and_then(|number| Some((number, self.units().classes.get(number)?)));
        let Some((number, class)) = class else { return self.free_large(slot, offset, bytes) };
        match self.free_block(offset, number, class) {
            true => self.count_freed(slot, class),
            false => self.free_larger(slot, offset, number),
        }
    }

    /// Frees a block of a larger class than `number`, which [`Heap::take_larger`] gave for a
    /// request of that class.
    #[cold]
    fn free_larger(&self, slot: &ThreadSlot, offset: u64, number: usize) {
        let larger = self
            .units()
            .class_at(offset)
            .filter(|&found| found != number && self.units().serves(found, number));
        match larger.and_then(|found| Some((found, self.units().classes.get(found)?))) {
            Some((found, class)) if self.free_block(offset, found, class) => self.count_freed(slot, class),
            _ => self.base().count_fault(),
        }
    }

    #[inline(always)]
    fn count_freed(&self, slot: &ThreadSlot, class: &Class) {
        let size = u64::from(class.size);
        add_own(self.medium(), &slot.small_bytes, size.wrapping_neg());
        add_own(self.medium(), &slot.freed, size);
    }

    fn free_large(&self, slot: &ThreadSlot, offset: u64, bytes: u64) {
        if !self.granules.free_extent(offset, bytes) {
            return self.base().count_fault();
        }
        let size = self.units().classes.footprint(bytes);
        add_own(self.medium(), &slot.large_bytes, size.wrapping_neg());
        add_own(self.medium(), &slot.freed, size);
    }
}
