//! A random place, near which each key is about as likely.
//!
//! A random way down prefers keys with few siblings. So several ways are tried, each is given the
//! product of the numbers of children on it as its weight, and one is drawn by weight.

use crate::Place;

/// Ways that are tried.
const WAYS: usize = 8;

/// The next of a row of numbers that one number determines (SplitMix64).
pub(super) fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mixed = (*state ^ *state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ mixed >> 31
}

/// The place behind a key that `draw` determines. `way` goes a random way down and returns the
/// logarithm of its weight, and what it ends at; `key_of` reads the key of that.
pub(super) fn sample<Leaf: Copy>(
    draw: u64,
    mut way: impl FnMut(&mut u64) -> Option<(f64, Leaf)>,
    key_of: impl FnOnce(Leaf) -> Option<Box<[u8]>>,
) -> Place {
    let mut state = draw;
    let ways: Vec<(f64, Leaf)> = (0..WAYS).filter_map(|_| way(&mut state)).collect();
    // Relative to the largest, so that no sum overflows.
    let largest = ways.iter().map(|(weight, _)| *weight).fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = ways.iter().map(|(weight, _)| (weight - largest).exp()).collect();
    let mut left = next(&mut state) as f64 / u64::MAX as f64 * weights.iter().sum::<f64>();
    let drawn = weights.iter().position(|weight| {
        left -= weight;
        left <= 0.0
    });
    let leaf = drawn.or(ways.len().checked_sub(1)).map(|nth| ways[nth].1);
    leaf.and_then(key_of).map_or(Place::Start, Place::After)
}
