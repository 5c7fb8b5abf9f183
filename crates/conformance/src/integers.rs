//! Every integer is a key and a word: 0, all ones, and any value that an index might use as a
//! marker.

use super::erased::{AnyIndex, Pinned};
use super::place::{End, PoolFile};
use super::subject::NAME;
use std::collections::BTreeMap;
use std::sync::Arc;
use terrace_index::{Deferred, Inserted, Swapped};
use terrace_testkit::TestKey::Integer;

/// The ends of the range, single bits set, single bits clear, and their neighbours: these include
/// pointer tags, lengths and flags.
fn extremes() -> Vec<u64> {
    let bits = (0..64).map(|bit| 1u64 << bit);
    let near = bits.flat_map(|bit| [bit, !bit, bit - 1, !(bit - 1)]);
    let mut all: Vec<u64> = near.chain([0, u64::MAX]).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An index and its expected content. Words are arbitrary, not derived from keys.
struct Pair {
    index: Arc<dyn AnyIndex>,
    model: BTreeMap<u64, u64>,
}

impl Pair {
    fn pin(&self) -> Box<dyn Pinned + '_> {
        self.index.pin()
    }

    fn insert(&mut self, key: u64, word: u64) {
        let expected = match self.model.get(&key) {
            None => Inserted::New,
            Some(&present) => Inserted::Present(present),
        };
        assert_eq!(self.pin().insert(&Integer(key), word).expect("room"), expected, "insert of {key:#x}");
        self.model.entry(key).or_insert(word);
    }

    fn update(&mut self, key: u64, word: u64) {
        let before = self.model.get(&key).copied();
        assert_eq!(self.pin().update(&Integer(key), word), before, "update of {key:#x}");
        self.model.entry(key).and_modify(|old| *old = word);
    }

    fn upsert(&mut self, key: u64, word: u64) {
        let before = self.model.insert(key, word);
        assert_eq!(self.pin().upsert(&Integer(key), word).expect("room"), before, "upsert of {key:#x}");
    }

    fn remove(&mut self, key: u64) {
        let before = self.model.remove(&key);
        assert_eq!(self.pin().remove(&Integer(key)), before, "removal of {key:#x}");
    }

    /// Fails for every state that the key is not in, then succeeds; fenced at once or deferred.
    fn swap(&mut self, key: u64, new: Option<u64>, defer: bool) {
        let state = self.model.get(&key).copied();
        let pin = self.pin();
        let swap = |expected, new| {
            if !defer {
                return pin.compare_and_swap(&Integer(key), expected, new).expect("room");
            }
            let mut deferred = Deferred::default();
            let swapped = pin.compare_and_swap_deferred(&Integer(key), expected, new, &mut deferred);
            pin.persist_deferred(deferred);
            swapped.expect("room")
        };
        for wrong in [None, Some(0), Some(1), Some(u64::MAX)].into_iter().filter(|wrong| *wrong != state) {
            assert_eq!(swap(wrong, new), Swapped::Found(state), "{key:#x} was expected to be {wrong:x?}");
        }
        assert_eq!(swap(state, new), Swapped::Done, "{key:#x} from {state:x?} to {new:x?}");
        drop(pin);
        match new {
            Some(word) => _ = self.model.insert(key, word),
            None => _ = self.model.remove(&key),
        }
    }

    fn assert_holds(&self) {
        let pin = self.pin();
        for key in extremes() {
            let word = self.model.get(&key).copied();
            assert_eq!(pin.get(&Integer(key)), word, "get of {key:#x}");
            assert_eq!(pin.get_sound(&Integer(key)), Ok(word), "get of {key:#x}");
        }
        let mut many = Vec::new();
        let keys: Vec<_> = extremes().into_iter().map(Integer).collect();
        pin.get_many(&keys, &mut |_, word| many.push(word));
        assert!(many.into_iter().eq(extremes().iter().map(|key| self.model.get(key).copied())), "get_many");
        let mut scanned = Vec::new();
        pin.for_each(&mut |word| scanned.push(word));
        scanned.sort_unstable();
        let mut words: Vec<u64> = self.model.values().copied().collect();
        words.sort_unstable();
        assert_eq!(scanned, words, "a scan");
        assert_eq!(self.index.len(), self.model.len() as u64, "its length");
        assert_eq!(pin.verify(), [], "findings of verify");
        assert_eq!(self.index.damage(), None, "damage met by operations");
    }

    /// Every way to set and remove words, with the same word for all keys or a different one for
    /// each.
    fn change_all(&mut self, word: impl Fn(u64) -> u64) {
        let keys = extremes();
        keys.iter().for_each(|&key| self.update(key, word(key)));
        keys.iter().for_each(|&key| self.insert(key, word(key)));
        keys.iter().for_each(|&key| self.insert(key, !word(key)));
        self.assert_holds();
        keys.iter().for_each(|&key| self.update(key, !word(key)));
        keys.iter().for_each(|&key| self.upsert(key, word(key)));
        self.assert_holds();
        for (nth, &key) in keys.iter().enumerate() {
            self.swap(key, Some(!word(key)), nth % 2 == 0);
            self.swap(key, None, nth % 3 == 0);
            self.swap(key, Some(word(key)), nth % 2 == 1);
        }
        self.assert_holds();
    }

    fn remove_all(&mut self) {
        extremes().into_iter().for_each(|key| self.remove(key));
        extremes().into_iter().for_each(|key| self.remove(key));
        self.assert_holds();
    }
}

/// Every extreme key with extreme words, through every operation, and after a clean close or a
/// kill.
pub(super) fn are_all_keys_and_words(make: &dyn Fn(&PoolFile) -> Arc<dyn AnyIndex>) {
    for (nth, word) in [0, u64::MAX, 1, 1 << 63].into_iter().enumerate() {
        let place = PoolFile::new();
        let mut pair = Pair { index: make(&place), model: BTreeMap::new() };
        pair.change_all(|_| word);
        pair.remove_all();
        pair.change_all(|key| key);
        let mut pair = reopened(&place, pair, if nth % 2 == 0 { End::Closed } else { End::Killed });
        pair.assert_holds();
        pair.change_all(|key| key.rotate_left(8) ^ word);
        pair.remove_all();
    }
}

fn reopened(place: &PoolFile, pair: Pair, end: End) -> Pair {
    let Pair { index, model } = pair;
    let (of, pool) = (index.index_type(), index.pool());
    drop(index);
    pool.end(end);
    let pool = of.open_pool(place);
    let index = of.recover(&*pool, NAME).expect("a sound index").expect("an index of that name");
    Pair { index, model }
}
