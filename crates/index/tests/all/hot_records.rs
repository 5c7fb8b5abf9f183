//! Tests: a damaged record of P-HOT affects its own key only.

use crate::trees::{self, NAME, word};
use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::ordered::Hot;
use terrace_index::{Bytes, ChangeError, Direction, Inserted, Place, PointIndex, RangeIndex, RecordKeys};
use terrace_medium::{Dram, MappedMedium};
use terrace_pool::Guard;

/// Records of a length, a check and the key. Their keys are read without the check.
struct Checked;

const KEY_AT: u64 = 16;

impl RecordKeys for Checked {
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let length = guard.bytes(offset, 8)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))?;
        guard.bytes(offset + KEY_AT, length.min(1 << 16) as usize)
    }
    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> bool {
        let check = guard.bytes(offset + 8, 8).and_then(|bytes| bytes.first_chunk());
        let key = Self::key(guard, offset);
        key.is_some_and(|key| check == Some(&Self::hash(key, 0).to_le_bytes()))
    }
}

type Index = Hot<Dram, Bytes<Checked>>;
type Model = BTreeMap<Vec<u8>, u64>;

fn record(index: &Index, key: &[u8]) -> u64 {
    let guard = index.pool().pin();
    let fresh = guard.alloc(KEY_AT as usize + key.len()).unwrap();
    fresh.write(0, &(key.len() as u64).to_le_bytes());
    fresh.write(8, &Checked::hash(key, 0).to_le_bytes());
    fresh.write(KEY_AT as usize, key);
    fresh.persist().into_offset()
}

/// Adds a key. Returns its record.
fn add(index: &Index, key: &[u8]) -> Result<u64, Refused> {
    let record = record(index, key);
    match index.insert(&index.pool().pin(), key, record) {
        Ok(Inserted::New) => Ok(record),
        Ok(Inserted::Present(there)) => Err(Refused::Present(there)),
        Err(error) => Err(Refused::Error(error)),
    }
}

/// Why a key was not added.
#[derive(Debug)]
enum Refused {
    /// This record has the key.
    Present(u64),
    Error(ChangeError),
}

const KEYS: usize = 200;

fn key(n: usize) -> Vec<u8> {
    format!("user:{n:05}").into_bytes()
}

/// Keys that are not there, none of which lies beside one key only.
const FAR: [&[u8]; 6] = [b"", b"\0databases", b"users", b"user:", b"zone", b"\xfe\xa7<"];

/// A tree of 200 keys in which one bit of some records' keys has changed.
struct Damaged {
    index: Index,
    /// The other keys.
    others: Model,
    damaged: Vec<u64>,
    what: String,
}

impl Damaged {
    fn new((entries, levels): (usize, usize), victims: &[usize], bit: usize) -> Self {
        let pool = trees::pool(2 << 20);
        let index = Index::with_growth(&pool, NAME, entries, levels).unwrap();
        // Not in their order.
        let keys = (0..KEYS).map(|n| key(n * 77 % KEYS));
        let mut others: Model = keys.map(|key| (key.clone(), add(&index, &key).unwrap())).collect();
        let damaged: Vec<u64> = victims.iter().map(|n| others.remove(&key(*n)).unwrap()).collect();
        for record in &damaged {
            let place = word(&pool, record + KEY_AT + (bit as u64 / 64) * 8);
            place.store(pool.medium(), place.load(pool.medium(), Relaxed) ^ 1 << (bit % 64), Relaxed);
        }
        let what = format!("bit {bit} of {victims:?}, nodes of {entries}");
        Self { index, others, damaged, what }
    }

    /// The words that a range visits, in the order of keys, without those of damaged records.
    fn visited(&self, ends: (Bound<&[u8]>, Bound<&[u8]>), direction: Direction) -> Vec<u64> {
        let (mut found, mut times) = (Vec::new(), 0);
        self.index.range(&self.index.pool().pin(), ends.0, ends.1, direction, 9, |(), word| {
            match self.damaged.contains(&word) {
                true => times += 1,
                false => found.push(word),
            }
            ControlFlow::Continue(())
        });
        assert!(times <= self.damaged.len(), "a damaged record twice: {}", self.what);
        if direction == Direction::Backward {
            found.reverse();
        }
        found
    }

    fn check_range(&self, ends: (Bound<&[u8]>, Bound<&[u8]>)) {
        let expected: Vec<u64> = self.others.range::<[u8], _>(ends).map(|(_, word)| *word).collect();
        for direction in [Direction::Forward, Direction::Backward] {
            let found = self.visited(ends, direction);
            assert_eq!(found, expected, "{direction:?}, {ends:?}, {}", self.what);
        }
    }

    fn check_searches(&self) {
        let guard = self.index.pool().pin();
        for (key, word) in &self.others {
            assert_eq!(self.index.get_sound(&guard, key), Ok(Some(*word)), "{key:?}, {}", self.what);
            let absent = [key, &b"!"[..]].concat();
            assert_eq!(self.index.get_sound(&guard, &absent), Ok(None), "{absent:?}, {}", self.what);
        }
        for key in FAR {
            assert_eq!(self.index.get_sound(&guard, key), Ok(None), "{key:?}, {}", self.what);
        }
    }

