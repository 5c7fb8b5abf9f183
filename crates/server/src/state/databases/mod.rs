//! Databases 0 to 15 in one store.
//!
//! A database is the set of keys in one of 16 *places*. A key of place 0 is stored as it is, so a
//! store without other databases is as it always was:
//!
//! ```text
//!   place 0      key                       a key that begins with MARK: MARK | 0 | rest of the key
//!   place n      MARK | n | key
//!   the record   MARK | 255                version | the place of each database | places in use
//! ```
//! `MARK` has seven bytes that no text in UTF-8 begins with. So the keys of old stores keep their
//! meaning; one that began with it by chance (2^-56) would not be found.
//!
//! SWAPDB exchanges the places of two databases: one store of the record, durable and the same for
//! all keys. While it runs no command does, see `state/databases/gate.rs`. The record is read when
//! the server starts. Processes that share a pool could not agree on the instant, so it is refused
//! there.
//!
//! A cluster has one database and no record: its keys are stored as those of place 0. Their slots
//! are those of the keys that clients name, see [`slot_of`].

mod count;
mod gate;
mod place;

use std::{
    borrow::Cow,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use terrace::{Change, Entry, ReadError, Store, WriteError};
use terrace_protocol::slot;

use self::place::RECORD;
pub(crate) use self::place::RECORD_KEY;
pub use self::place::{Bounds, DATABASES, Place};
pub(crate) use self::{
    count::{Count, Counts},
    gate::{Gate, Turn},
};

/// Version of the record.
const VERSION: u8 = 1;

/// The place of each database: four bits each, those of database 0 the lowest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Map(u64);

impl Map {
    /// Each database in the place of its number.
    const PLAIN: Map = Map(0xfedc_ba98_7654_3210);

    /// The map of a store. The error is a text for the user.
    pub fn of(store: &Store) -> Result<Map, String> {
        Record::of(store).map(|record| record.map)
    }

    /// The place of a database.
    pub fn place(self, database: u8) -> Place {
        Place::numbered((self.0 >> (4 * database) & 15) as u8)
    }

    /// Whether each place has one database.
    fn is_whole(self) -> bool {
        (0..DATABASES).fold(0u16, |places, of| places | 1 << self.place(of).index()) == u16::MAX
    }

    fn swapped(self, one: u8, other: u8) -> Map {
        let differ = (self.0 >> (4 * one) ^ self.0 >> (4 * other)) & 15;
        Map(self.0 ^ differ << (4 * one) ^ differ << (4 * other))
    }
}

/// What the record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    map: Map,
    /// A bit for each place that has ever had a key, but place 0.
    used: u16,
}

impl Record {
    /// Without a record, each database is in its place, and only 0 was used.
    const NONE: Record = Record { map: Map::PLAIN, used: 0 };

    fn of(store: &Store) -> Result<Record, String> {
        let damaged =
            |why: &str| format!("the record of the databases cannot be read, so no key can be found: {why}");
        let value = store.get(RECORD).map_err(|error| damaged(&error.to_string()))?;
        Record::parse(value.as_deref()).ok_or_else(|| damaged("a later version of Terrace has written it"))
    }

    fn parse(value: Option<&[u8]>) -> Option<Record> {
        let Some(value) = value else { return Some(Record::NONE) };
        let (version, rest) = value.split_first()?;
        let (map, rest) = rest.split_first_chunk()?;
        let used = u16::from_le_bytes(*rest.first_chunk()?);
        (*version == VERSION).then_some(Record { map: Map(u64::from_le_bytes(*map)), used })
    }

    fn value(self) -> Vec<u8> {
        [&[VERSION][..], &self.map.0.to_le_bytes(), &self.used.to_le_bytes()].concat()
    }
}

/// The databases of a server's store.
#[derive(Debug)]
pub(crate) struct Databases {
    map: AtomicU64,
    /// The places that the record is known to call used.
    used: AtomicU64,
    /// Why the record could not be read.
    damage: Option<Box<str>>,
    pub(crate) gate: Gate,
    counts: Counts,
}

impl Databases {
    pub(crate) fn of(store: &Store) -> Databases {
        match Record::of(store) {
            Ok(record) => Databases::new(record, None),
            Err(why) => Databases::new(Record::NONE, Some(why.into())),
        }
    }

    /// The one database of a cluster.
    pub(crate) fn one() -> Databases {
        Databases::new(Record::NONE, None)
    }

    fn new(record: Record, damage: Option<Box<str>>) -> Databases {
        Databases {
            map: record.map.0.into(),
            used: u64::from(record.used).into(),
            damage,
            gate: Gate::default(),
            counts: Counts::default(),
        }
    }

    /// Why the record could not be read, if it could not: a text for the user.
    pub(crate) fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// The present map. It stays the same while the caller is in the gate.
    pub(crate) fn map(&self) -> Map {
        // ORDER: Relaxed: the gate orders it.
        Map(self.map.load(Relaxed))
    }

