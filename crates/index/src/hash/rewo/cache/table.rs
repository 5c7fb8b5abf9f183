//! The buckets of the cached table at its present size.

use super::bucket::{CacheBucket, SLOTS};
use std::sync::OnceLock;

/// Bytes of a bucket.
pub(super) const BUCKET_BYTES: u64 = size_of::<CacheBucket>() as u64;
/// Buckets that are allocated together, when the first of them is needed: 32 KiB. So making a table
/// takes constant time.
const PIECE: usize = 256;

pub(super) struct Table {
    pieces: Box<[OnceLock<Box<[CacheBucket]>>]>,
    log2: u32,
    is_complete: bool,
}

impl Table {
    /// 2^`log2` buckets. If it `is_complete`, the index has no keys yet.
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

    /// Whether a bucket that is not allocated yet lacks no key.
    #[inline(always)]
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    #[inline(always)]
    fn index(&self, hash: u64) -> usize {
        // The last eight bits are the tag, and those after the first fourteen choose the bucket of
        // the persistent table.
        (hash >> 8) as usize & ((1 << self.log2) - 1)
    }

    /// The bucket of a hash, if its piece is allocated.
    #[inline(always)]
    pub(super) fn bucket(&self, hash: u64) -> Option<&CacheBucket> {
        let index = self.index(hash);
        self.pieces[index / PIECE].get().map(|piece| &piece[index % PIECE])
    }

    /// The bucket of a hash; allocates its piece.
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
