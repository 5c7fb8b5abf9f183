//! Hash tables that exist only to be measured against: what the papers of Terrace's own hash indexes compare themselves with.
//!
//! Generic over the medium, 8-byte keys and values. Each file has its table's picture and source at its head, and says what was mended and why: a baseline
//! that is worse than it must be is worth nothing. All of them take what our own indexes take for granted: a line survives a crash as a
//! prefix of its stores (so what shares a line needs no fence in between), and a value is one word (so an update is one store in place, and the undo log that a larger value would
//! need, *Level Hashing*, section 3.3.4, is needed nowhere). What they write they write in an order that a crash cannot spoil, and pay for that; no code here recovers one.
//!
//! [`Bch`], [`Pfht`] and [`PathHashing`] are for one thread, as in their papers; [`Cceh`] is for any number.

mod bch;
mod bucket;
mod cceh;
mod path;
mod pfht;
mod space;
#[cfg(test)]
mod tests;

pub use bch::Bch;
pub use cceh::Cceh;
pub use path::PathHashing;
pub use pfht::Pfht;
pub use space::{Space, SpaceFull};

use std::sync::Arc;
use terrace_medium::Medium;

/// A table of a fixed size, for one thread.
pub trait Baseline<M: Medium>: Sized {
    /// What its paper calls it.
    const NAME: &'static str;

    /// An empty table of the first size with at least `slots` slots that it can have.
    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull>;

    /// Places for pairs.
    fn slots(&self) -> u64;

    /// Pairs in it.
    fn keys(&self) -> u64;

    /// Bytes of its memory.
    fn bytes(&self) -> u64;

    /// The value of `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Adds a key that is not there, without looking for it first, as the papers' measurements do.
    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull>;

    /// Adds `key` if it is absent, and says whether it was.
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, SpaceFull> {
        match self.get(key) {
            Some(_) => Ok(false),
            None => self.add(key, value).map(|()| true),
        }
    }

    /// Gives `key` another value if it is there.
    fn update(&mut self, key: u64, value: u64) -> bool;

    /// Removes `key` and returns its value.
    fn remove(&mut self, key: u64) -> Option<u64>;
}

/// Two hashes of a key that have nothing to do with each other.
#[inline(always)]
fn hashes(key: u64) -> [u64; 2] {
    let folded = |multiplier: u64| {
        let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * u128::from(multiplier);
        (product >> 64) as u64 ^ product as u64
    };
    [folded(0x9e37_79b9_7f4a_7c15), folded(0xd6e8_feb8_6659_fd93)]
}
