//! Write protection for a participant that only reads. It needs write access to its own thread
//! slot, but not to the data: its mapping refuses stores to all zones. So no bug in its program, in
//! whatever language, can damage the data of others.
//!
//! Such a participant stores to the zones only to recover dead participants: when it joins, when it
//! leaves as the last one, or when no slot is free for it otherwise. Meanwhile its mapping permits
//! stores.

use crate::pool::{Inner, Pool};
use crate::sharing::participants;
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::{MapError, MappedMedium};

/// Whether stores are refused, and how many callers need them nevertheless.
#[derive(Default)]
pub(crate) struct WriteProtection(Mutex<Option<u32>>);

/// While it exists, stores are permitted.
pub(crate) struct WriteWindow<'p, M: MappedMedium>(&'p Inner<M>);

impl<M: MappedMedium> Pool<M> {
    /// Makes this process's mapping of the pool's zones read-only: a store there is a fault that
    /// ends the process. For a process that only reads.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn protect_data(&self) -> Result<(), MapError> {
        let mut protected = self.0.protected.lock();
        if protected.is_none() {
            self.0.refuse_stores(true)?;
            *protected = Some(0);
            if self.is_shared() {
                let own = u32::from(self.owner().participant);
                participants::mark_read_only(self.region(), self.layout(), own);
            }
        }
        Ok(())
    }

    /// Whether this process must not store to the zones, since it only reads: the pool is open
    /// read-only, or its data is protected.
    pub fn refuses_stores(&self) -> bool {
        self.is_read_only() || self.0.protected.lock().is_some()
    }
}

impl WriteProtection {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: MappedMedium> Inner<M> {
    fn refuse_stores(&self, refuse: bool) -> Result<(), MapError> {
        self.region.medium().mapping().refuse_stores(self.layout.zones as usize, refuse)
    }

    /// Permits stores while the result exists, for recovery in a read-only participant.
    pub(crate) fn allow_stores(&self) -> WriteWindow<'_, M> {
        if let Some(needed) = &mut *self.protected.lock() {
            *needed += 1;
            if *needed == 1 {
                self.refuse_stores(false).expect("access that was taken away can be given back");
            }
        }
        WriteWindow(self)
    }
}

impl<M: MappedMedium> Drop for WriteWindow<'_, M> {
    fn drop(&mut self) {
        if let Some(needed) = &mut *self.0.protected.lock() {
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                // If the system refuses, only the protection is lost.
                let _ = self.0.refuse_stores(true);
            }
        }
    }
}

#[cfg(test)]
#[path = "tests/protect.rs"]
pub(crate) mod tests;
