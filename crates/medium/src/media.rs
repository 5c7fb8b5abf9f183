//! The production media. They differ in what a crash loses, and so in what durability costs.

use crate::{FlushInstruction, MappedMedium, Mapping, Medium, flush};
use std::ptr::NonNull;

/// Memory that outlives the process but not the machine: a store is durable as soon as it is
/// visible.
///
/// Also memory behind eADR, or CXL with global persistent flush: these flush the caches on power
/// loss.
pub struct Shm(Mapping);

/// Memory that a crash loses entirely, over an anonymous mapping. Durability costs nothing, because
/// there is none.
///
/// Its code is that of [`Shm`], so each structure is compiled once for both. The mapping decides
/// what a crash loses, and whether another process can make it longer.
pub type Dram = Shm;

/// Memory that outlives the machine, behind a volatile cache: a store is durable once it is written
/// back and fenced.
pub struct Pmem {
    mapping: Mapping,
    flush: FlushInstruction,
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
    /// The instruction that writes lines back: the best that this processor has.
    pub fn flush_instruction(&self) -> FlushInstruction {
        self.flush
    }
}

// SAFETY: a Mapping keeps its range mapped until it is dropped. Its length is in whole lines and
// never shrinks.
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
        self.0.refresh_len()
    }
    #[inline(always)]
    fn write_back(&self, _: *const u8) {}
    #[inline(always)]
    fn fence(&self) {}
}

// SAFETY: a Mapping keeps its range mapped until it is dropped. Its length is in whole lines and
// never shrinks.
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
        self.mapping.refresh_len()
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
