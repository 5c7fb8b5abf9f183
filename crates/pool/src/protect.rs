//! A participant that only reads needs no access for writing to the data, only to its own seat: its mapping refuses stores to all zones, so no bug of its program,
//! whatever it is written in, can damage what others write.
//!
//! The one thing that such a participant stores there is what it takes back from the dead, when it comes in, when it leaves as the last one, or when no seat is free for
//! it otherwise; meanwhile its mapping takes stores.

use crate::pool::{Inner, Pool};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::{MapError, MappedMedium};

/// Whether stores are refused; and by how many they are needed nevertheless.
#[derive(Default)]
pub(crate) struct Protected(Mutex<Option<u32>>);

/// While it lives, stores are taken.
pub(crate) struct Allowed<'p, M: MappedMedium>(&'p Inner<M>);

impl<M: MappedMedium> Pool<M> {
    /// From now on this process stores nothing to what is in the pool's zones: a store is a fault that ends it. For who reads what others write.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn protect_data(&self) -> Result<(), MapError> {
        let mut protected = self.0.protected.lock();
        if protected.is_none() {
            self.0.refuse_stores(true)?;
            *protected = Some(0);
        }
        Ok(())
    }
}

impl Protected {
    fn lock(&self) -> MutexGuard<'_, Option<u32>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: MappedMedium> Inner<M> {
    fn refuse_stores(&self, refuse: bool) -> Result<(), MapError> {
        self.region.medium().mapping().refuse_stores(self.layout.zones as usize, refuse)
    }

    /// For what has to be stored even by who only reads.
    pub(crate) fn allow_stores(&self) -> Allowed<'_, M> {
        if let Some(needed) = &mut *self.protected.lock() {
            *needed += 1;
            if *needed == 1 {
                self.refuse_stores(false).expect("access that was taken away can be given back");
            }
        }
        Allowed(self)
    }
}

impl<M: MappedMedium> Drop for Allowed<'_, M> {
    fn drop(&mut self) {
        if let Some(needed) = &mut *self.0.protected.lock() {
            *needed = needed.saturating_sub(1);
            if *needed == 0 {
                // Refused by the system, the protection is lost and nothing else.
                let _ = self.0.refuse_stores(true);
            }
        }
    }
}
