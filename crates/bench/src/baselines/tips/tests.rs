//! Tests: TIPS behaves as a map through replays, and costs what its head states.

use super::*;
use crate::baselines::tests::space;
use crate::{Random, spread};
use terrace_index::{Decision, Deferred, Fencing, PointIndex, Stored, U64, hash::Clht};
use terrace_medium::Dram;
use terrace_pool::Pool;
use terrace_testkit::TappedPmem;

/// P-CLHT in a pool of its own.
struct OfClht(Clht<Dram, U64>);

impl OfClht {
    fn new() -> Self {
        let pool = Pool::anonymous(32 << 20).unwrap();
        Self(Clht::create(&pool, "index", 10_000).unwrap())
    }
}

impl Converted for OfClht {
    fn get(&self, key: u64) -> Option<u64> {
        self.0.get(&self.0.pool().pin(), &key)
    }

    fn change_all(&self, changes: &[(u64, Option<u64>)]) -> Result<(), SpaceFull> {
        let (guard, mut deferred) = (self.0.pool().pin(), Deferred::default());
        for (key, word) in changes {
            let set = |_| Decision::Set(*word);
            self.0.change(&guard, key, Fencing::Deferred(&mut deferred), set).map_err(|_| SpaceFull)?;
        }
        self.0.persist_deferred(&guard, deferred);
        Ok(())
    }
}

type Counted = Tips<Dram, TappedPmem, OfClht>;

fn tips(cached: u64, logged: u64) -> Counted {
    let sizes = TipsSizes { value_words: 8, cached, logged };
    Tips::create(space(8 << 20), space(8 << 20), OfClht::new(), sizes).unwrap()
}

fn value(number: u64) -> [u64; 8] {
    std::array::from_fn(|nth| spread(number + nth as u64))
}

fn get(tips: &Counted, key: u64) -> Option<Vec<u64>> {
    let mut words = Vec::new();
    tips.get(key, &mut |word| words.push(word)).then_some(words)
}

#[test]
fn tips_is_a_map_through_replays() {
    for (cached, logged) in [(0, 1), (20, 50), (1000, 64)] {
        let (mut tips, mut model, mut random) = (tips(cached, logged), BTreeMap::new(), Random::new(7));
        for nth in 0..20_000 {
            let key = spread(random.below(300));
            match random.below(10) {
                0..5 => {
                    tips.put(key, &value(nth)).unwrap();
                    model.insert(key, nth);
                }
                5 => {
                    tips.remove(key).unwrap();
                    model.remove(&key);
                }
                6 if random.below(30) == 0 => tips.replay().unwrap(),
                _ => {
                    let expected = model.get(&key).map(|nth| value(*nth).to_vec());
                    assert_eq!(get(&tips, key), expected, "{cached}, {logged}, {nth}");
                }
            }
        }
        tips.replay().unwrap();
        assert_eq!(tips.logged(), 0);
        let indexed = |key| tips.index.get(key).is_some();
        assert!((0..300).map(spread).all(|key| indexed(key) == model.contains_key(&key)));
    }
}

#[test]
fn put_costs_three_write_backs_and_two_fences() {
    let mut tips = tips(1000, 1000);
    let space = tips.space.clone();
    for number in 0..500 {
        let put = || tips.put(spread(number), &value(number)).unwrap();
        let counts = space.medium().during(put).0;
        assert_eq!((counts.write_backs, counts.fences), (3, 2), "value, entry and tail");
    }
}

#[test]
fn get_reads_the_value_only_if_its_key_is_cached() {
    let mut tips = tips(1000, 1000);
    (0..500).for_each(|number| tips.put(spread(number), &value(number)).unwrap());
    tips.replay().unwrap();
    let space = tips.space.clone();
    for number in 0..500 {
        let (counts, found) = space.medium().during(|| get(&tips, spread(number)));
        assert_eq!((counts.bytes_read, found.is_some()), (64, true));
    }
}

#[test]
fn replay_fences_by_batch_and_frees_values() {
    let mut tips = tips(1000, 1000);
    let mut used = Vec::new();
    for round in 0..5 {
        (0..1000).for_each(|number| tips.put(spread(number % 400), &value(round + number)).unwrap());
        let space = tips.space.clone();
        let counts = space.medium().during(|| tips.replay().unwrap()).0;
        // Undo entries and their number, the memory log, the commit; the index has its own medium.
        assert_eq!(counts.fences, 4);
        // 400 entries of 16 bytes, the places of 600 values or of all 1000, two words.
        let places: u64 = if round == 0 { 600 } else { 1000 };
        assert_eq!(counts.write_backs, 100 + (8 * places).div_ceil(64) + 2);
        used.push(space.used());
    }
    // Before the first replay, all values of a round; at its end, those of 400 keys stay.
    assert!(used[2..].iter().all(|bytes| *bytes == used[2]), "{used:?}");
}
