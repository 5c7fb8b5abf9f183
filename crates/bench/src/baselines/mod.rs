//! Hash tables and trees to measure against: those that the papers of Terrace's indexes compare
//! with.
//!
//! Generic over the medium; keys and values of 8 bytes, the trees' keys also byte strings. The head
//! of each file or folder has the picture and source, and says what was repaired and why: a
//! baseline that is worse than necessary is worth nothing.
//!
//! All of them use two facts that our indexes use, too. A line survives a crash as a prefix of its
//! stores, so stores within a line need no fence in between. A value is one word, so an update is
//! one store in place; the undo log for larger values (*Level Hashing*, section 3.3.4) is not
//! needed by a table. They write in an order that survives a crash, and pay for that. The hash
//! tables' recovery is not implemented, but for that of CCEH below [`Spot`]; the trees repair what
//! a crash left as they meet it.
//!
//! [`Bch`], [`Pfht`] and [`PathHashing`] are for one thread, as in their papers; [`Cceh`] and the
//! trees, [`FastFair`] and [`Woart`], are for any number. [`Tips`] is a store above an index, for
//! one thread here, with values of any length and all logs that it needs. [`Spot`] is a layer above
//! CCEH, FAST & FAIR or the [`SkipList`], for one thread.

mod bch;
mod bucket;
mod cceh;
mod fast_fair;
mod key_form;
mod path;
mod pfht;
mod skip_list;
mod space;
mod spot;
#[cfg(test)]
mod tests;
mod tips;
mod woart;

pub use bch::Bch;
pub use cceh::{Cceh, SpotCceh};
pub use fast_fair::{FastFair, SpotFastFair};
pub use key_form::{IntegerKeys, KeyForm, StringKeys};
pub use path::PathHashing;
pub use pfht::Pfht;
pub use skip_list::SkipList;
pub use space::{Space, SpaceFull};
pub use spot::{Change, Merge, Removing, Spot, SpotSizes, SpotVariant, Spotted};
pub use tips::{Converted, Tips, TipsSizes};
pub use woart::Woart;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use terrace_medium::Medium;

/// A table of a fixed size, for one thread.
pub trait Baseline<M: Medium>: Sized {
    /// Its name in its paper.
    const NAME: &'static str;

    /// An empty table of the smallest possible size with at least `slots` slots.
    fn create(space: Arc<Space<M>>, slots: u64) -> Result<Self, SpaceFull>;

    /// Number of slots.
    fn slots(&self) -> u64;

    /// Number of pairs.
    fn keys(&self) -> u64;

    /// Bytes of its memory.
    fn bytes(&self) -> u64;

    /// The value of `key`.
    fn get(&self, key: u64) -> Option<u64>;

    /// Adds an absent key without searching for it, as the papers' measurements do.
    fn add(&mut self, key: u64, value: u64) -> Result<(), SpaceFull>;

    /// Adds `key` if it is absent. Returns whether it was.
    fn insert(&mut self, key: u64, value: u64) -> Result<bool, SpaceFull> {
        match self.get(key) {
            Some(_) => Ok(false),
            None => self.add(key, value).map(|()| true),
        }
    }

    /// Replaces the value of `key`, if it is present.
    fn update(&mut self, key: u64, value: u64) -> bool;

    /// Removes `key` and returns its value.
    fn remove(&mut self, key: u64) -> Option<u64>;
}

/// A tree that grows, for any number of threads.
pub trait OrderedBaseline<M: Medium, K: KeyForm>: Sized + Send + Sync {
    /// Its name in its paper.
    const NAME: &'static str;

    /// An empty tree.
    fn create(space: Arc<Space<M>>) -> Result<Self, SpaceFull>;

    /// Bytes of its memory, with that of records of keys.
    fn bytes(&self) -> u64;

    /// The value of `key`.
    fn get(&self, key: &K::Key) -> Option<u64>;

    /// Adds `key` if it is absent. Returns whether it was.
    fn insert(&self, key: &K::Key, value: u64) -> Result<bool, SpaceFull>;

    /// Replaces the value of `key`, if it is present.
    fn update(&self, key: &K::Key, value: u64) -> bool;

    /// Calls `each` with the values of `most` keys from `from` on, in the order of keys, or of all
    /// that are left.
    fn scan(&self, from: &K::Key, most: usize, each: &mut dyn FnMut(u64));
}

fn held<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Two independent hashes of a key.
#[inline(always)]
fn hashes(key: u64) -> [u64; 2] {
    let folded = |multiplier: u64| {
        let product = u128::from(key ^ 0x243f_6a88_85a3_08d3) * u128::from(multiplier);
        (product >> 64) as u64 ^ product as u64
    };
    [folded(0x9e37_79b9_7f4a_7c15), folded(0xd6e8_feb8_6659_fd93)]
}
