//! The bytes that a store may use, below the size of its pool.

use crate::record::flag::Set;
use std::cell::Cell;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};

thread_local! {
    /// Whether writes of this thread go on above the limit.
    static UNLIMITED: Cell<bool> = const { Cell::new(false) };
}

/// The limit of a store. It owns the limit and what may be written before the use is measured
/// again; eviction (`upkeep::evict`), which measures, stands above it.
pub(crate) struct Limit {
    /// Bytes that the store may use; `u64::MAX`: no limit but the pool.
    bytes: AtomicU64,
    /// Bytes that may be written before the use is measured.
    headroom: AtomicI64,
}

impl Default for Limit {
    fn default() -> Self {
        Self { bytes: AtomicU64::new(u64::MAX), headroom: AtomicI64::new(0) }
    }
}

impl Limit {
    // ORDER: Relaxed, here and below: settings and hints, which publish nothing.
    /// The limit in bytes, if there is one.
    #[inline(always)]
    pub(crate) fn bytes(&self) -> Option<u64> {
        Some(self.bytes.load(Relaxed)).filter(|&bytes| bytes != u64::MAX)
    }

    /// Sets a limit, or none by 0. The next write measures the use.
    pub(crate) fn set(&self, bytes: u64) {
        self.bytes.store(if bytes == 0 { u64::MAX } else { bytes }, Relaxed);
        self.headroom.store(0, Relaxed);
    }

    /// Takes bytes of a new record from what may be written. Returns whether there were as many.
    #[inline(always)]
    pub(crate) fn may_write(&self, bytes: u64) -> bool {
        if self.bytes().is_none() {
            return true;
        }
        self.headroom.fetch_sub(bytes as i64, Relaxed) > 0 || UNLIMITED.get()
    }

    /// Whether all that may be written has been written.
    pub(crate) fn is_used_up(&self) -> bool {
        self.headroom.load(Relaxed) <= 0
    }

    /// Sets the bytes that may be written now.
    pub(crate) fn set_headroom(&self, bytes: u64) {
        self.headroom.store(bytes as i64, Relaxed);
    }
}

/// Does `write`; writes of this thread go on above the limit meanwhile.
pub(crate) fn unlimited(write: &mut dyn FnMut()) {
    let _set = Set::new(&UNLIMITED);
    write();
}
