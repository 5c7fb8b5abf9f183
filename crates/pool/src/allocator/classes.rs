//! Size classes of small blocks, and how a slab of each class is divided.
//!
//! Sizes are the multiples of 8 up to 128, then 8 per doubling, up to 8 granules (a granule is a
//! 64th of a slab). So a block is at most 1/9 larger than the request, or 7 bytes. Larger requests
//! get an extent, a run of whole granules, at most 1/9 larger too. All sizes from 512 on are
//! multiples of 64, and the first block begins at a line. So blocks whose size is a multiple of 64
//! are aligned to lines, and those of multiples of 256 to media blocks: data laid out in media
//! blocks touches no more of them than it needs.
//! aligned to media blocks, so what is laid out in media blocks lies in as many of them.
//!
//! ```text
//! slab:   | alloc bitmap | mark bitmap | padding | block 0 | block 1 | ... | tail |
//! ```

use std::sync::OnceLock;
use terrace_medium::{BLOCK, LINE};

/// Granules in a slab: the bits of the word that says which of them are taken.
pub(crate) const GRANULES: u64 = 64;
/// The largest block of a slab, in granules.
const LARGEST: u64 = 8;
/// Number of classes of the largest slab (512 KiB).
pub(crate) const CLASSES_MAX: usize = 88;
/// Up to here, sizes are multiples of 8.
const FINE: u64 = 128;
const FINE_CLASSES: usize = 16;

/// How a slab of one class is divided.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Class {
    /// Bytes of a block.
    pub(crate) size: u32,
    /// Where the first block begins.
    pub(crate) first: u32,
    /// Blocks of a slab.
    pub(crate) blocks: u32,
    /// Words of each bitmap.
    pub(crate) words: u32,
    /// 2^40 / size, rounded up: replaces a division.
    reciprocal: u64,
}

/// The classes of a pool.
#[derive(Clone)]
pub(crate) struct Classes {
    table: &'static [Class],
    pub(crate) slab_log2: u32,
    pub(crate) granule_log2: u32,
}

impl Class {
    fn new(size: u64, slab: u64) -> Self {
        debug_assert!(size < 1 << 18 && slab < 1 << 20, "larger ones make `reciprocal` inexact");
        let mut blocks = slab / size;
        while header(blocks, size) + blocks * size > slab {
            blocks -= 1;
        }
        debug_assert!(blocks > 0, "a slab holds a block of each of its classes");
        Self {
            size: size as u32,
            first: header(blocks, size) as u32,
            blocks: blocks as u32,
            words: blocks.div_ceil(64) as u32,
            reciprocal: (1 << 40) / size + 1,
        }
    }

    /// The block that begins at `at` bytes from the slab's start, if one does.
    #[inline(always)]
    pub(crate) fn block_at(&self, at: u64) -> Option<u64> {
        let inside = at.wrapping_sub(u64::from(self.first));
        // Exact: `inside` and `size` are below 2^20 and 2^18, so the rounded reciprocal is off by
        // less than 1/size.
        let block = (inside & 0xf_ffff).wrapping_mul(self.reciprocal) >> 40;
        (block * u64::from(self.size) == inside && block < u64::from(self.blocks)).then_some(block)
    }

    /// The block that contains the byte `at` bytes from the slab's start.
    pub(crate) fn block_around(&self, at: u64) -> Option<u64> {
        let block = at.checked_sub(u64::from(self.first))? / u64::from(self.size);
        (block < u64::from(self.blocks)).then_some(block)
    }

    /// Offset of `block` from the slab's start.
    #[inline(always)]
    pub(crate) fn position(&self, block: u64) -> u64 {
        debug_assert!(block <= u64::from(self.blocks), "no block {block} in a slab of {}", self.blocks);
        u64::from(self.first) + block * u64::from(self.size)
    }

    /// Whether its blocks are aligned like those of the class of `bytes` bytes: to lines, and to
    /// media blocks.
    pub(crate) fn is_aligned_like(&self, bytes: u64) -> bool {
        let size = u64::from(self.size);
        [LINE as u64, BLOCK as u64]
            .iter()
            .all(|&unit| !bytes.is_multiple_of(unit) || size.is_multiple_of(unit))
    }

