//! Records before anyone sees them.

use super::record::{HEADER, Outline, Role, Shape, checksum, seal, value_checksum};
use super::store::Direct;
use super::view::{Facts, Record};
use crate::WriteError;
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Fresh, Guard, PoolFull};

/// Where a new record's value comes from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The extent of the record that the new one follows, of this length.
    Extent(Outline, usize),
}

impl<'a> Source<'a> {
    /// The value of `record`; not copied if it lies in an extent.
    pub(super) fn of(record: &Record<'a>) -> Self {
        match record.body.outline {
            Some(outline) => Self::Extent(outline, record.shape.value_len),
            None => Self::Bytes(record.body.inline),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Extent(_, len) => *len,
        }
    }
}

/// What a record is made of.
#[derive(Clone, Copy)]
pub(super) struct Draft<'a> {
    pub(super) key: &'a [u8],
    pub(super) value: Source<'a>,
    pub(super) expires_at: Option<u64>,
    pub(super) role: Role,
    /// The batch word, if the role has one.
    pub(super) batch: u64,
}

impl<'a> Draft<'a> {
    /// A record that no batch writes.
    pub(super) fn single(key: &'a [u8], value: Source<'a>, expires_at: Option<u64>) -> Self {
        Self { key, value, expires_at, role: Role::Single, batch: 0 }
    }
}

/// A record that is written and written back, but not fenced. Dropping it frees it.
pub(super) struct Staged<'g, M: MappedMedium> {
    head: Fresh<'g, M>,
    extent: Option<Fresh<'g, M>>,
    pub(super) facts: Facts,
    shape: Shape,
}

/// A staged record of a batch: what the batch has to know of it without reading it again.
#[derive(Clone, Copy)]
pub(super) struct New {
    pub(super) offset: u64,
    /// The shape's word.
    shape: u64,
    /// 0 if it has none.
    extent: u64,
    /// Whether its extent was staged with it. If not, it shares the extent of its predecessor.
    owns_extent: bool,
}

impl New {
    pub(super) fn shape(&self) -> Shape {
        Shape::decode(self.shape).expect("the shape of a staged record")
    }

    pub(super) fn facts(&self) -> Facts {
        Facts::new(self.shape(), (self.extent != 0).then_some(self.extent))
    }

    /// The extent that it takes over from its predecessor, if it does.
    pub(super) fn shared_extent(&self) -> Option<u64> {
        (self.extent != 0 && !self.owns_extent).then_some(self.extent)
    }

    /// Its blocks, but not an extent that it shares.
    pub(super) fn blocks(&self) -> impl Iterator<Item = Block> {
        let shape = self.shape();
        let value = self.owns_extent.then_some((self.extent, shape.value_len));
        [(self.offset, shape.size())].into_iter().chain(value)
    }
}

impl<M: MappedMedium> Staged<'_, M> {
    /// As [`Staged::into_offset`], for a batch.
    pub(super) fn into_new(self) -> New {
        let (shape, owns_extent) = (self.shape.encode(), self.extent.is_some());
        let extent = self.facts.extent.unwrap_or(0);
        New { offset: self.into_offset(), shape, extent, owns_extent }
    }

    /// After a fence: the record's offset, to be linked. Whoever does not link it frees it.
    pub(super) fn into_offset(self) -> u64 {
        // PERSIST: written back in `stage`; the caller fences between staging and linking.
        if let Some(extent) = self.extent {
            extent.fenced_later().into_offset();
        }
        self.head.fenced_later().into_offset()
    }
}

