//! Addresses of records, which never change while a record moves between DRAM and tier.
//!
//! An address is the number of a *block* and an offset in it. A block is a run of addresses that
//! goes to the tier as a whole. In DRAM it has *pages*, blocks of the pool in which the index lies;
//! a table in the pool maps blocks to the tables of their pages:
//!
//! ```text
//!   address   [43:shift] block  [shift-1:0] offset, a multiple of eight
//!   map       a word a block: the table of its pages | flags; 0 if the block has no pages
//!   pages     a word a page: its place in the pool; 0 if it is not in DRAM
//! ```

use super::record::{Copied, HEADER, Shape, VERSION_BITS};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{MappedMedium, Offset, Word};
use terrace_pool::Guard;

/// Flag of a block that takes no changes in place.
pub(super) const CLOSED: u64 = 1;
/// Flag of a block that has copies of records on the tier.
pub(crate) const CACHE: u64 = 2;
const FLAGS: u64 = 7;
/// Addresses end here: an index has room for so many.
pub(super) const ADDRESS_BITS: u32 = 44;
/// Blocks that a space has at most.
pub(super) const BLOCKS_MAX: u64 = 1 << 18;

/// In word 2 of a copy: it was read since it was made. The rest of its upper half is its room.
const TOUCHED: u64 = 1 << 63;

/// Where the map lies, and how addresses are divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Map {
    table: u64,
    block_shift: u32,
    page_shift: u32,
    /// The number of the reader of its cold records.
    reader: u64,
}

impl Map {
    pub(super) fn new(table: u64, (block_shift, page_shift): (u32, u32), reader: u64) -> Self {
        assert!(page_shift <= block_shift && block_shift < ADDRESS_BITS, "a block has whole pages");
        Self { table, block_shift, page_shift, reader }
    }

    pub(crate) fn reader(self) -> u64 {
        self.reader
    }

    #[inline(always)]
    pub(crate) fn block_of(self, address: u64) -> u64 {
        address >> self.block_shift
    }

    #[inline(always)]
    pub(crate) fn offset_of(self, address: u64) -> u64 {
        address & ((1 << self.block_shift) - 1)
    }

    pub(crate) fn address(self, block: u64, offset: u64) -> u64 {
        block << self.block_shift | offset
    }

    /// The address at an offset of a page of a block.
    pub(super) fn address_in(self, block: u64, page: usize, offset: u64) -> u64 {
        self.address(block, ((page as u64) << self.page_shift) + offset)
    }

    pub(super) fn page_bytes(self) -> usize {
        1 << self.page_shift
    }

    pub(crate) fn block_bytes(self) -> u64 {
        1 << self.block_shift
    }

    pub(super) fn block_pages(self) -> usize {
        1 << (self.block_shift - self.page_shift)
    }

    /// The place of a block's word.
    pub(super) fn word(self, block: u64) -> u64 {
        self.table + 8 * block
    }
}

/// Room for a record.
pub(crate) struct Room {
    pub(crate) address: u64,
    pub(crate) record: RecordAt,
}

/// A record in DRAM.
#[derive(Clone, Copy)]
pub(crate) struct RecordAt {
    pub(super) at: u64,
    pub(super) flags: u64,
}

impl RecordAt {
    /// The record at an address, if it lies in DRAM.
    #[inline(always)]
    pub(crate) fn find<M: MappedMedium>(guard: &Guard<'_, M>, map: Map, address: u64) -> Option<Self> {
        let region = guard.pool().region();
        let load = |at: u64| {
            // ORDER: Acquire: pairs with the Release of `Pages::hand_out` and of those that free.
            // A page that is freed meanwhile keeps its content: this thread is pinned.
            Some(region.get(Offset::<Word>::new(at))?.load(region.medium(), Acquire))
        };
        let block = load(map.word(map.block_of(address)))?;
        let pages = block & !FLAGS;
        if pages == 0 {
            return None;
        }
        let offset = map.offset_of(address);
        let page = load(pages + 8 * (offset >> map.page_shift))?;
        let at = page + (offset & ((1 << map.page_shift) - 1));
        (page != 0).then_some(Self { at, flags: block & FLAGS })
    }

