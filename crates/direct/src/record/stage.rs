//! New records before they are linked.

use crate::record::format::{ExternalValue, HEADER, Role, Shape, UseIn, checksum, seal, value_checksum};
use crate::record::records::Records;
use crate::record::view::{Record, RecordFacts};
use std::sync::atomic::Ordering::Relaxed;
use terrace_medium::MappedMedium;
use terrace_pool::{Fresh, Guard, PoolFull};

/// Records that are removed under one pin. When the pool is full, there may be no memory to record
/// more of them in limbo, nor the buckets that an index retires when it shrinks.
pub(crate) const REMOVALS: usize = 8;

/// The source of a new record's value.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// These bytes.
    Bytes(&'a [u8]),
    /// The extent of the previous record, of this length.
    Extent(ExternalValue, usize),
}

impl<'a> Source<'a> {
    /// The value of `record`; not copied if it lies in an extent.
    pub(crate) fn of(record: &Record<'a>) -> Self {
        match record.body.external {
            Some(external) => Self::Extent(external, record.shape.value_len),
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

/// The content of a new record.
#[derive(Clone, Copy)]
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) value: Source<'a>,
    pub(crate) expires_at: Option<u64>,
    pub(crate) role: Role,
    /// The batch word, if the role has one.
    pub(crate) batch: u64,
    /// Its use, if the store records uses.
    pub(crate) used: Option<u32>,
}

impl<'a> Draft<'a> {
    /// A record that no batch writes.
    pub(crate) fn single(key: &'a [u8], value: Source<'a>, expires_at: Option<u64>) -> Self {
        Self { key, value, expires_at, role: Role::Single, batch: 0, used: None }
    }

    #[inline(always)]
    fn shape(&self) -> Shape {
        Shape {
            key_len: self.key.len(),
            value_len: self.value.len(),
            expires: self.expires_at.is_some(),
            role: self.role,
            use_in: match self.used {
                Some(_) => Shape::place_of_use(self.role, self.key.len(), self.value.len()),
                None => UseIn::Nothing,
            },
        }
    }
}

/// A record that is written and written back, but not fenced. Dropping it frees it.
pub(crate) struct Staged<'g, M: MappedMedium> {
    head: Fresh<'g, M>,
    extent: Option<Fresh<'g, M>>,
    pub(crate) facts: RecordFacts,
    shape: Shape,
}

/// A staged record of a batch: what the batch must know without reading it again.
#[derive(Clone, Copy)]
pub(crate) struct New {
    pub(crate) offset: u64,
    /// The shape's word.
    shape: u64,
    /// 0 if it has none.
    extent: u64,
    /// Whether its extent was staged with it. If not, it shares the extent of its predecessor.
    owns_extent: bool,
}

impl New {
    pub(crate) fn shape(&self) -> Shape {
        Shape::decode(self.shape).expect("the shape of a staged record")
    }

    pub(crate) fn facts(&self) -> RecordFacts {
        RecordFacts::new(self.shape(), (self.extent != 0).then_some(self.extent))
    }

    /// The extent that it takes over from its predecessor, if any.
    pub(crate) fn shared_extent(&self) -> Option<u64> {
        (self.extent != 0 && !self.owns_extent).then_some(self.extent)
    }

    /// Its blocks, without an extent that it shares.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = Block> {
        let shape = self.shape();
        let value = self.owns_extent.then_some((self.extent, shape.value_len));
        [(self.offset, shape.size())].into_iter().chain(value)
    }
}

impl<M: MappedMedium> Staged<'_, M> {
    /// As [`Staged::into_offset`], for a batch.
    pub(crate) fn into_new(self) -> New {
        let (shape, owns_extent) = (self.shape.encode(), self.extent.is_some());
        let extent = self.facts.extent.unwrap_or(0);
        New { offset: self.into_offset(), shape, extent, owns_extent }
    }

    /// The record's offset, to be linked after a fence. A caller that does not link it frees it.
    pub(crate) fn into_offset(self) -> u64 {
        // PERSIST: written back in `stage`; the caller fences between staging and linking.
        if let Some(extent) = self.extent {
            extent.fenced_later().into_offset();
        }
        self.head.fenced_later().into_offset()
    }
}

