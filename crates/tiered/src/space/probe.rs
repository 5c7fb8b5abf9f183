//! How the index compares the records that its words name, wherever these lie.
//!
//! The index calls [`Probes`] with an address and with the probe that it looks for. A record in
//! DRAM is compared at once. A *cold* one lies on the tier alone, and no I/O happens below the
//! index: the search goes on as if it were another key's, the address is noted, and the engine
//! reads the record and searches again, with what it knows now. So a search is over when nothing
//! was noted. All this is a thread's own: a search begins and ends within one call.
//!
//! An index that grows may need the hash of a key that it moves. Turbo never does. For the others a
//! cold record is read at once, below the index's locks, through the reader that its space names.

use super::addresses::{Map, RecordAt};
use super::record::{hash_in, second_hash};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use terrace_index::{Bytes, RecordKeys};
use terrace_medium::MappedMedium;
use terrace_pool::Guard;

/// The kind of keys that the index of such a store has: probes.
pub type Kind = Bytes<Probes>;

/// The records that the index's words name.
pub struct Probes;

/// How records are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    /// By the hash and the key.
    Keys,
    /// By two hashes, which the probe consists of.
    Hashes,
}

/// What a thread knows in a search.
struct Known {
    /// Cold records that were read: their addresses and probes.
    read: Vec<(u64, Box<[u8]>)>,
    /// A cold record that was not read, and that the search met.
    met: Option<u64>,
}

thread_local! {
    /// The space in which addresses lie.
    static MAP: Cell<Option<Map>> = const { Cell::new(None) };
    static MODE: Cell<Mode> = const { Cell::new(Mode::Keys) };
    static KNOWN: RefCell<Known> = const { RefCell::new(Known { read: Vec::new(), met: None }) };
}

/// A search of this thread, until it is dropped.
pub(crate) struct Search {
    outer: Option<Map>,
}

impl Search {
    /// Begins a search for records in the space `map`.
    #[inline(always)]
    pub(crate) fn begin(map: Map) -> Self {
        Self { outer: MAP.replace(Some(map)) }
    }

    /// Begins one for probes that consist of the two hashes of a key.
    pub(crate) fn by_hashes(map: Map) -> Self {
        MODE.set(Mode::Hashes);
        Self::begin(map)
    }

    /// The cold record that was met, if there is one.
    #[inline(always)]
    pub(crate) fn take_met(&self) -> Option<u64> {
        KNOWN.with_borrow_mut(|known| known.met.take())
    }

    /// The second hash of the key that a probe of this search stands for.
    pub(crate) fn second_in(&self, probe: &[u8]) -> u64 {
        match MODE.get() {
            Mode::Keys => second_hash(&probe[8..]),
            Mode::Hashes => hash_in(&probe[8..]),
        }
    }

    /// Forgets the records that were read: another key comes.
    pub(crate) fn forget(&self) {
        KNOWN.with_borrow_mut(|known| known.read.clear());
    }

    /// Notes the probe of a cold record that was read.
    pub(crate) fn note(&self, address: u64, probe: &[u8]) {
        match MODE.get() {
            Mode::Keys => self.note_as(address, probe),
            Mode::Hashes => self.note_as(address, &hashes_of(probe)),
        }
    }

    /// Notes what a cold record has in the place of a probe of this search.
    pub(crate) fn note_as(&self, address: u64, probe: &[u8]) {
        let probe = Box::from(probe);
        KNOWN.with_borrow_mut(|known| {
            known.read.retain(|(other, _)| *other != address);
            known.read.push((address, probe));
        });
    }
}

impl Drop for Search {
    fn drop(&mut self) {
        MAP.set(self.outer);
        MODE.set(Mode::Keys);
        KNOWN.with_borrow_mut(|known| {
            known.met = None;
            known.read.clear();
        });
    }
}

/// Reads cold records for an index that moves them.
pub(crate) trait ReadCold: Send + Sync {
    /// The probe of the record at an address; `None` if it cannot be read. Then the index is not to
    /// be trusted any more.
    fn probe_at(&self, map: Map, address: u64) -> Option<Box<[u8]>>;
}