    /// The bits of bitmap word `word` that stand for blocks.
    #[inline(always)]
    pub(crate) fn valid(&self, word: u64) -> u64 {
        match (u64::from(self.blocks)).saturating_sub(word * 64) {
            0 => 0,
            bits @ 1..64 => (1 << bits) - 1,
            _ => !0,
        }
    }
}

/// Bytes before the first block: two bitmaps, padded to a line, or to a media block if the block
/// size is a multiple of one.
fn header(blocks: u64, size: u64) -> u64 {
    let aligned_to = if size.is_multiple_of(BLOCK as u64) { BLOCK } else { LINE };
    (blocks.div_ceil(64) * 16).next_multiple_of(aligned_to as u64)
}

impl Classes {
    pub(crate) fn new(slab_log2: u32) -> Self {
        assert!((12..=19).contains(&slab_log2), "as the geometry's check says");
        let granule_log2 = slab_log2 - GRANULES.ilog2();
        Self { table: table(slab_log2), slab_log2, granule_log2 }
    }

    /// The class of a block of `bytes` bytes, or `None` if it is an extent.
    #[inline(always)]
    pub(crate) fn of(&self, bytes: u64) -> Option<usize> {
        if bytes > LARGEST << self.granule_log2 {
            return None;
        }
        Some(class_of(bytes))
    }

    /// How slabs of `class` are divided; `None` if there is no such class.
    #[inline(always)]
    pub(crate) fn get(&self, class: usize) -> Option<&Class> {
        self.table.get(class)
    }

    /// Number of classes.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Granules of an extent of `bytes` bytes.
    #[inline(always)]
    pub(crate) fn granules(&self, bytes: u64) -> u64 {
        bytes.div_ceil(1 << self.granule_log2)
    }

    /// Bytes of the pool that an allocation of `bytes` bytes uses.
    pub(crate) fn footprint(&self, bytes: u64) -> u64 {
        match self.of(bytes) {
            Some(class) => u64::from(self.table[class].size),
            None => self.granules(bytes) << self.granule_log2,
        }
    }
}

/// The classes of slabs of this size. There are few sizes; each table is computed once.
fn table(slab_log2: u32) -> &'static [Class] {
    const SIZES: usize = 32;
    static TABLES: [OnceLock<Box<[Class]>>; SIZES] = [const { OnceLock::new() }; SIZES];
    TABLES[slab_log2 as usize].get_or_init(|| {
        let slab = 1 << slab_log2;
        let sizes = (0..CLASSES_MAX).map(size_of_class).take_while(|&size| size <= LARGEST * slab / GRANULES);
        let table: Box<[Class]> = sizes.map(|size| Class::new(size, slab)).collect();
        debug_assert!(table.is_sorted_by(|one, next| one.size < next.size), "classes by their size");
        debug_assert!(
            table.iter().enumerate().all(|(class, it)| class_of(u64::from(it.size)) == class),
            "a block of a class's size is of that class"
        );
        table
    })
}

#[inline(always)]
fn class_of(bytes: u64) -> usize {
    if bytes <= FINE {
        return (bytes.max(1).div_ceil(8) - 1) as usize;
    }
    // The 3 bits below the highest of (bytes - 1) are the step within the doubling.
    let last = bytes - 1;
    let doubling = last.ilog2();
    let step = (last >> (doubling - 3)) & 7;
    FINE_CLASSES + ((doubling - FINE.ilog2()) * 8) as usize + step as usize
}

fn size_of_class(class: usize) -> u64 {
    if class < FINE_CLASSES {
        return (class as u64 + 1) * 8;
    }
    let (doubling, step) = ((class - FINE_CLASSES) / 8, (class - FINE_CLASSES) % 8);
    (FINE << doubling) + (step as u64 + 1) * ((FINE / 8) << doubling)
}

#[cfg(test)]
#[path = "tests/classes.rs"]
mod tests;
