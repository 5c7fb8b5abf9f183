//! The cost of changes, as measured by [`Counting`](crate::Counting).

use super::subject::Index;
use crate::{Counting, Counts};
use terrace_index::{Inserted, PointIndex, U64};
use terrace_medium::MappedMedium;

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
pub fn costs_of_single_changes<B: MappedMedium, I>(index: &I, keys: u64) -> Costs
where
    I: Index + PointIndex<Medium = Counting<B>, Kind = U64>,
{
    let medium = PointIndex::pool(index).medium();
    let guard = PointIndex::pool(index).pin();
    let size = || {
        let stats = index.stats(&guard);
        (stats.bytes, stats.resizing, stats.resizes)
    };
    let range = |change: &dyn Fn(u64)| {
        let mut range: Option<(Counts, Counts)> = None;
        for key in 0..keys {
            let before = size();
            let (counts, ()) = medium.during(|| change(key));
            if before == size() && !before.1 {
                let counts =
                    Counts { write_backs: counts.write_backs, fences: counts.fences, ..Counts::default() };
                let cost = |counts: &Counts| counts.write_backs + counts.fences;
                let (low, high) = range.unwrap_or((counts, counts));
                range =
                    Some((std::cmp::min_by_key(low, counts, cost), std::cmp::max_by_key(high, counts, cost)));
            }
        }
        range.expect("changes outside a resize")
    };
    Costs {
        insert: range(&|key| assert_eq!(index.insert(&guard, &key, key).expect("room"), Inserted::New)),
        update: range(&|key| assert_eq!(index.update(&guard, &key, !key), Some(key))),
        remove: range(&|key| assert_eq!(index.remove(&guard, &key), Some(!key))),
    }
}

/// Inserts a key, or removes it if the flag is false, one by one. Returns the highest number of
/// lines that one of these changes read or wrote.
pub fn most_lines<B: MappedMedium, I>(index: &I, changes: impl Iterator<Item = (u64, bool)>) -> u64
where
    I: PointIndex<Medium = Counting<B>, Kind = U64>,
{
    let guard = index.pool().pin();
    let costs = changes.map(|(key, inserts)| {
        let change = || match inserts {
            true => drop(index.insert(&guard, &key, key).expect("room")),
            false => drop(index.remove(&guard, &key).expect("a key that is there")),
        };
        let counts = index.pool().medium().during(change).0;
        counts.lines_read + counts.lines_written
    });
    costs.max().expect("changes")
}

/// Inserts `keys` keys into `index` and returns the total cost, growth included.
pub fn costs_of_inserts<B: MappedMedium, I>(index: &I, keys: u64) -> Counts
where
    I: Index + PointIndex<Medium = Counting<B>, Kind = U64>,
{
    let pool = PointIndex::pool(index);
    let insert = |key: u64| {
        let inserted = index.insert(&pool.pin(), &key, key).expect("room");
        assert_eq!(inserted, Inserted::New);
    };
    pool.medium().during(|| (0..keys).for_each(insert)).0
}