    /// Its place in the pool.
    pub(crate) fn at(self) -> u64 {
        self.at
    }

    /// Whether it may be changed in place.
    pub(crate) fn is_open(self) -> bool {
        self.flags & (CLOSED | CACHE) == 0
    }

    /// Whether it is a copy of a record on the tier.
    pub(crate) fn is_copy(self) -> bool {
        self.flags & CACHE != 0
    }

    #[inline(always)]
    fn word<'g, M: MappedMedium>(self, guard: &'g Guard<'_, M>, nth: usize) -> &'g Word {
        guard.pool().region().at(Offset::<Word>::new(self.at + 8 * nth as u64))
    }

    /// The hash and the key.
    #[inline(always)]
    pub(crate) fn probe<'g, M: MappedMedium>(self, guard: &'g Guard<'_, M>) -> Option<&'g [u8]> {
        // ORDER: Relaxed: the index's word, or the lock of the stripe, came first. The parts of the
        // shape that decide here never change.
        let shape = Shape::decode(self.word(guard, 0).load(guard.pool().medium(), Relaxed))?;
        guard.bytes(self.at + shape.probe_at() as u64, 8 + shape.key_len)
    }

    /// The address of the record on the tier that this is a copy of.
    pub(crate) fn original<M: MappedMedium>(self, guard: &Guard<'_, M>) -> u64 {
        let before = Offset::<Word>::new(self.at - 8);
        guard.pool().region().at(before).load(guard.pool().medium(), Relaxed)
    }

    /// Its parts; the value is copied. `None` while it is written: it will be another version soon.
    #[inline(always)]
    pub(crate) fn read<M: MappedMedium>(self, guard: &Guard<'_, M>) -> Option<Copied> {
        let medium = guard.pool().medium();
        // ORDER: Acquire, all of them, in this order: what was loaded belongs together if the
        // version is the same before and after, as every store of a writer is Release.
        let before = self.word(guard, 1).load(medium, Acquire);
        if before & 1 != 0 {
            return None;
        }
        let shape = Shape::decode(self.word(guard, 0).load(medium, Acquire))?;
        let expires_at = shape.expires.then(|| self.word(guard, HEADER / 8).load(medium, Acquire));
        let len = shape.inline_len();
        let mut inline = Vec::with_capacity(len.next_multiple_of(8));
        let first = shape.value_at() / 8;
        for nth in first..first + len.div_ceil(8) {
            let word = guard.pool().region().get(Offset::<Word>::new(self.at + 8 * nth as u64))?;
            inline.extend_from_slice(&word.load(medium, Acquire).to_le_bytes());
        }
        inline.truncate(len);
        let after = self.word(guard, 1).load(medium, Acquire);
        (before == after).then_some(Copied { shape, seq: before >> VERSION_BITS, expires_at, inline })
    }

    /// When it expires. `None` while it is written.
    pub(crate) fn read_head<M: MappedMedium>(self, guard: &Guard<'_, M>) -> Option<Option<u64>> {
        let medium = guard.pool().medium();
        let before = self.word(guard, 1).load(medium, Acquire);
        let shape = Shape::decode(self.word(guard, 0).load(medium, Acquire))?;
        let expires_at = shape.expires.then(|| self.word(guard, HEADER / 8).load(medium, Acquire));
        let is_same = before & 1 == 0 && before == self.word(guard, 1).load(medium, Acquire);
        is_same.then_some(expires_at)
    }

    /// Its shape and its sequence number. Under the lock of its stripe, or in a closed block.
    pub(crate) fn head<M: MappedMedium>(self, guard: &Guard<'_, M>) -> (Shape, u64) {
        let medium = guard.pool().medium();
        let shape = Shape::decode(self.word(guard, 0).load(medium, Relaxed)).expect("a record in DRAM");
        (shape, self.word(guard, 1).load(medium, Relaxed) >> VERSION_BITS)
    }

