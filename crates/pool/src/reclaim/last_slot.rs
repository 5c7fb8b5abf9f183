//! What a process remembers of its slots: the one that a thread used last, so that a pin finds it
//! by one comparison, and those that ended threads left.

use crate::format::slot::ThreadSlot;
use std::cell::Cell;
use std::sync::Mutex;

/// This thread's slot in the pool that it used last.
#[derive(Clone, Copy)]
pub(crate) struct LastSlot {
    pub(crate) pool: u64,
    /// The slot's address while that pool is open, so that a pin need not compute it.
    pub(crate) at: *const ThreadSlot,
}

pub(crate) const NONE: LastSlot = LastSlot { pool: 0, at: std::ptr::null() };

thread_local! {
    pub(crate) static LAST: Cell<LastSlot> = const { Cell::new(NONE) };
}

/// Forgets the slot in the child of a fork: it is the parent's.
pub(crate) fn forget_slot() {
    let _ = LAST.try_with(|last| last.set(NONE));
}

/// Slots of an open pool that ended threads of this process left. They stay owned by the process,
/// and the next thread reuses one.
#[derive(Default)]
pub(crate) struct FreeSlots(Mutex<Vec<u32>>);

impl FreeSlots {
    pub(crate) fn push(&self, slot: u32) {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(slot);
    }
    pub(crate) fn pop(&self) -> Option<u32> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop()
    }
}
