//! Checks every invariant that is visible while no thread writes.

use super::bucket::{SlotLock, has_overflowed, meta, tag_of};
use super::ops::Rewo;
use super::place::Place;
use super::shape::{BucketShape, Entry};
use super::view::Directory;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Finding, Guard};

/// Findings after which a walk stops: more of the same say nothing new.
const FINDINGS_MAX: usize = 1000;

/// An entry, its place, and whether its slot is locked: then the key may be there twice.
struct SeenEntry {
    entry: Entry,
    at: u64,
    is_locked: bool,
}

impl<M: MappedMedium, K: BucketShape> Rewo<M, K> {
    pub(super) fn findings(&self, guard: &Guard<'_, M>) -> Vec<Finding> {
        let (mut findings, mut met) = (Vec::new(), Vec::new());
        let view = self.view();
        if !view.is_sound(self.pool.region().refreshed_len()) {
            return vec![finding(view.offset.raw(), "a view that fits its check", "another")];
        }
        let directory = view.directory();
        let mut left = view.count();
        for place in directory.all() {
            let is_left = directory.tables(directory.moving).any(|(table, _)| table == place);
            for index in 0..place.buckets() {
                let is_done = is_left && index < left;
                self.verify_bucket(guard, &directory, (place, index, is_done), &mut met, &mut findings);
                if findings.len() > FINDINGS_MAX {
                    return findings;
                }
            }
            left = left.saturating_sub(if is_left { place.buckets() } else { 0 });
        }
        if let Some(spare) = directory.spare() {
            let words = |index| self.bucket(spare, index)[0].0.iter();
            let is_clear =
                |&index: &u64| words(index).all(|word| word.load(self.pool.medium(), Relaxed) == 0);
            if let Some(index) = (0..view.count().min(spare.buckets())).find(|index| !is_clear(index)) {
                let at = spare.bucket(index).raw();
                findings.push(finding(at, "an empty bucket of the spare table", "one that is not"));
            }
        }
        let keys = met.len() as u64;
        self.verify_once(guard, &mut met, &mut findings);
        if findings.is_empty() && self.count_keys() != keys {
            let at = self.stripe_lines.offset().raw();
            findings.push(finding(at, format!("a count of {keys} keys"), format!("{}", self.count_keys())));
        }
        if let Some(damage) = crate::PointIndex::damage(self) {
            findings.push(finding(damage.offset, "an undamaged index", damage.what));
        }
        findings
    }

    /// Checks a bucket, and collects its entries.
    fn verify_bucket(
        &self,
        guard: &Guard<'_, M>,
        directory: &Directory,
        (place, index, is_done): (Place, u64, bool),
        met: &mut Vec<SeenEntry>,
        findings: &mut Vec<Finding>,
    ) {
        let (medium, bucket) = (self.pool.medium(), self.bucket(place, index));
        let (at, now) = (place.bucket(index).raw(), meta(medium, bucket));
        if !K::is_sealed(now.0) {
            findings.push(finding(at, "a meta word that fits its check", format!("{:#x}", now.0)));
        }
        for slot in 0..K::SLOTS {
            let Some(entry) = K::read(guard, bucket, slot) else { continue };
            let is_locked = match now.slot_lock::<K>() {
                SlotLock::None => false,
                SlotLock::Slot(locked) => locked == slot,
                SlotLock::Moving => self.leaves(directory, place, entry),
            };
            met.push(SeenEntry { entry, at, is_locked });
            if is_done && self.leaves(directory, place, entry) {
                findings.push(finding(at, "no key that has moved", format!("{:#x}", entry.word)));
            }
            let Some(hash) = K::hash_of(guard, entry, self.seed) else {
                findings.push(finding(at, "a sound record", format!("none at {:#x}", entry.word)));
                continue;
            };
            let tag = tag_of(medium, bucket, slot);
            if hash as u8 != tag {
                let expected = format!("the tag {:#x}, from its key's hash", hash as u8);
                findings.push(finding(at, expected, format!("{tag:#x}")));
            }
            if !self.is_in_place(directory, place, index, entry, hash) {
                let found = format!("one of another: {:#x}", entry.word);
                findings.push(finding(at, "a key of this bucket", found));
            }
        }
    }

    /// Whether searches for a key with this hash visit the bucket, as its first or second as the
    /// entry says.
    fn is_in_place(&self, directory: &Directory, place: Place, index: u64, entry: Entry, hash: u64) -> bool {
        let cell = super::shape::cell_of(hash);
        let is_table = directory.cells[cell] == place
            || (directory.to == Some(place) && directory.moving >> cell & 1 == 1);
        let home = place.home(hash);
        let expected =
            if K::is_second(entry, place, index, self.seed) { place.second(home, hash as u8) } else { home };
        let first = self.bucket(place, home);
        let is_said = index == home || has_overflowed::<M, K>(self.pool.medium(), first, hash as u8);
        is_table && index == expected && is_said
    }

