//! The maps whose operations are timed, ours and the peers'. Each is filled when it is needed.

use super::NAME;
use super::keys::Keys;
use super::maps::{self, Congee, Locked, Map, SkipList};
use super::ours::{Art, BwTree, Hot, Masstree, OurMap, Ours, SpTree};
use super::work::{Size, Work, filled, insert, run};
use crate::plan::say;
use std::cell::OnceCell;
use std::marker::PhantomData;
use terrace_bench::{IntegerKeys, StringKeys};

/// The columns of the peers.
pub(super) const CONGEE: &str = "congee";
pub(super) const CRATE: &str = "crate masstree";
pub(super) const SKIP_LIST: &str = "skip list";
pub(super) const BTREE_MAP: &str = "BTreeMap";

/// A full map whose operations are timed.
trait Full {
    fn run(&self, work: Work, size: Size) -> f64;
}

struct FullMap<K, T>(T, PhantomData<fn() -> K>);

impl<K: Keys, T: Map<K>> Full for FullMap<K, T> {
    fn run(&self, work: Work, size: Size) -> f64 {
        run::<K, T>(&self.0, work, size)
    }
}

/// A kind of maps, and a full one.
pub(super) struct Side {
    pub(super) name: &'static str,
    keys: &'static str,
    fill: fn(u64) -> Box<dyn Full>,
    insert: fn(Size) -> f64,
    full: OnceCell<Box<dyn Full>>,
}

impl Side {
    fn of<K: Keys, T: Map<K> + 'static>(name: &'static str) -> Self {
        Self {
            name,
            keys: K::NAME,
            fill: |keys| Box::new(FullMap(filled::<K, T>(keys), PhantomData)),
            insert: insert::<K, T>,
            full: OnceCell::new(),
        }
    }

    fn of_ours<K: Keys, T: Ours>() -> Self {
        Self::of::<K, OurMap<T, K>>(T::NAME)
    }

    /// The map with `keys` keys.
    fn full(&self, keys: u64) -> &dyn Full {
        let fill = || {
            say(&format!("{NAME}: filling {} with {}", self.name, self.keys));
            (self.fill)(keys)
        };
        &**self.full.get_or_init(fill)
    }

    /// Prepares what `run` would otherwise do at first.
    pub(super) fn prepare(&self, work: Work, size: Size) {
        if work != Work::Insert {
            self.full(size.keys);
        }
    }

    /// Does `work`. Returns million operations a second.
    pub(super) fn run(&self, work: Work, size: Size) -> f64 {
        match work {
            Work::Insert => (self.insert)(size),
            _ => self.full(size.keys).run(work, size),
        }
    }
}

/// Our trees, in the order of their names.
pub(super) fn ours<K: Keys>() -> [Side; 5] {
    [
        Side::of_ours::<K, Art>(),
        Side::of_ours::<K, Hot>(),
        Side::of_ours::<K, Masstree>(),
        Side::of_ours::<K, BwTree>(),
        Side::of_ours::<K, SpTree>(),
    ]
}

pub(super) fn peers_of_integers() -> [Side; 4] {
    [
        Side::of::<IntegerKeys, Congee>(CONGEE),
        Side::of::<IntegerKeys, maps::Masstree>(CRATE),
        Side::of::<IntegerKeys, SkipList<IntegerKeys>>(SKIP_LIST),
        Side::of::<IntegerKeys, Locked<IntegerKeys>>(BTREE_MAP),
    ]
}

pub(super) fn peers_of_strings() -> [Side; 3] {
    [
        Side::of::<StringKeys, maps::Masstree>(CRATE),
        Side::of::<StringKeys, SkipList<StringKeys>>(SKIP_LIST),
        Side::of::<StringKeys, Locked<StringKeys>>(BTREE_MAP),
    ]
}
