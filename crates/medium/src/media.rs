//! The three production media. They differ only in what a crash takes and so in what durability costs.

use crate::{FlushInstruction, MappedMedium, Mapping, Medium, flush};
use std::ptr::NonNull;

/// Memory that a crash loses altogether: durability costs nothing because there is none.
pub struct Dram(Mapping);

/// Memory that outlives the process but not the machine: every store is kept as soon as it is visible.
///
/// So too memory behind eADR or CXL with global persistent flush, where the caches are flushed on power loss.
pub struct Shm(Mapping);

/// Memory that outlives the machine, behind a cache that does not: a store is kept once it is written back and fenced.
pub struct Pmem {
    mapping: Mapping,
    flush: FlushInstruction,
}

impl MappedMedium for Dram {
    fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }
    fn mapping(&self) -> &Mapping {
        &self.0
    }
}

impl MappedMedium for Shm {
    fn new(mapping: Mapping) -> Self {
        Self(mapping)
    }
    fn mapping(&self) -> &Mapping {
        &self.0
    }
}

impl MappedMedium for Pmem {
    fn new(mapping: Mapping) -> Self {
        Self { mapping, flush: FlushInstruction::detect() }
    }
    fn mapping(&self) -> &Mapping {
        &self.mapping
    }
}

impl Pmem {
    /// The instruction that writes lines back, the best that this processor has.
    pub fn flush_instruction(&self) -> FlushInstruction {
        self.flush
    }
}

// SAFETY: a Mapping keeps its range mapped until it is dropped; its length is of whole lines and never shrinks.
unsafe impl Medium for Dram {
    const VOLATILE_CACHE: bool = false;
    #[inline(always)]
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }
    #[inline(always)]
    fn write_back(&self, _: *const u8) {}
    #[inline(always)]
    fn fence(&self) {}
}

// SAFETY: a Mapping keeps its range mapped until it is dropped; its length is of whole lines and never shrinks.
unsafe impl Medium for Shm {
    const VOLATILE_CACHE: bool = false;
    #[inline(always)]
    fn base(&self) -> NonNull<u8> {
        self.0.base()
    }
    #[inline(always)]
    fn len(&self) -> usize {
        self.0.len()
    }
    fn has_grown(&self) -> bool {
        self.0.catch_up()
    }
    #[inline(always)]
    fn write_back(&self, _: *const u8) {}
    #[inline(always)]
    fn fence(&self) {}
}

// SAFETY: a Mapping keeps its range mapped until it is dropped; its length is of whole lines and never shrinks.
unsafe impl Medium for Pmem {
    const VOLATILE_CACHE: bool = true;
    #[inline(always)]
    fn base(&self) -> NonNull<u8> {
        self.mapping.base()
    }
    #[inline(always)]
    fn len(&self) -> usize {
        self.mapping.len()
    }
    fn has_grown(&self) -> bool {
        self.mapping.catch_up()
    }
    #[inline(always)]
    fn write_back(&self, at: *const u8) {
        self.flush.write_back(at);
    }
    #[inline(always)]
    fn fence(&self) {
        flush::fence();
    }
}