    /// Ranges between keys that are there or not.
    fn check_ranges(&self, victim: usize) {
        self.check_range((Bound::Unbounded, Bound::Unbounded));
        let near = victim.saturating_sub(2)..(victim + 3).min(KEYS);
        let ends = near.chain((0..KEYS).step_by(67)).map(key);
        let ends: Vec<Vec<u8>> = ends.flat_map(|key| [[&key[..], b"!"].concat(), key]).collect();
        for end in ends.iter().map(|end| &**end).chain(FAR) {
            self.check_range((Bound::Excluded(end), Bound::Unbounded));
            self.check_range((Bound::Included(end), Bound::Unbounded));
            self.check_range((Bound::Unbounded, Bound::Excluded(end)));
        }
    }

    /// Scans of few keys at a time, each from where the last has ended.
    fn check_scan(&self, at_least: usize) {
        let (guard, mut place, mut found) = (self.index.pool().pin(), Place::Start, Vec::new());
        while place != Place::End {
            place = self.index.scan(&guard, &place, at_least, |word| found.push(word));
            assert!(found.len() < 2 * KEYS, "a scan goes on and on: {}", self.what);
        }
        found.retain(|word| !self.damaged.contains(word));
        assert!(found.iter().eq(self.others.values()), "a scan by {at_least}: {}", self.what);
    }

    /// Keys come beside the others and go.
    fn check_inserts(&mut self) {
        let news = self.others.keys().map(|key| [key, &b"!"[..]].concat());
        let news: Vec<Vec<u8>> = news.chain(FAR.map(Vec::from)).collect();
        for new in &news {
            let added = add(&self.index, new);
            let added = added.unwrap_or_else(|error| panic!("{new:?}: {error:?}, {}", self.what));
            self.others.insert(new.clone(), added);
        }
        self.check_range((Bound::Unbounded, Bound::Unbounded));
        news.iter().for_each(|new| self.remove(new));
    }

    fn remove(&mut self, key: &[u8]) {
        let removed = self.index.remove(&self.index.pool().pin(), key);
        assert_eq!(removed, self.others.remove(key), "{key:?}, {}", self.what);
    }

    /// Every other key goes and comes back: but one that nothing sound tells from a damaged one.
    fn check_reinserts(&mut self) {
        let gone: Vec<Vec<u8>> = self.others.keys().step_by(2).cloned().collect();
        gone.iter().for_each(|key| self.remove(key));
        self.check_range((Bound::Unbounded, Bound::Unbounded));
        let mut refused = 0;
        for key in gone {
            match add(&self.index, &key) {
                Ok(added) => _ = self.others.insert(key, added),
                Err(Refused::Error(ChangeError::Damaged(_))) => refused += 1,
                // The damaged record says that it has this key: its reader finds that out.
                Err(Refused::Present(there)) if self.damaged.contains(&there) => refused += 1,
                Err(error) => panic!("{key:?}: {error:?}, {}", self.what),
            }
        }
        assert!(refused <= self.damaged.len(), "{refused} keys refused, {}", self.what);
        self.check_range((Bound::Unbounded, Bound::Unbounded));
    }

    fn check_removals(&mut self) {
        let keys: Vec<Vec<u8>> = self.others.keys().cloned().collect();
        for (nth, key) in keys.iter().enumerate() {
            self.remove(key);
            if nth % 20 == 0 {
                self.check_range((Bound::Unbounded, Bound::Unbounded));
            }
        }
        assert_eq!(self.index.len(), self.damaged.len() as u64, "{}", self.what);
    }
}

/// All damage that the tests try: one bit of the keys of these records, in trees of such nodes.
fn all_damage() -> impl Iterator<Item = ((usize, usize), &'static [usize], usize)> {
    let victims: [&[usize]; 6] = [&[0], &[57], &[100], &[128], &[199], &[100, 101, 102]];
    let bits = (0..80).flat_map(move |bit| victims.map(move |victims| ((32, 12), victims, bit)));
    let low = (0..80).step_by(3).flat_map(move |bit| victims.map(move |victims| ((3, 2), victims, bit)));
    bits.chain(low)
}

#[test]
fn damaged_key_hides_no_other_from_searches() {
    all_damage().for_each(|(growth, victims, bit)| Damaged::new(growth, victims, bit).check_searches());
}

#[test]
fn damaged_key_hides_no_other_from_ranges() {
    for (growth, victims, bit) in all_damage() {
        Damaged::new(growth, victims, bit).check_ranges(victims[0]);
    }
}

#[test]
fn damaged_key_is_no_place_where_a_scan_goes_on() {
    for (growth, victims, bit) in all_damage() {
        let damaged = Damaged::new(growth, victims, bit);
        [1, 2, 101].iter().for_each(|at_least| damaged.check_scan(*at_least));
    }
}

#[test]
fn damaged_key_stops_no_insert_beside_it() {
    for (growth, victims, bit) in all_damage() {
        let mut damaged = Damaged::new(growth, victims, bit);
        damaged.check_inserts();
        damaged.check_reinserts();
    }
}

#[test]
fn damaged_key_stops_no_removal() {
    all_damage().for_each(|(growth, victims, bit)| Damaged::new(growth, victims, bit).check_removals());
}
