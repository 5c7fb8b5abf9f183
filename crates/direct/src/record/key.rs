//! How the index finds the key of a record.

use crate::record::format::Shape;
use crate::record::view::Record;
use std::sync::atomic::Ordering::Relaxed;
use terrace_index::{Bytes, RecordKeys};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::Guard;

/// The index's words are offsets of records.
pub struct Key;

/// The kind of keys that the engine's index has.
pub type Kind = Bytes<Key>;

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
#[path = "tests/key.rs"]
mod tests;
