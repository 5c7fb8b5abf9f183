//! How the index finds the key of a record.

use crate::record::format::Shape;
use crate::record::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::RecordKeys;
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::Guard;

/// The index's words are offsets of records.
pub struct Key;

impl RecordKeys for Key {
    #[inline(always)]
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<&'g [u8]> {
        let region = guard.pool().region();
        // ORDER: Relaxed: the index has loaded the offset with Acquire.
        let shape = Shape::decode(region.get(Offset::<Word>::new(offset))?.load(region.medium(), Relaxed))?;
        guard.bytes(offset + shape.key_at() as u64, shape.key_len)
    }

    fn is_sound<M: MappedMedium>(guard: &Guard<'_, M>, offset: u64) -> bool {
        Record::at(guard, offset).is_ok_and(|record| record.verify().is_ok())
    }
}

#[cfg(test)]
mod tests {
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
            let at = store.index.get(&store.pool().pin(), &key(n)).unwrap();
            // Behind the header.
            let (word, medium) =
                (store.pool().region().at(Offset::<Word>::new(at + 16)), store.pool().medium());
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
}