impl<M: MappedMedium> Direct<M> {
    /// Writes a record into new memory and starts writing it back.
    pub(super) fn stage<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        draft: &Draft<'_>,
    ) -> Result<Staged<'g, M>, PoolFull> {
        self.stage_as(guard, draft, || self.root.stamp(guard))
    }

    /// Writes a record that is sound, and has this value, once more: the same version of its key,
    /// with its value elsewhere.
    pub(super) fn stage_moved<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'_>,
        value: &[u8],
    ) -> Result<Staged<'g, M>, PoolFull> {
        let (key, expires_at, role) = (record.body.key, record.body.expires_at, record.shape.role);
        // Its batch, if it has one, is settled.
        let draft = Draft { key, value: Source::Bytes(value), expires_at, role, batch: 0 };
        self.stage_as(guard, &draft, || record.stamp())
    }

    #[inline(always)]
    fn stage_as<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        draft: &Draft<'_>,
        stamp: impl FnOnce() -> u32,
    ) -> Result<Staged<'g, M>, PoolFull> {
        let shape = Shape {
            key_len: draft.key.len(),
            value_len: draft.value.len(),
            expires: draft.expires_at.is_some(),
            role: draft.role,
        };
        assert!(shape.is_possible(), "a record of {shape:?} was to be written");
        let extent = self.stage_extent(guard, shape, &draft.value)?;
        let head = guard.alloc(shape.size())?;
        let outline = match (&extent, draft.value) {
            (Some(extent), Source::Bytes(value)) => {
                Some(Outline { extent: extent.offset(), checksum: value_checksum(value) })
            }
            (_, Source::Extent(outline, _)) => Some(outline),
            (None, Source::Bytes(_)) => None,
        };
        draw(guard.pool().medium(), &head, shape, draft, outline);
        let body = guard.bytes(head.offset() + shape.body_at() as u64, shape.size() - shape.body_at());
        let (word, stamp) = (shape.encode(), stamp());
        let sum = checksum(word, stamp, body.expect("a new block lies in the pool"));
        head.write(0, &word.to_le_bytes());
        head.write(8, &seal(sum, stamp).to_le_bytes());
        // PERSIST: started here; the caller's fence comes before the record is linked.
        head.write_back();
        Ok(Staged { head, extent, facts: Facts::new(shape, outline.map(|outline| outline.extent)), shape })
    }

    fn stage_extent<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        shape: Shape,
        value: &Source<'_>,
    ) -> Result<Option<Fresh<'g, M>>, PoolFull> {
        match value {
            Source::Bytes(value) if shape.is_outline() => {
                let extent = guard.alloc(value.len())?;
                extent.write(0, value);
                // PERSIST: as the record's head.
                extent.write_back();
                Ok(Some(extent))
            }
            _ => Ok(None),
        }
    }

    /// Frees a record that nobody has seen, but not an extent that it shares with `old`.
    pub(super) fn discard(&self, guard: &Guard<'_, M>, offset: u64, old: Option<Facts>) {
        if let Ok(record) = Record::at(guard, offset) {
            blocks_of(&record, old).for_each(|(offset, size)| guard.free(offset, size));
        }
    }

    /// Gives a record that was unlinked back once its readers have gone, but not an extent that it shares with `successor`.
    pub(super) fn retire(&self, guard: &Guard<'_, M>, record: &Record<'_>, successor: Option<Facts>) {
        blocks_of(record, successor).for_each(|(offset, size)| guard.retire(offset, size));
    }

    /// Checks the limits of a key and a value, and whether the store is written at all. Each write
    /// checks here before it stages a record.
    pub(super) fn may_write(&self, key: &[u8], value_len: usize) -> Result<(), WriteError> {
        use super::record::{KEY_MAX, VALUE_MAX};
        if key.len() > KEY_MAX {
            return Err(WriteError::KeyTooLong);
        }
        if value_len > VALUE_MAX {
            return Err(WriteError::ValueTooLong);
        }
        self.is_running()
    }
}

/// A block of the pool: where it lies, and the bytes that were asked for.
pub(super) type Block = (u64, usize);

/// The blocks of a record, but not an extent that it shares with `other`. None of a damaged record that has an extent: what it says about that
/// may be wrong. The collector finds them.
pub(super) fn blocks_of(record: &Record<'_>, other: Option<Facts>) -> impl Iterator<Item = Block> {
    let shared = other.and_then(|other| other.extent);
    let extent = record.body.outline.map(|outline| outline.extent);
    let believed = extent.is_none() || record.verify().is_ok();
    let head = believed.then_some((record.offset, record.shape.size()));
    let own = extent
        .filter(|&extent| believed && shared != Some(extent))
        .map(|extent| (extent, record.shape.value_len));
    head.into_iter().chain(own)
}

