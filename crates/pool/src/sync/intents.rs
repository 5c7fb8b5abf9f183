//! Lock intents: which locks a thread of a shared pool may hold (SHIFT, sections 5.2.2 and 5.3).
//!
//! A thread records an intent in its slot before it tries a lock, and clears it once the lock is
//! free again. A recovering process finds all locks that a dead one may hold by these intents, and
//! releases those that name it as holder; see `recover`. A slot has room for 16 intents. A thread
//! that holds more locks takes an extra slot, and returns it with the last of its intents. Recovery
//! looks through all slots of a dead participant.
//!
//! The processes of one machine share its caches, so a dead process's intents are visible wherever
//! they are stored. Hosts have separate caches. Where a host's cache is lost with it, an intent is
//! persisted before the lock is tried: two lines and a fence. SHIFT pays that, too, on machines
//! without GPF.
//!
//! The paper gives each process a log of 1 KiB and chains more. Here each thread has its own two
//! lines, so that no two threads share a line.

use crate::base::Base;
use crate::format::slot::{INTENTS, ThreadSlot};
use std::cell::Cell;
use std::num::NonZeroU64;
use std::sync::atomic::Ordering::{Relaxed, Release};
use terrace_medium::MappedMedium;

/// The extra slot that this thread has for intents, and the open pool that it belongs to.
#[derive(Clone, Copy, PartialEq)]
struct ExtraSlot {
    pool: u64,
    index: u32,
}

const NONE: ExtraSlot = ExtraSlot { pool: 0, index: 0 };

thread_local! {
    static EXTRA: Cell<ExtraSlot> = const { Cell::new(NONE) };
}

/// Where a thread has recorded that it may hold a lock: `| slot (32) | 0 | extra (1) | 1 | number
/// (16) |`. One word, since it moves with the lock.
pub(crate) struct Intent(NonZeroU64);

const NUMBER: u64 = 0xffff;
const IS_INTENT: u64 = 1 << 16;
/// The slot is taken for intents only.
const IN_EXTRA: u64 = 1 << 17;
const SLOT_SHIFT: u32 = 32;

const _: () = assert!(INTENTS as u64 <= NUMBER, "an intent's number fits its field");
const _: () = assert!(INTENTS <= u64::BITS as usize, "a word has a bit for each intent of a slot");

impl Intent {
    /// Records an intent for the lock at `offset`, before the lock is tried. If `slot` is full, an
    /// extra slot takes it, which `claim` finds.
    pub(crate) fn record<M: MappedMedium>(
        base: &Base<M>,
        slot: &ThreadSlot,
        offset: u64,
        claim: impl Fn() -> u32,
    ) -> Self {
        match Self::record_in(base, slot, offset) {
            Some(intent) => intent,
            None => Self::record_in_extra_slot(base, offset, claim),
        }
    }

    /// Records it in `slot`, unless that is full.
    #[inline(always)]
    fn record_in<M: MappedMedium>(base: &Base<M>, slot: &ThreadSlot, offset: u64) -> Option<Self> {
        let used = slot.intents_set.load(base.medium(), Relaxed);
        let number = used.trailing_ones();
        slot.intents.get(number as usize)?.store(base.medium(), offset, Relaxed);
        // ORDER: Release: the offset before the bit that makes it valid. Only this thread writes
        // them; recovery reads them after its death.
        slot.intents_set.store(base.medium().point("intent.record"), used | 1 << number, Release);
        if M::VOLATILE_CACHE && base.is_multi_host() {
            // PERSIST: the intent, before the lock is tried. A host that crashes before the intent
            // is durable does not hold the lock; one that crashes later has recorded it. A crash
            // may persist the second line only. Then the intent names another lock, which is
            // released only if the dead holder's name is in it.
            base.medium().point("intent.write-back");
            base.region.write_back(&slot.intents[number as usize]);
            base.medium().point("intent-set.write-back");
            base.region.write_back(&slot.intents_set);
            base.medium().point("intent.fence");
            base.region.fence();
        }
        NonZeroU64::new(base.index_of(slot) << SLOT_SHIFT | IS_INTENT | u64::from(number)).map(Self)
    }

    #[cold]
    fn record_in_extra_slot<M: MappedMedium>(base: &Base<M>, offset: u64, claim: impl Fn() -> u32) -> Self {
        let extra = EXTRA.get();
        let known = (extra.pool == base.id).then(|| base.thread_slot(extra.index));
        let intent = known.and_then(|slot| Self::record_in(base, slot, offset)).unwrap_or_else(|| {
            // The previous extra slot, if any, stays this thread's until its intents are cleared.
            let index = claim();
            EXTRA.set(ExtraSlot { pool: base.id, index });
            let intent = Self::record_in(base, base.thread_slot(index), offset);
            intent.expect("a free slot has no intents")
        });
        Self(intent.0 | IN_EXTRA)
    }

    /// Clears the intent: the lock is free, or held by another thread. (Not inlined: only shared
    /// pools need it, and dropping a lock of an exclusive pool stays short.)
    #[inline(never)]
    pub(crate) fn clear<M: MappedMedium>(&self, base: &Base<M>) {
        let intent = self.0.get();
        debug_assert!(intent & IS_INTENT != 0, "made by `record_in`");
        let index = (intent >> SLOT_SHIFT) as u32;
        let intents_set = &base.thread_slot(index).intents_set;
        let left = intents_set.load(base.medium(), Relaxed) & !(1 << (intent & NUMBER));
        // ORDER: Release: after the lock was released.
        intents_set.store(base.medium(), left, Release);
        if intent & IN_EXTRA != 0 && left == 0 {
            Self::return_extra_slot(base, index);
        }
    }

    #[cold]
    fn return_extra_slot<M: MappedMedium>(base: &Base<M>, index: u32) {
        if EXTRA.get() == (ExtraSlot { pool: base.id, index }) {
            EXTRA.set(NONE);
        }
        base.release_slot(index);
    }
}

#[cfg(test)]
#[path = "tests/intents.rs"]
mod tests;
