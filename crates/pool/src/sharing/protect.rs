//! Write protection for a participant that only reads. It needs write access to its own thread
//! slot, but not to the data: its mapping refuses stores to all zones. So no bug in its program, in
//! whatever language, can damage the data of others.
//!
//! Such a participant stores to the zones only to recover dead participants: when it joins, when it
//! leaves as the last one, or when no slot is free for it otherwise. Meanwhile its mapping permits
//! stores.

use crate::base::Base;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::{MapError, MappedMedium};

/// Whether stores are refused, and how many callers need them nevertheless.
#[derive(Default)]
pub(crate) struct WriteProtection(Mutex<Option<u32>>);

/// While it exists, stores are permitted.
pub(crate) struct WriteWindow<'p, M: MappedMedium> {
    protection: &'p WriteProtection,
    base: &'p Base<M>,
}

impl WriteProtection {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Refuses stores from now on; calls `announce` if they were permitted until now.
    pub(crate) fn begin<M: MappedMedium>(
        &self,
        base: &Base<M>,
        announce: impl FnOnce(),
    ) -> Result<(), MapError> {
        let mut protected = self.lock();
        if protected.is_none() {
            refuse_stores(base, true)?;
            *protected = Some(0);
            announce();
        }
        Ok(())
    }

    pub(crate) fn is_on(&self) -> bool {
        self.lock().is_some()
    }

    /// Permits stores while the result exists, for recovery in a read-only participant.
    pub(crate) fn open_window<'p, M: MappedMedium>(&'p self, base: &'p Base<M>) -> WriteWindow<'p, M> {
        if let Some(needed) = &mut *self.lock() {
            *needed += 1;
            if *needed == 1 {
                refuse_stores(base, false).expect("access that was taken away can be given back");
            }
        }
        WriteWindow { protection: self, base }
    }
}

fn refuse_stores<M: MappedMedium>(base: &Base<M>, refuse: bool) -> Result<(), MapError> {
    base.region.medium().mapping().refuse_stores(base.layout.zones as usize, refuse)
}

impl<M: MappedMedium> Drop for WriteWindow<'_, M> {
    fn drop(&mut self) {
        if let Some(needed) = &mut *self.protection.lock() {
            debug_assert!(*needed > 0, "this window is one of those that are counted");
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                // If the system refuses, only the protection is lost.
                let _ = refuse_stores(self.base, true);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/protect.rs"]
pub(crate) mod tests;