    /// Looks for entries with the same key, none of which is moving.
    fn verify_once(&self, guard: &Guard<'_, M>, met: &mut [SeenEntry], findings: &mut Vec<Finding>) {
        sort::<K>(met);
        for alike in met.chunk_by(|one, other| K::sort_key(one.entry) == K::sort_key(other.entry)) {
            for (nth, one) in alike.iter().enumerate() {
                let is_same = |other: &SeenEntry| K::same_key(guard, other.entry, one.entry);
                let same: Vec<&SeenEntry> = alike[..nth].iter().filter(|other| is_same(other)).collect();
                let is_on_its_way = same.len() == 1 && (same[0].is_locked != one.is_locked);
                if !same.is_empty() && !is_on_its_way {
                    let found = format!("a second entry for the key of {:#x}", one.entry.word);
                    findings.push(finding(one.at, "each key once", found));
                }
            }
        }
    }
}

/// Not in the method, which would compile the sort for each medium.
fn sort<K: BucketShape>(met: &mut [SeenEntry]) {
    met.sort_by_key(|met| K::sort_key(met.entry));
}

fn finding(offset: u64, expected: impl Into<String>, found: impl Into<String>) -> Finding {
    Finding::new(offset, "hash table", expected, found)
}

#[cfg(test)]
mod tests {
    use super::super::super::test_pools::pool;
    use super::super::bucket::store_overflow;
    use super::super::write::Slot;
    use super::*;
    use crate::{KeyKind, PointIndex, Stored, U64};
    use terrace_medium::Dram;

    type Map = Rewo<Dram, U64>;

    /// Findings about a key that is put into its home in this table, wherever else it is.
    fn findings_of(map: &Map, place: Place, key: u64) -> Vec<String> {
        let (guard, medium, hash) = (map.pool().pin(), map.pool().medium(), U64::hash(&key, map.seed));
        let (index, free) = (place.home(hash), |bucket| meta(medium, bucket).free::<U64>().trailing_zeros());
        let slot = free(map.bucket(place, index)) as usize;
        map.install(&guard, Slot { place, index, slot }, Entry { tag: hash as u8, key, word: 1 });
        let findings = map.verify(&guard);
        map.clear(place, index, 1 << slot);
        findings.into_iter().map(|finding| finding.expected).collect()
    }

    #[test]
    fn key_in_a_table_of_other_cells_is_reported() {
        let pool = pool::<Dram>(1 << 20);
        let map = Map::with_shape(&pool, "map", 4, 5).unwrap();
        let (guard, mut keys) = (pool.pin(), 0..);
        while !map.view().is_moving() {
            map.insert(&guard, &keys.next().unwrap(), 1).unwrap();
        }
        let directory = map.view().directory();
        let (from, to) = (directory.cells[0], directory.to.unwrap());
        let key_of = |cells: std::ops::Range<u64>| {
            let has_room = |hash| meta(pool.medium(), map.bucket(from, from.home(hash))).free::<U64>() != 0;
            let hash = |key| U64::hash(&key, map.seed);
            keys.clone()
                .take(100_000)
                .find(|&key| cells.contains(&(hash(key) >> 60)) && has_room(hash(key)))
                .unwrap()
        };
        let [low, high] = [key_of(0..8), key_of(8..16)];
        // The upper half of the cells moves to the new table; the lower half stays.
        let none: [String; 0] = [];
        assert_eq!(
            (findings_of(&map, from, low), findings_of(&map, to, high)),
            (none.to_vec(), none.to_vec())
        );
        assert_eq!(findings_of(&map, to, low), ["a key of this bucket"]);
        // As if some buckets had been emptied.
        map.view().set_count(map.view().count() + 8);
        let told_of_moved = map.verify(&guard).into_iter().map(|finding| finding.expected);
        assert!(told_of_moved.collect::<Vec<_>>().contains(&"no key that has moved".into()));
        map.view().set_count(map.view().count() - 8);
        while map.maintain(&guard) {}
        let directory = map.view().directory();
        assert_eq!([0, 15].map(|cell| directory.cells[cell]), [from, to]);
        for (table, there, elsewhere) in [(from, low, high), (to, high, low)] {
            assert_eq!(findings_of(&map, table, there), none);
            assert_eq!(findings_of(&map, table, elsewhere), ["a key of this bucket"]);
        }
    }

    /// Only one of two entries can be moving.
    #[test]
    fn threefold_key_is_reported_despite_its_lock() {
        let pool = pool::<Dram>(1 << 20);
        let map = Map::with_shape(&pool, "map", 4, 3).unwrap();
        let (guard, place) = (pool.pin(), map.view().directory().cells[0]);
        map.insert(&guard, &7, 7).unwrap();
        let hash = U64::hash(&7, map.seed);
        let (home, entry) = (place.home(hash), Entry { tag: hash as u8, key: 7, word: 7 });
        let (second, first) = (place.second(home, hash as u8), meta(pool.medium(), map.bucket(place, home)));
        map.lock_slots(place, home, SlotLock::Slot(first.valid::<U64>().trailing_zeros() as usize));
        store_overflow::<_, U64>(pool.medium(), map.bucket(place, home), hash as u8);
        map.install(&guard, Slot { place, index: second, slot: 3 }, entry);
        assert_eq!(map.verify(&guard), []);
        map.install(&guard, Slot { place, index: second, slot: 5 }, entry);
        let findings_of: Vec<String> =
            map.verify(&guard).into_iter().map(|finding| finding.expected).collect();
        assert!(
            !findings_of.is_empty() && findings_of.iter().all(|expected| expected == "each key once"),
            "{findings_of:?}"
        );
    }
}
