//! The tags of a processor's last-level cache: which lines it has, and which of them are dirty.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

const WAYS: usize = 8;

/// A set-associative array of tags that threads share. It evicts a random line of a full set.
///
/// A tag is the line's number + 1, shifted by one; bit 0 is set if the line is dirty. 0 means no
/// line.
pub(super) struct Cache {
    tags: Box<[AtomicU64]>,
    sets: u64,
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Hit,
    /// The line was absent and is present now; this dirty line was evicted.
    Miss(Option<u64>),
}

fn tag(line: u64) -> u64 {
    (line + 1) << 1
}

impl Cache {
    pub(super) fn new(bytes: u64) -> Self {
        let sets = (bytes / terrace_medium::LINE as u64 / WAYS as u64).next_power_of_two();
        Self { tags: (0..sets as usize * WAYS).map(|_| AtomicU64::new(0)).collect(), sets }
    }

    fn set(&self, line: u64) -> &[AtomicU64] {
        let set = (line.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) & (self.sets - 1);
        &self.tags[set as usize * WAYS..][..WAYS]
    }

    /// Looks up `line`, and inserts it if absent. `random` chooses the line to evict.
    pub(super) fn touch(&self, line: u64, write: bool, random: u64) -> Found {
        let (set, tag) = (self.set(line), tag(line));
        for way in set {
            let found = way.load(Relaxed);
            if found & !1 == tag {
                if write && found & 1 == 0 {
                    // If another thread evicted the line in between, its successor is marked dirty:
                    // one write too many in a model.
                    way.fetch_or(1, Relaxed);
                }
                return Found::Hit;
            }
        }
        let free = set.iter().find(|way| way.load(Relaxed) == 0);
        let way = free.unwrap_or(&set[random as usize % WAYS]);
        let before = way.swap(tag | u64::from(write), Relaxed);
        Found::Miss((before & 1 == 1).then_some((before >> 1).wrapping_sub(1)))
    }

    /// Makes `line` clean, and returns whether it was dirty.
    pub(super) fn clean(&self, line: u64) -> bool {
        self.replace(line, tag(line))
    }

    /// Removes `line`, which memory has.
    pub(super) fn drop(&self, line: u64) {
        self.replace(line, 0);
        let clean = self.set(line).iter().find(|way| way.load(Relaxed) == tag(line));
        clean.into_iter().for_each(|way| way.store(0, Relaxed));
    }

    /// Replaces the tag of `line` if it is dirty, and returns whether it was.
    fn replace(&self, line: u64, with: u64) -> bool {
        let dirty = tag(line) | 1;
        let change = |way: &AtomicU64| {
            way.load(Relaxed) == dirty && way.compare_exchange(dirty, with, Relaxed, Relaxed).is_ok()
        };
        self.set(line).iter().any(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_stays_until_it_is_evicted() {
        let cache = Cache::new(64 * WAYS as u64);
        assert_eq!(cache.touch(5, true, 0), Found::Miss(None));
        assert_eq!(cache.touch(5, false, 0), Found::Hit);
        for line in 10..17 {
            assert_eq!(cache.touch(line, false, 0), Found::Miss(None));
        }
        assert_eq!(
            cache.touch(99, false, 0),
            Found::Miss(Some(5)),
            "the set is full: way 0 is evicted, which is dirty"
        );
        assert_eq!(cache.touch(100, false, 1), Found::Miss(None), "way 1 is clean");
    }

    #[test]
    fn line_is_written_back_once() {
        let cache = Cache::new(4096);
        cache.touch(7, true, 0);
        assert!(cache.clean(7) && !cache.clean(7));
        assert_eq!(cache.touch(7, true, 0), Found::Hit);
        assert!(cache.clean(7));
        cache.drop(7);
        assert_eq!(cache.touch(7, false, 0), Found::Miss(None));
    }
}