    /// The bytes that it has room for.
    pub(crate) fn room<M: MappedMedium>(self, guard: &Guard<'_, M>) -> usize {
        8 * (self.word(guard, 2).load(guard.pool().medium(), Relaxed) << 1 >> 33) as usize
    }

    /// Notes that a copy was read. Most reads find that noted, and store nothing.
    #[inline(always)]
    pub(crate) fn touch<M: MappedMedium>(self, guard: &Guard<'_, M>) {
        let (word, medium) = (self.word(guard, 2), guard.pool().medium());
        // ORDER: Relaxed: a hint. Nothing else changes the word of a copy.
        let now = word.load(medium, Relaxed);
        if now & TOUCHED == 0 {
            word.store(medium, now | TOUCHED, Relaxed);
        }
    }

    /// Whether a copy was read.
    pub(crate) fn is_touched<M: MappedMedium>(self, guard: &Guard<'_, M>) -> bool {
        self.word(guard, 2).load(guard.pool().medium(), Relaxed) & TOUCHED != 0
    }

    /// Whether it is being written.
    pub(crate) fn is_locked<M: MappedMedium>(self, guard: &Guard<'_, M>) -> bool {
        self.word(guard, 1).load(guard.pool().medium(), Acquire) & 1 != 0
    }

    /// Stores a record where none is, or in the place of an earlier version of the key that has
    /// room for it. Readers wait for [`RecordAt::unlock`]. Called under the lock of its stripe.
    pub(crate) fn store_locked<M: MappedMedium>(self, guard: &Guard<'_, M>, bytes: &[u8], is_new: bool) {
        let medium = guard.pool().medium();
        let word = |at: usize| u64::from_le_bytes(*bytes[at..].first_chunk().expect("whole words"));
        debug_assert!(bytes.len().is_multiple_of(8) && (is_new || bytes.len() <= self.room(guard)));
        let version = if is_new { 0 } else { self.word(guard, 1).load(medium, Relaxed) & 0xfffe };
        // ORDER: Release, all of them: see `read`.
        self.word(guard, 1).store(medium, version | 1, Release);
        let room = if is_new { bytes.len() } else { self.room(guard) };
        self.word(guard, 0).store(medium, word(0), Release);
        self.word(guard, 2).store(medium, word(16) & u64::from(u32::MAX) | (room as u64 / 8) << 32, Release);
        let first = if is_new {
            HEADER
        } else {
            // Its probe stays as it is.
            let shape = Shape::decode(word(0)).expect("made just now");
            if shape.expires {
                self.word(guard, HEADER / 8).store(medium, word(HEADER), Release);
            }
            shape.value_at()
        };
        for at in (first..bytes.len()).step_by(8) {
            self.word(guard, at / 8).store(medium, word(at), Release);
        }
    }

    /// Ends what [`RecordAt::store_locked`] has begun.
    pub(crate) fn unlock<M: MappedMedium>(self, guard: &Guard<'_, M>, seq: u64) {
        let medium = guard.pool().medium();
        let before = self.word(guard, 1).load(medium, Relaxed);
        debug_assert!(before & 1 != 0, "a record is unlocked by the thread that locked it");
        let version = before.wrapping_add(1) & 0xfffe;
        // ORDER: Release: pairs with the Acquire of `read`.
        self.word(guard, 1).store(medium, seq << VERSION_BITS | version, Release);
    }

    /// Appends its bytes as they go to the tier. In a closed block only.
    pub(crate) fn copy_to<M: MappedMedium>(self, guard: &Guard<'_, M>, out: &mut Vec<u8>) {
        debug_assert!(!self.is_open(), "a record that may change is not copied");
        let (shape, start) = (self.head(guard).0, out.len());
        let bytes = guard.bytes(self.at, shape.size()).expect("a record lies in the pool");
        out.extend_from_slice(bytes);
        // The version and the room that it had are of no use there.
        out[start + 8..start + 10].fill(0);
        let words = (shape.size() as u32 / 8).to_le_bytes();
        out[start + 20..start + 24].copy_from_slice(&words);
    }
}
