//! A record in the pool, as readers see it.

use crate::record::format::{Body, Role, Shape, UseIn, checksum_of, value_checksum};
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Place, ReadError, Token};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::Guard;
use xxhash_rust::xxh3::xxh3_64;

/// A record whose shape is sound and which lies in the pool. Whether its bytes are sound,
/// [`Record::verify`] checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'g> {
    pub(crate) offset: u64,
    pub(crate) shape: Shape,
    pub(crate) body: Body<'g>,
    bytes: &'g [u8],
    /// Words 0 and 1.
    head: [u64; 2],
}

/// What statistics count about a record, and the extent that it may share with another record of
/// its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordFacts {
    /// Key and value in bytes.
    pub(crate) data_bytes: u64,
    pub(crate) expires: bool,
    pub(crate) extent: Option<u64>,
}

impl RecordFacts {
    #[inline(always)]
    pub(crate) fn new(shape: Shape, extent: Option<u64>) -> Self {
        // A record that does not carry an entry is no data.
        let is_data = !matches!(shape.role, Role::Keep | Role::Stray | Role::Tombstone);
        let data_bytes = if is_data { (shape.key_len + shape.value_len) as u64 } else { 0 };
        Self { data_bytes, expires: shape.expires, extent }
    }
}

pub(crate) fn corrupt(offset: u64, what: &'static str) -> ReadError {
    ReadError::Corrupt { place: Place::Pool(offset), what }
}

impl<'g> Record<'g> {
    /// The record at `offset`, which the index names.
    #[inline(always)]
    pub(crate) fn at<M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Result<Self, ReadError> {
        Self::find(guard, offset).ok_or_else(|| corrupt(offset, "the index points to no valid record"))
    }

    #[inline(always)]
    fn find<M: MappedMedium>(guard: &'g Guard<'_, M>, offset: u64) -> Option<Self> {
        let region = guard.pool().region();
        let words = region.get(Offset::<[Word; 2]>::new(offset))?;
        // ORDER: Relaxed: the word that names a record, in the index or in the running batch, was
        // loaded with Acquire, and was stored after the record.
        let head = [words[0].load(region.medium(), Relaxed), words[1].load(region.medium(), Relaxed)];
        let shape = Shape::decode(head[0])?;
        let at = shape.body_at();
        Self::parse(offset, head, shape, guard.bytes(offset + at as u64, shape.size() - at)?)
    }

    /// The record at `offset` with these words 0 and 1, which encode its shape, and this body.
    #[inline(always)]
    pub(crate) fn parse(offset: u64, head: [u64; 2], shape: Shape, bytes: &'g [u8]) -> Option<Self> {
        let body = Body::parse(shape, bytes)?;
        Some(Self { offset, shape, body, bytes, head })
    }

    /// Compares the record with its checksum. Of a value in an extent, this covers only its place
    /// and checksum.
    #[inline(always)]
    pub(crate) fn verify(&self) -> Result<(), ReadError> {
        let (stored, stamp) = ((self.head[1] >> 32) as u32, self.head[1] as u32);
        // Without the use that the shape may hold.
        let shape = if self.shape.use_in == UseIn::Shape { self.shape.encode() } else { self.head[0] };
        let body = xxh3_64(self.bytes);
        // A use that it got later changes the shape that it had.
        let before = || Shape { use_in: UseIn::Nothing, ..self.shape }.encode();
        if checksum_of(shape, stamp, body) == stored
            || self.shape.use_in != UseIn::Nothing && checksum_of(before(), stamp, body) == stored
        {
            Ok(())
        } else {
            Err(corrupt(self.offset, "a record does not match its checksum"))
        }
    }

    /// The value and its offset. Compares a value in an extent with its own checksum if `verify` is
    /// set.
    #[inline(always)]
    pub(crate) fn value<M: MappedMedium>(
        &self,
        guard: &'g Guard<'_, M>,
        verify: bool,
    ) -> Result<(u64, &'g [u8]), ReadError> {
        match self.body.external {
            None => {
                let at = self.shape.key_at() + self.shape.key_len;
                Ok((self.offset + at as u64, self.body.inline))
            }
            Some(external) => {
                let value = guard.bytes(external.extent, self.shape.value_len);
                let value = value.ok_or_else(|| corrupt(self.offset, "a value lies outside the pool"))?;
                if verify && value_checksum(value) != external.checksum {
                    return Err(corrupt(external.extent, "a value does not match its checksum"));
                }
                Ok((external.extent, value))
            }
        }
    }

    /// Identifies this version of its key. A copy of the record has the same token, and so has a
    /// record whose value was moved.
    #[inline(always)]
    pub(crate) fn token(&self) -> Token {
        let sum = match self.body.external {
            None => self.head[1] >> 32,
            // Not the record's own checksum, which covers where the value lies.
            Some(external) => (external.checksum ^ self.body.expires_at.unwrap_or(0)) >> 1,
        };
        Token { sum, stamp: self.head[1] as u32 }
    }

    /// Words 0 and 1, and the body as it lies in the pool.
    pub(crate) fn parts(&self) -> ([u64; 2], &'g [u8]) {
        (self.head, self.bytes)
    }

    pub(crate) fn head(&self) -> [u64; 2] {
        self.head
    }

    /// Its word 0.
    pub(crate) fn first_word<'p, M: MappedMedium>(&self, guard: &'p Guard<'_, M>) -> Option<&'p Word> {
        guard.pool().region().get(Offset::new(self.offset))
    }

    /// The word of its use, if it has one.
    pub(crate) fn use_word<'p, M: MappedMedium>(&self, guard: &'p Guard<'_, M>) -> Option<&'p Word> {
        guard.pool().region().get(Offset::new(self.offset + self.shape.use_word_at()? as u64))
    }

    /// The record's number: see `Root::stamp`.
    pub(crate) fn stamp(&self) -> u32 {
        self.head[1] as u32
    }

    /// The offset of its batch word, if it has one.
    #[inline(always)]
    pub(crate) fn batch_word(&self) -> Option<Offset<Word>> {
        (self.shape.role != Role::Single).then(|| Offset::new(self.offset + 16))
    }

    /// What the operations that replace this record have to know of it.
    #[inline(always)]
    pub(crate) fn facts(&self) -> RecordFacts {
        RecordFacts::new(self.shape, self.body.external.map(|external| external.extent))
    }
}