    /// Publishes the map of a SWAPDB that has committed. The caller is alone in the gate.
    pub(crate) fn publish(&self, map: Map) {
        debug_assert!(map.is_whole(), "each place has one database");
        // ORDER: Relaxed: the gate orders it.
        self.map.store(map.0, Relaxed);
    }

    /// Whether other databases than 0 may have keys.
    pub(crate) fn are_several(&self) -> bool {
        // ORDER: Relaxed: a bit is never taken back, and says nothing about other memory.
        self.used.load(Relaxed) != 0
    }

    /// Records that a place is used, before the first key is written there.
    pub(crate) fn use_place(&self, store: &Store, place: Place) -> Result<(), WriteError> {
        let Some(bit) = place.bit() else { return Ok(()) };
        // ORDER: Relaxed, both: as in `are_several`.
        if self.used.load(Relaxed) & u64::from(bit) != 0 {
            return Ok(());
        }
        use_place(store, place)?;
        self.used.fetch_or(bit.into(), Relaxed);
        Ok(())
    }

    /// The counts of the keys in each place.
    pub(crate) fn counts(&self, store: &Store) -> Result<[Count; DATABASES as usize], ReadError> {
        self.counts.of(store)
    }
}

/// The databases of a store that may have keys. The error is a text for the user.
pub fn used(store: &Store) -> Result<Vec<u8>, String> {
    let record = Record::of(store)?;
    let is_used = |database: &u8| record.map.place(*database).bit().is_none_or(|bit| record.used & bit != 0);
    Ok((0..DATABASES).filter(is_used).collect())
}

/// The slot of a key in a cluster, by its stored form.
pub fn slot_of(stored: &[u8]) -> u16 {
    // The key of another place is none of a cluster's.
    slot(&Place::FIRST.decode(stored).unwrap_or(Cow::Borrowed(stored)))
}

/// The databases with keys that a cluster would not find as those of its database, and how many
/// they have. The error is a text for the user.
pub fn beside_first(store: &Store) -> Result<Vec<(u8, u64)>, String> {
    let record = Record::of(store)?;
    if record == Record::NONE {
        return Ok(Vec::new());
    }
    let counts = count::visit(store).map_err(|error| error.to_string())?;
    let keys = |database: u8| (database, counts[record.map.place(database).index()].keys);
    let is_found = |database: u8| database == 0 && record.map.place(0) == Place::FIRST;
    Ok((0..DATABASES)
        .filter(|&database| !is_found(database))
        .map(keys)
        .filter(|(_, keys)| *keys > 0)
        .collect())
}

/// Removes the record of a store with keys in place 0 alone.
pub fn forget(store: &Store) -> Result<(), WriteError> {
    store.remove(RECORD).map(drop)
}

/// Records that a place is used, for a program that writes keys there itself.
pub fn use_place(store: &Store, place: Place) -> Result<(), WriteError> {
    let Some(bit) = place.bit() else { return Ok(()) };
    store.modify(RECORD, |entry| (changed(entry, |record| record.used |= bit), ()))
}

/// The record after a change.
fn changed(entry: Option<Entry<'_>>, change: impl FnOnce(&mut Record)) -> Change {
    match Record::parse(entry.map(|entry| entry.value)) {
        None => Change::Keep,
        Some(mut record) => {
            change(&mut record);
            Change::Put { value: record.value(), expires_at: None }
        }
    }
}

/// The record after the exchange of the places of two databases, and the new map. `value`: the
/// record before.
pub(crate) fn swapped(value: Option<&[u8]>, one: u8, other: u8) -> (Vec<u8>, Map) {
    assert!(one.max(other) < DATABASES, "the caller has checked the databases");
    let mut record = Record::parse(value).unwrap_or(Record::NONE);
    record.map = record.map.swapped(one, other);
    record.used |= [one, other].iter().filter_map(|&of| record.map.place(of).bit()).sum::<u16>();
    (record.value(), record.map)
}

/// Whether a stored key is the record's.
pub(crate) fn is_record(key: &[u8]) -> bool {
    key == RECORD
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swap_exchanges_two_places() {
        let map = Map::PLAIN.swapped(0, 15);
        assert_eq!([0, 1, 15].map(|of| map.place(of)), [15, 1, 0].map(Place::numbered));
        assert_eq!(map.swapped(15, 0), Map::PLAIN);
        assert_eq!(map.swapped(3, 3), map);
        assert!(map.is_whole() && !Map(0).is_whole());
    }

    #[test]
    fn record_is_read_back() {
        let record = Record { map: Map::PLAIN.swapped(2, 7), used: 0x8042 };
        assert_eq!(Record::parse(Some(&record.value())), Some(record));
        assert_eq!(Record::parse(None), Some(Record::NONE));
        let later = [&[2][..], &record.value()[1..]].concat();
        assert!(
            [&later[..], b"", &record.value()[..10]].iter().all(|value| Record::parse(Some(value)).is_none())
        );
    }
}
