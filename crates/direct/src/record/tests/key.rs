//! Tests of `key`.

use super::*;
use crate::tests::fixtures::settings;
use crate::{Direct, Kind};
use terrace_engine::{Durably, Engine, Put};
use terrace_index::hash::{Clht, Level, Rewo, Turbo};
use terrace_index::ordered::Art;
use terrace_index::{PointIndex, Stored};
use terrace_medium::Dram;
use terrace_pool::PoolOptions;

/// A search that finds nothing checks that no damaged record may be the key's. Sound records of
/// other keys must not be mistaken for such a record.
fn damaged_key_is_an_error<I>()
where
    I: PointIndex<Medium = Dram, Kind = Kind> + Stored<Medium = Dram> + 'static,
{
    let pool = PoolOptions::anonymous().size(16 << 20).hash_seed(5).create().unwrap();
    let store = Direct::open::<I>(pool, settings()).unwrap();
    let key = |n: u32| n.to_le_bytes();
    (0..2000).for_each(|n| {
        store.put(Put { key: &key(n), value: b"value", expires_at: None }, Durably::Store).unwrap()
    });
    assert!((2000..100_000).all(|n| store.get(&key(n)) == Ok(None)), "{}", I::NAME);
    for n in (0..2000).step_by(100) {
        let at = store.index().get(&store.pool().pin(), &key(n)).unwrap();
        // Behind the header.
        let (word, medium) = (store.pool().region().at(Offset::<Word>::new(at + 16)), store.pool().medium());
        word.store(medium, word.load(medium, Relaxed) ^ 1 << 20, Relaxed);
        assert!(store.get(&key(n)).is_err(), "{}: {n}", I::NAME);
        assert!(store.get(&key(n + 1)).is_ok(), "{}: {n}", I::NAME);
    }
}

#[test]
fn damaged_key_is_an_error_in_each_index() {
    damaged_key_is_an_error::<Clht<Dram, Kind>>();
    damaged_key_is_an_error::<Level<Dram, Kind>>();
    damaged_key_is_an_error::<Rewo<Dram, Kind>>();
    damaged_key_is_an_error::<Turbo<Dram, Kind>>();
    damaged_key_is_an_error::<Art<Dram, Kind>>();
}
