//! The filter of an Mnode: a Bloom filter of 512 bits for the keys of a node.
//!
//! A key is known by the bits of its hash that slots of byte strings have. So a filter can be made
//! of a node without reading a record. The filter takes about one in a hundred absent keys for a
//! present one: one in 140 at 48 keys, one in 45 at 64.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use terrace_medium::{Dram, Line};

/// Bits of a filter that a key sets.
const PROBES: usize = 5;

/// The bits of a key in the words of a filter.
#[inline(always)]
fn probes(hash_bits: u64) -> [usize; PROBES] {
    // The upper bits of a product depend on all of the factor.
    let mixed = hash_bits.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    std::array::from_fn(|nth| (mixed >> (19 + 9 * nth) & 511) as usize)
}

/// A filter in a line.
#[derive(Clone, Copy)]
pub(in super::super) struct Filter<'g>(pub(super) &'g Line);

impl Filter<'_> {
    /// Whether a key may have been added.
    #[inline(always)]
    pub(in super::super) fn has(self, medium: &Dram, hash_bits: u64) -> bool {
        // ORDER: Acquire: before the version that says whether this was of one time.
        let has = |at: usize| self.0.0[at / 64].load(medium, Acquire) >> (at % 64) & 1 == 1;
        probes(hash_bits).into_iter().all(has)
    }

    /// Adds a key. Called under the node's lock.
    pub(in super::super) fn add(self, medium: &Dram, hash_bits: u64) {
        for at in probes(hash_bits) {
            let word = &self.0.0[at / 64];
            // ORDER: Release: before the key is visible in its node.
            word.store(medium, word.load(medium, Relaxed) | 1 << (at % 64), Release);
        }
    }

    /// Gives it the keys of these and no others. Called while the version is odd.
    pub(in super::super) fn fill(self, medium: &Dram, keys: &[u64]) {
        let mut words = [0u64; 8];
        keys.iter().flat_map(|&key| probes(key)).for_each(|at| words[at / 64] |= 1 << (at % 64));
        // ORDER: Release: after the version became odd.
        (self.0.0.iter().zip(words)).for_each(|(word, bits)| word.store(medium, bits, Release));
    }
}