/// Writes everything but words 0 and 1.
fn draw<M: MappedMedium>(
    medium: &M,
    head: &Fresh<'_, M>,
    shape: Shape,
    draft: &Draft<'_>,
    outline: Option<Outline>,
) {
    let mut at = HEADER;
    if shape.role != Role::Single {
        head.word(HEADER).store(medium, draft.batch, Relaxed);
        at += 8;
    }
    let words = [draft.expires_at, outline.map(|o| o.extent), outline.map(|o| o.checksum)];
    for word in words.into_iter().flatten() {
        head.write(at, &word.to_le_bytes());
        at += 8;
    }
    head.write(at, draft.key);
    if let (Source::Bytes(value), false) = (draft.value, shape.is_outline()) {
        head.write(at + draft.key.len(), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::direct::small::store;
    use crate::{Change, Durably, Engine, KEY_MAX, Pooled, VALUE_MAX};

    const LONG: [u8; 9000] = [7; 9000];

    #[test]
    fn keys_and_values_have_limits_and_what_is_as_long_as_these_can_be_written() {
        let (store, _) = store();
        let key = vec![7; KEY_MAX + 1];
        assert_eq!(store.may_write(&key[1..], VALUE_MAX), Ok(()));
        assert_eq!(store.may_write(&key, 0), Err(WriteError::KeyTooLong));
        assert_eq!(store.may_write(&[key.clone(), key.clone()].concat(), 0), Err(WriteError::KeyTooLong));
        assert_eq!(store.may_write(b"", VALUE_MAX + 1), Err(WriteError::ValueTooLong));
        assert_eq!(store.may_write(b"", 2 * VALUE_MAX), Err(WriteError::ValueTooLong));
        assert_eq!(store.check_put(&key, b"value"), Err(WriteError::KeyTooLong));
        store.give(&key[1..], b"value", None);
        assert_eq!(store.get(&key[1..]).unwrap().unwrap(), b"value");
    }

    #[test]
    fn a_change_for_which_another_was_faster_leaves_nothing_of_its_first_try() {
        let (store, _) = store();
        store.give(b"key", &LONG, None);
        let mut tries = 0;
        let mut change = |entry: Option<crate::Entry<'_>>| {
            tries += 1;
            if tries == 1 {
                store.give(b"key", b"faster", None);
            }
            Change::Put { value: [entry.unwrap().value, &LONG].concat(), expires_at: None }
        };
        store.modify(b"key", &mut change, Durably::Store).unwrap();
        assert_eq!(tries, 2);
        assert_eq!(*store.get(b"key").unwrap().unwrap(), *[&b"faster"[..], &LONG].concat());
        let memory = store.memory();
        assert_eq!((memory.garbage, memory.used), (0, memory.reachable));

        // Nor does it take away the value that it would have taken over.
        let mut tries = 0;
        let mut expire = |_: Option<crate::Entry<'_>>| {
            tries += 1;
            if tries == 1 {
                store.modify(b"key", &mut |_| Change::Expire(Some(7000)), Durably::Store).unwrap();
            }
            Change::Expire(Some(8000))
        };
        store.modify(b"key", &mut expire, Durably::Store).unwrap();
        let found = store.get(b"key").unwrap().unwrap();
        assert_eq!((tries, found.expires_at(), found.len()), (2, Some(8000), 9006));
        drop(found);
        let memory = store.memory();
        assert_eq!((memory.garbage, memory.used), (0, memory.reachable));
    }

    #[test]
    fn a_damaged_record_takes_no_memory_along_that_it_names_when_it_goes() {
        let (store, _) = store();
        [&b"damaged"[..], b"sound"].iter().for_each(|key| store.give(key, &LONG, None));
        let guard = store.pool().pin();
        let extent = Record::at(&guard, store.place(b"sound")).unwrap().body.outline.unwrap().extent;
        let (word, medium) = (store.raw(store.place(b"damaged") + 16), store.pool().medium());
        word.store(medium, extent, Relaxed);
        drop(guard);
        store.give(b"damaged", b"whole again", None);
        while store.pool().reclaim_blocking() {}
        (0..50u8).for_each(|n| store.give(&[n], &[n; 9000], None));
        assert_eq!(*store.get(b"sound").unwrap().unwrap(), LONG);
        // The collector finds what it has left.
        let memory = store.memory();
        assert!(memory.garbage > 9000 && memory.overlapping == 0, "{memory:?}");
        assert_eq!(store.memory().used, store.memory().reachable);
    }
}
