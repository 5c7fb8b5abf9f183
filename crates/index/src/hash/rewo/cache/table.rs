//! The buckets of the cached table as it is now.

use super::bucket::{CacheBucket, SLOTS};
use std::sync::OnceLock;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: u64 = size_of::<CacheBucket>() as u64;
/// Buckets that are made together, when the first of them is needed: 32 KiB. So a table is made at once, however large.
const PIECE: usize = 256;

pub(super) struct Table {
    pieces: Box<[OnceLock<Box<[CacheBucket]>>]>,
    log2: u32,
    is_complete: bool,
}

impl Table {
    /// 2^`log2` buckets. If it `is_complete`, there are no keys yet that it could lack.
    pub(super) fn new(log2: u32, is_complete: bool) -> Self {
        let pieces = (1usize << log2).div_ceil(PIECE);
        Self { pieces: (0..pieces).map(|_| OnceLock::new()).collect(), log2, is_complete }
    }

    pub(super) fn log2(&self) -> u32 {
        self.log2
    }

    pub(super) fn buckets(&self) -> u64 {
        1 << self.log2
    }

    pub(super) fn slots(&self) -> u64 {
        self.buckets() * SLOTS as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.buckets() * BUCKET_BYTES
    }

    /// Whether a bucket that has not been needed yet lacks no key.
    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        // The last eight bits are the tag, and those behind the first fourteen choose the bucket of the persistent table.
        (hash >> 8) as usize & ((1 << self.log2) - 1)
    }

    /// The bucket of a hash, if any of its piece has been needed.
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> Option<&CacheBucket> {
        let index = self.index(hash);
        self.pieces[index / PIECE].get().map(|piece| &piece[index % PIECE])
    }

    /// The bucket of a hash.
    #[inline(always)]
    pub(super) fn bucket_made(&self, hash: u64) -> &CacheBucket {
        let index = self.index(hash);
        &self.pieces[index / PIECE].get_or_init(|| self.piece())[index % PIECE]
    }

    #[cold]
    fn piece(&self) -> Box<[CacheBucket]> {
        (0..PIECE.min(1 << self.log2)).map(|_| CacheBucket::new(self.is_complete)).collect()
    }
}