/// The readers of all memories of this process, by their numbers.
static READERS: RwLock<Option<HashMap<u64, Weak<dyn ReadCold>>>> = RwLock::new(None);

/// A number for a reader.
pub(crate) fn reader_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Relaxed)
}

/// Notes the reader with this number, as long as it is in use.
pub(crate) fn note_reader(number: u64, reader: &Arc<dyn ReadCold>) {
    let mut readers = READERS.write().unwrap_or_else(PoisonError::into_inner);
    let readers = readers.get_or_insert_default();
    readers.retain(|_, reader| reader.strong_count() > 0);
    readers.insert(number, Arc::downgrade(reader));
}

/// Whether an index with this name moves its keys without reading their records, so that it needs
/// nothing from the tier when it grows.
pub fn grows_without_reading(index: &str) -> bool {
    index == "turbo"
}

/// The probe of a cold record, which is read now.
#[cold]
fn read_probe(map: Map, address: u64) -> Option<Box<[u8]>> {
    let known = KNOWN.with_borrow(|known| {
        let is_whole = MODE.get() == Mode::Keys;
        known.read.iter().find(|(other, _)| is_whole && *other == address).map(|(_, probe)| probe.clone())
    });
    if known.is_some() {
        return known;
    }
    let reader = {
        let readers = READERS.read().unwrap_or_else(PoisonError::into_inner);
        readers.as_ref()?.get(&map.reader())?.upgrade()?
    };
    reader.probe_at(map, address)
}

/// The two hashes of a key, from its probe.
fn hashes_of(probe: &[u8]) -> Box<[u8]> {
    [&probe[..8], &second_hash(&probe[8..]).to_le_bytes()].concat().into()
}

fn is_of_cold(address: u64, probe: &[u8]) -> bool {
    KNOWN.with_borrow_mut(|known| match known.read.iter().find(|(other, _)| *other == address) {
        Some((_, of_record)) => **of_record == *probe,
        None => {
            known.met = Some(address);
            false
        }
    })
}

impl RecordKeys for Probes {
    /// Of records in DRAM only: the index must be a hash table.
    fn key<'g, M: MappedMedium>(guard: &'g Guard<'_, M>, address: u64) -> Option<&'g [u8]> {
        RecordAt::find(guard, MAP.get()?, address)?.probe(guard)
    }

    #[inline(always)]
    fn is<M: MappedMedium>(guard: &Guard<'_, M>, address: u64, probe: &[u8]) -> bool {
        let map = MAP.get().expect("a search has begun");
        match RecordAt::find(guard, map, address) {
            Some(record) if MODE.get() == Mode::Keys => record.probe(guard) == Some(probe),
            Some(record) => record.probe(guard).is_some_and(|own| *hashes_of(own) == *probe),
            None => is_of_cold(address, probe),
        }
    }

    #[inline(always)]
    fn hash(probe: &[u8], _: u64) -> u64 {
        hash_in(probe)
    }

    fn hash_at<M: MappedMedium>(guard: &Guard<'_, M>, address: u64, _: u64) -> Option<u64> {
        let map = MAP.get()?;
        match RecordAt::find(guard, map, address) {
            Some(record) => record.probe(guard).map(hash_in),
            None => read_probe(map, address).as_deref().map(hash_in),
        }
    }

    fn is_same<M: MappedMedium>(guard: &Guard<'_, M>, one: u64, other: u64) -> bool {
        let Some(map) = MAP.get() else { return false };
        let probe = |address| match RecordAt::find(guard, map, address) {
            Some(record) => record.probe(guard).map(Box::from),
            None => read_probe(map, address),
        };
        one == other || probe(one).is_some_and(|one| Some(one) == probe(other))
    }

    /// Damage of a cold record is found when it is read.
    fn is_sound<M: MappedMedium>(_: &Guard<'_, M>, _: u64) -> bool {
        true
    }

    #[inline(always)]
    fn prefetch<M: MappedMedium>(guard: &Guard<'_, M>, address: u64) {
        if let Some(record) = MAP.get().and_then(|map| RecordAt::find(guard, map, address)) {
            guard.pool().region().prefetch(record.at());
        }
    }
}
