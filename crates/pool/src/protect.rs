//! A participant that only reads needs no access for writing to the data, only to its own seat: its mapping refuses stores to all zones, so no bug of its program,
//! whatever it is written in, can damage what others write.
//!
//! The one thing that such a participant stores there is what it takes back from the dead, when it comes in, when it leaves as the last one, or when no seat is free for
//! it otherwise; meanwhile its mapping takes stores.

use crate::participants;
use crate::pool::{Inner, Pool};
use std::sync::{Mutex, MutexGuard, PoisonError};
use terrace_medium::{MapError, MappedMedium};

/// Whether stores are refused; and by how many they are needed nevertheless.
#[derive(Default)]
pub(crate) struct WriteProtection(Mutex<Option<u32>>);

/// While it lives, stores are taken.
pub(crate) struct WriteWindow<'p, M: MappedMedium>(&'p Inner<M>);

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
            if self.is_shared() {
                let own = u32::from(self.owner().participant);
                participants::mark_read_only(self.region(), self.layout(), own);
            }
        }
        Ok(())
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

    /// For what has to be stored even by who only reads.
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
                // Refused by the system, the protection is lost and nothing else.
                let _ = self.0.refuse_stores(true);
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use crate::small::participants;
    use crate::{Geometry, Pool};
    use terrace_medium::{Medium, Shm};

    fn pool() -> (tempfile::TempDir, Pool<Shm>) {
        let (directory, [pool]) = participants(Geometry::tiny());
        (directory, pool)
    }

    /// Whether the kernel lets this process store to the byte at `offset`.
    pub(crate) fn takes_stores(pool: &Pool<Shm>, offset: u64) -> bool {
        let at = pool.medium().base().addr().get() as u64 + offset;
        let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let mut mappings = maps.lines().filter_map(|line| line.split_once(' '));
        let is_there = |range: &str| {
            let (from, to) = range.split_once('-').unwrap();
            (number(from)..number(to)).contains(&at)
        };
        mappings.find(|(range, _)| is_there(range)).unwrap().1.starts_with("rw")
    }

    /// The same of what lies in the zones: of its first page and of its last one.
    fn takes_data(pool: &Pool<Shm>) -> bool {
        let from = pool.layout().zones.next_multiple_of(rustix::param::page_size() as u64);
        let [first, last] = [from, pool.size() - 1].map(|offset| takes_stores(pool, offset));
        assert_eq!(first, last);
        first
    }

    #[test]
    fn protected_pool_takes_stores_before_its_data_only() {
        let (_directory, pool) = pool();
        assert!(takes_stores(&pool, 0) && takes_data(&pool));
        pool.protect_data().unwrap();
        assert!(takes_stores(&pool, 0) && takes_stores(&pool, pool.layout().zones - 1));
        assert!(!takes_data(&pool));
    }

    #[test]
    fn stores_are_taken_as_long_as_somebody_needs_them() {
        let (_directory, pool) = pool();
        pool.protect_data().unwrap();
        for _ in 0..2 {
            let [one, two] = [pool.0.allow_stores(), pool.0.allow_stores()];
            assert!(takes_data(&pool));
            drop(one);
            assert!(takes_data(&pool), "one needs them still");
            drop(two);
            assert!(!takes_data(&pool));
        }
    }

    #[test]
    fn protecting_once_more_takes_nothing_from_who_stores_just_now() {
        let (_directory, pool) = pool();
        pool.protect_data().unwrap();
        let window = pool.0.allow_stores();
        pool.protect_data().unwrap();
        assert!(takes_data(&pool));
        drop(window);
        assert!(!takes_data(&pool));
    }

    #[test]
    fn unprotected_pool_always_takes_stores() {
        let (_directory, pool) = pool();
        drop(pool.0.allow_stores());
        assert!(takes_data(&pool));
    }
}
