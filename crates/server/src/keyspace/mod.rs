//! The keys that a command works on: the store itself, or a transaction over it. Commands are
//! written once for both, and for each database.
//!
//! In reading order: the trait [`Keyspace`] here; `store`, the store itself; `overlay`, a
//! transaction over it; `selected`, the keys of one database in either. They share `modify`, which
//! gives a change a result, `check`, limits of keys and values, and `damage`, which passes over
//! damaged records. `record` is the record of the databases.

mod check;
mod damage;
mod modify;
mod overlay;
mod record;
mod selected;
mod store;

use std::{
    collections::BTreeSet,
    ops::{Bound, ControlFlow},
};

use terrace::{Change, Cursor, Direction, Entry, Put, RangeRemoved};

pub(crate) use self::{
    check::{check_key, check_value},
    record::swap,
    selected::Selected,
};
pub use self::{modify::modify, overlay::Overlay, store::StoreKeyspace};
use crate::state::{
    databases::Place,
    failure::{Failure, Outcome},
};

/// A key's entry, borrowed while a callback runs.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// The value.
    pub value: &'a [u8],
    /// Unix milliseconds at which it expires, if it does.
    pub expires_at: Option<u64>,
}

impl<'a> From<Entry<'a>> for Found<'a> {
    fn from(entry: Entry<'a>) -> Found<'a> {
        Found { value: entry.value, expires_at: entry.expires_at }
    }
}

/// A callback that receives a key's entry, or `None` if the key is absent.
pub type ReadCallback<'f> = dyn FnMut(Option<Found<'_>>) + 'f;

/// A callback that receives a key and its entry.
pub type RangeCallback<'f> = dyn FnMut(&[u8], Found<'_>) -> ControlFlow<()> + 'f;

/// What a command wants of each entry of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The key alone: values may be shown as empty.
    Keys,
    /// The key and its entry.
    Entries,
}

/// What a transaction removes.
#[derive(Debug, Default)]
pub struct Removals {
    /// Whether it removes every key of the store.
    pub all: bool,
    /// Keys as they are stored.
    pub keys: BTreeSet<Vec<u8>>,
}

/// The operations on keys that commands use. Expired entries count as absent.
pub trait Keyspace {
    /// Calls `look` with the entry of `key`.
    fn read(&mut self, key: &[u8], look: &mut ReadCallback<'_>) -> Outcome;

    /// Calls `look` with the entries of `keys`, in order, all as of one instant. May start again
    /// from the first key.
    fn snapshot(&mut self, keys: &[&[u8]], look: &mut dyn FnMut(usize, Option<Found<'_>>)) -> Outcome;

    /// Changes the entry of `key` as `change` decides. `change` may be called more than once; its
    /// last answer counts.
    fn modify(&mut self, key: &[u8], change: &mut dyn FnMut(Option<Found<'_>>) -> Change) -> Outcome;

    /// Appends to a value, or creates it, unless it would have more than `longest` bytes. Returns
    /// how long it then is.
    fn append(&mut self, key: &[u8], tail: &[u8], longest: usize) -> Result<Option<usize>, Failure>;

    /// Writes one key.
    fn put(&mut self, put: Put<'_>) -> Outcome;

    /// Removes a key; returns whether it existed.
    fn remove(&mut self, key: &[u8]) -> Result<bool, Failure>;

    /// Calls `look` with the entries of `keys`, in order; each is read by itself.
    fn read_many(&mut self, keys: &[&[u8]], look: &mut ReadCallback<'_>) -> Outcome;

    /// Writes several keys as one atomic change.
    fn put_all(&mut self, puts: &[Put<'_>]) -> Outcome;

    /// Writes several keys as one atomic change if none of them exists; returns whether it did.
    fn put_all_new(&mut self, puts: &[Put<'_>]) -> Result<bool, Failure>;

    /// Removes several keys as one atomic change; returns how many existed.
    fn remove_all(&mut self, keys: &[&[u8]]) -> Result<u64, Failure>;

    /// Runs `body` as one atomic change: other clients, and a recovery after a crash, see all of it
    /// or nothing. `body` may run more than once. If it fails, nothing changes.
    fn atomically(&mut self, body: &mut dyn FnMut(&mut dyn Keyspace) -> Outcome) -> Outcome;

    /// Calls `each` for about `at_least` keys or more, from `cursor` on. Returns the next cursor.
    fn scan(
        &mut self,
        cursor: &Cursor,
        at_least: usize,
        each: &mut dyn FnMut(&[u8]),
    ) -> Result<Cursor, Failure>;

    /// Calls `each` with what `shown` says of the entries whose keys are within `bounds`, in byte
    /// order or the reverse, until it breaks, at most `at_most` times. The first bound is the lower
    /// one in either direction. Returns whether more may be left. Fails if the store's index keeps
    /// no order.
    fn range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        direction: Direction,
        at_most: usize,
        shown: Shown,
        each: &mut RangeCallback<'_>,
    ) -> Result<bool, Failure>;

    /// Removes the entries whose keys are within `bounds`, the lowest first, at most `at_most`
    /// keys. Returns how many entries it has removed, and the first key that is left, if any. Fails
    /// if the store's index keeps no order.
    fn remove_range(
        &mut self,
        bounds: (Bound<&[u8]>, Bound<&[u8]>),
        at_most: u64,
    ) -> Result<RangeRemoved, Failure>;

    /// Lets `to`, in another place if one is given, take over the use of `from` once the
    /// transaction has committed.
    fn carry_use(&mut self, from: &[u8], place: Option<Place>, to: &[u8]) {
        let _ = (from, place, to);
    }

    /// A random key; `None` in an empty store.
    fn random_key(&mut self) -> Result<Option<Vec<u8>>, Failure>;

    /// Removes every key.
    fn clear(&mut self) -> Outcome;

    /// Number of keys.
    fn count(&mut self) -> Result<u64, Failure>;

    /// Makes the next calls concern the keys of another database, by its place. Returns the place
    /// of before.
    fn select(&mut self, place: Place) -> Place {
        let _ = place;
        Place::RAW
    }

    /// Whether it shows writes that no other client sees.
    fn is_transaction(&self) -> bool;

    /// Of a transaction that has done nothing but remove: what it removes.
    fn removals(&mut self) -> Result<Option<Removals>, Failure> {
        Ok(None)
    }

    /// Bytes of memory that it takes until its transaction ends, about.
    fn held_bytes(&self) -> usize;
}

/// Runs `body` with the keys of another database.
pub(crate) fn within<R>(
    keys: &mut dyn Keyspace,
    place: Place,
    body: impl FnOnce(&mut dyn Keyspace) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let before = keys.select(place);
    let done = body(keys);
    keys.select(before);
    done
}
