//! The cost of calls, as measured by [`Tapped`].

use super::erased::{AnyIndex, Pinned};
use super::subject::Index;
use terrace_index::{IndexStats, Inserted, PointIndex, U64};
use terrace_testkit::TestKey::Integer;
use terrace_testkit::{Counts, KeySort, Tapped, TestKeys};

/// The lowest and the highest cost of one change of each kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// An insert of an absent key.
    pub insert: (Counts, Counts),
    /// An update of a present one.
    pub update: (Counts, Counts),
    /// A removal of a present one.
    pub remove: (Counts, Counts),
}

/// Inserts, updates and removes `keys` keys one by one, and returns the lowest and highest
/// write-backs and fences of each kind. Changes that made the index allocate (a resize, an overflow
/// bucket) are left out; [`costs_of_inserts`] amortises them.
pub fn costs_of_single_changes<const V: bool, I>(index: &I, keys: u64) -> Costs
where
    I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
{
    Counted::of(index).single_changes(keys)
}

/// Inserts a key, or removes it if the flag is false, one by one. Returns the highest number of
/// lines that one of these changes read or wrote.
pub fn most_lines<const V: bool, I>(index: &I, mut changes: impl Iterator<Item = (u64, bool)>) -> u64
where
    I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
{
    Counted::of(index).most_lines(&mut changes)
}

/// Inserts `keys` keys into `index` and returns the total cost, growth included.
pub fn costs_of_inserts<const V: bool, I>(index: &I, keys: u64) -> Counts
where
    I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
{
    Counted::of(index).inserts(keys)
}

/// Inserts `keys` keys, and checks that gets of these and of as many absent ones only read. Panics
/// if not.
pub fn gets_only_read<const V: bool, I>(index: &I, keys: u64)
where
    I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
{
    Counted::of(index).gets_only_read(keys);
}

/// Checks that inserts and removals of `keys` keys write nothing back and never fence, on a medium
/// that needs neither. Panics if not.
pub fn never_flushes<const V: bool, I>(index: &I, keys: u64)
where
    I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
{
    const { assert!(!V, "a medium that needs no write-backs") };
    Counted::of(index).never_flushes(keys);
}

/// An index of integers, and the medium that counts its accesses.
struct Counted<'i> {
    index: &'i dyn AnyIndex,
    medium: &'i dyn Counter,
}

trait Counter {
    fn count(&self, work: &mut dyn FnMut()) -> Counts;
}

impl<const V: bool> Counter for Tapped<V> {
    fn count(&self, work: &mut dyn FnMut()) -> Counts {
        self.during(work).0
    }
}

impl<'i> Counted<'i> {
    fn of<const V: bool, I>(index: &'i I) -> Self
    where
        I: Index + PointIndex<Medium = Tapped<V>, Kind = U64>,
    {
        Self { index, medium: PointIndex::pool(index).medium() }
    }

    /// The cost of a call for each of these keys together.
    fn cost(&self, keys: std::ops::Range<u64>, call: &dyn Fn(u64)) -> Counts {
        self.medium.count(&mut || keys.clone().for_each(call))
    }

    fn single_changes(&self, keys: u64) -> Costs {
        let pin = self.index.pin();
        let range = |change: &dyn Fn(u64)| {
            let costs = (0..keys).filter_map(|key| self.single_change(&*pin, key, change));
            let ranges = costs.map(|counts| (counts, counts));
            ranges.reduce(wider).expect("changes outside a resize")
        };
        let insert = |key| assert_eq!(pin.insert(&Integer(key), key).expect("room"), Inserted::New);
        Costs {
            insert: range(&insert),
            update: range(&|key| assert_eq!(pin.update(&Integer(key), !key), Some(key))),
            remove: range(&|key| assert_eq!(pin.remove(&Integer(key)), Some(!key))),
        }
    }

    /// The write-backs and fences of a change of `key`, unless it made the index allocate.
    fn single_change(&self, pin: &dyn Pinned, key: u64, change: &dyn Fn(u64)) -> Option<Counts> {
        let size = || {
            let stats = pin.stats();
            (stats.bytes, stats.resizing, stats.resizes)
        };
        let before = size();
        let Counts { write_backs, fences, .. } = self.cost(key..key + 1, change);
        let is_single = before == size() && !before.1;
        is_single.then_some(Counts { write_backs, fences, ..Counts::default() })
    }

    fn most_lines(&self, changes: &mut dyn Iterator<Item = (u64, bool)>) -> u64 {
        let pin = self.index.pin();
        let costs = changes.map(|(key, inserts)| {
            let counts = self.medium.count(&mut || match inserts {
                true => drop(pin.insert(&Integer(key), key).expect("room")),
                false => drop(pin.remove(&Integer(key)).expect("a key that is there")),
            });
            counts.lines_read + counts.lines_written
        });
        costs.max().expect("changes")
    }

    fn inserts(&self, keys: u64) -> Counts {
        self.cost(0..keys, &|key| {
            let inserted = self.index.pin().insert(&Integer(key), key).expect("room");
            assert_eq!(inserted, Inserted::New);
        })
    }

    fn gets_only_read(&self, keys: u64) {
        self.inserts(keys);
        let pin = self.index.pin();
        let counts = self.cost(0..2 * keys, &|key| {
            assert_eq!(pin.get(&Integer(key)), (key < keys).then_some(key));
        });
        let writes = Counts { loads: 0, bytes_read: 0, lines_read: 0, blocks_read: 0, ..counts };
        assert_eq!(writes, Counts::default());
    }

    fn never_flushes(&self, keys: u64) {
        let inserts = self.inserts(keys);
        let removals = self.cost(0..keys, &|key| {
            assert_eq!(self.index.pin().remove(&Integer(key)), Some(key));
        });
        for counts in [inserts, removals] {
            assert_eq!((counts.write_backs, counts.fences, counts.blocks_written), (0, 0, 0));
        }
    }
}

/// The lower of the low costs, and the higher of the high ones.
fn wider(one: (Counts, Counts), other: (Counts, Counts)) -> (Counts, Counts) {
    let cost = |counts: &Counts| counts.write_backs + counts.fences;
    (std::cmp::min_by_key(one.0, other.0, cost), std::cmp::max_by_key(one.1, other.1, cost))
}

/// Inserts keys in no order until `is_enough` of the load factors and the number of buckets.
/// Returns the load factors, each of the moment before the number of buckets grew.
pub fn loads_before_growth<I: Index>(index: &I, is_enough: impl Fn(&[f64], u64) -> bool) -> Vec<f64>
where
    I::Kind: TestKeys,
{
    loads(index, &is_enough)
}

fn loads(index: &dyn AnyIndex, is_enough: &dyn Fn(&[f64], u64) -> bool) -> Vec<f64> {
    let (pin, sort) = (index.pin(), index.index_type().keys());
    let (mut loads, mut before) = (Vec::new(), IndexStats::default());
    for number in 0.. {
        let key = sort.key(if sort == KeySort::Integers { spread(number) } else { number });
        let word = pin.word(&key, number, 0).expect("room for a word");
        assert_eq!(pin.insert(&key, word).expect("room for a key"), Inserted::New);
        let now = pin.stats();
        if now.buckets > before.buckets && before.buckets > 0 {
            loads.push(before.load_factor());
        }
        if is_enough(&loads, now.buckets) {
            break;
        }
        before = now;
    }
    loads
}

/// A different number for each `n`, in no order: a multiplicative hash spreads ordered keys better
/// than by chance.
pub fn spread(n: u64) -> u64 {
    let z = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