impl<M: MappedMedium> Records<M> {
    /// Writes a record into new memory and starts writing it back.
    pub(crate) fn stage<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        draft: &Draft<'_>,
    ) -> Result<Staged<'g, M>, PoolFull> {
        let bytes = (draft.key.len() + draft.value.len() + HEADER) as u64;
        if matches!(draft.role, Role::Single | Role::Put) && !self.limit.may_write(bytes) {
            let (wanted, size) = (bytes, guard.pool().size());
            return Err(PoolFull { wanted, size, longest: None, waiting_bytes: 0, collecting: false });
        }
        self.stage_as(guard, draft, || self.root.stamp(guard))
    }

    /// Writes a copy of a sound record: the same version of its key, with its value, here `value`,
    /// elsewhere.
    pub(crate) fn stage_moved<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        record: &Record<'_>,
        value: &[u8],
    ) -> Result<Staged<'g, M>, PoolFull> {
        let (key, expires_at, role) = (record.body.key, record.body.expires_at, record.shape.role);
        // Its batch, if it has one, is finalized.
        let used = record.used(guard);
        let draft = Draft { key, value: Source::Bytes(value), expires_at, role, batch: 0, used };
        self.stage_as(guard, &draft, || record.stamp())
    }

    #[inline(always)]
    fn stage_as<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        draft: &Draft<'_>,
        stamp: impl FnOnce() -> u32,
    ) -> Result<Staged<'g, M>, PoolFull> {
        let shape = draft.shape();
        assert!(shape.is_possible(), "a record cannot have {shape:?}");
        let extent = self.stage_extent(guard, shape, &draft.value)?;
        let head = guard.alloc(shape.size())?;
        let external = match (&extent, draft.value) {
            (Some(extent), Source::Bytes(value)) => {
                Some(ExternalValue { extent: extent.offset(), checksum: value_checksum(value) })
            }
            (_, Source::Extent(external, _)) => Some(external),
            (None, Source::Bytes(_)) => None,
        };
        write_record(guard.pool().medium(), &head, shape, draft, external);
        write_head(guard, &head, shape, draft.used.unwrap_or(0), stamp());
        Ok(Staged {
            head,
            extent,
            facts: RecordFacts::new(shape, external.map(|external| external.extent)),
            shape,
        })
    }

    fn stage_extent<'g>(
        &self,
        guard: &'g Guard<'_, M>,
        shape: Shape,
        value: &Source<'_>,
    ) -> Result<Option<Fresh<'g, M>>, PoolFull> {
        match value {
            Source::Bytes(value) if shape.has_external_value() => {
                let extent = guard.alloc(value.len())?;
                extent.write(0, value);
                // PERSIST: as the record's head.
                extent.write_back();
                Ok(Some(extent))
            }
            _ => Ok(None),
        }
    }

    /// Frees a record that was never linked, without an extent that it shares with `old`.
    pub(crate) fn discard(&self, guard: &Guard<'_, M>, offset: u64, old: Option<RecordFacts>) {
        if let Ok(record) = Record::at(guard, offset) {
            blocks_of(&record, old).for_each(|(offset, size)| guard.free(offset, size));
        }
    }

    /// Retires a record that was unlinked, without an extent that it shares with `successor`.
    pub(crate) fn retire(&self, guard: &Guard<'_, M>, record: &Record<'_>, successor: Option<RecordFacts>) {
        blocks_of(record, successor).for_each(|(offset, size)| guard.retire(offset, size));
    }

    /// Retires unlinked blocks, a few per pin: when the pool is full, there may be no memory to
    /// record more of them in limbo.
    pub(crate) fn retire_blocks(&self, blocks: &[Block]) {
        let mut blocks = blocks.iter();
        while !blocks.as_slice().is_empty() {
            let guard = self.pool().pin();
            for &(offset, size) in blocks.by_ref().take(REMOVALS) {
                guard.retire(offset, size);
                if guard.is_limbo_full() {
                    break;
                }
            }
        }
    }
}

/// A block of the pool: its offset and the requested size.
pub(crate) type Block = (u64, usize);

/// The blocks of a record, without an extent that it shares with `other`. None for a damaged record
/// that has an extent: the extent's offset may be wrong. The collector finds these.
pub(crate) fn blocks_of(record: &Record<'_>, other: Option<RecordFacts>) -> impl Iterator<Item = Block> {
    let shared = other.and_then(|other| other.extent);
    let extent = record.body.external.map(|external| external.extent);
    let believed = extent.is_none() || record.verify().is_ok();
    let head = believed.then_some((record.offset, record.shape.size()));
    let own = extent
        .filter(|&extent| believed && shared != Some(extent))
        .map(|extent| (extent, record.shape.value_len));
    head.into_iter().chain(own)
}

/// Writes words 0 and 1, which prove the rest of the record, and starts to write it back.
#[inline(always)]
fn write_head<M: MappedMedium>(
    guard: &Guard<'_, M>,
    head: &Fresh<'_, M>,
    shape: Shape,
    used: u32,
    stamp: u32,
) {
    let body = guard.bytes(head.offset() + shape.body_at() as u64, shape.size() - shape.body_at());
    let sum = checksum(shape.encode(), stamp, body.expect("a new block lies in the pool"));
    head.write(0, &shape.encode_with(used).to_le_bytes());
    head.write(8, &seal(sum, stamp).to_le_bytes());
    // PERSIST: started here; the caller's fence comes before the record is linked.
    head.write_back();
}

/// Writes everything except words 0 and 1.
fn write_record<M: MappedMedium>(
    medium: &M,
    head: &Fresh<'_, M>,
    shape: Shape,
    draft: &Draft<'_>,
    external: Option<ExternalValue>,
) {
    let mut at = HEADER;
    if shape.role != Role::Single {
        head.word(HEADER).store(medium, draft.batch, Relaxed);
        at += 8;
    }
    if let Some(place) = shape.use_word_at() {
        head.word(place).store(medium, draft.used.unwrap_or(0).into(), Relaxed);
        at = place + 8;
    }
    let words = [draft.expires_at, external.map(|o| o.extent), external.map(|o| o.checksum)];
    for word in words.into_iter().flatten() {
        head.write(at, &word.to_le_bytes());
        at += 8;
    }
    head.write(at, draft.key);
    if let (Source::Bytes(value), false) = (draft.value, shape.has_external_value()) {
        head.write(at + draft.key.len(), value);
    }
}

#[cfg(test)]
#[path = "tests/stage.rs"]
mod tests;
