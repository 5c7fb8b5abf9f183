//! Reads of single keys.

use crate::cache::Side;
use crate::space::addresses::Map;
use crate::space::memory::Here;
use crate::space::record::{Copied, Kind, LargeValue, Record, hash_in};
use crate::store::Tiered;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use terrace_disk::DiskError;
use terrace_disk::cold::ColdReads;
use terrace_engine::Live;
use terrace_engine::{Place, ReadError, Value, Version};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Bytes of a key whose probe needs no memory of its own.
const SHORT: usize = 120;
/// Looks at a key that changes all the time, after which a thread lets others work first.
const SPINS: u32 = 64;
/// Looks after which it gives its processor up for a while.
const YIELDS: u32 = 1024;
const NAP: Duration = Duration::from_micros(100);
/// Looks after which what changes must be damage.
const LOOKS_MAX: u32 = 1 << 20;

/// The hash of a key and the key.
pub(crate) struct Probe {
    short: [u8; SHORT + 8],
    long: Vec<u8>,
    len: usize,
}

impl Probe {
    #[inline]
    pub(crate) fn of(hash: u64, key: &[u8]) -> Self {
        let mut probe = Self { short: [0; SHORT + 8], long: Vec::new(), len: key.len() + 8 };
        if key.len() <= SHORT {
            probe.short[..8].copy_from_slice(&hash.to_le_bytes());
            probe.short[8..probe.len].copy_from_slice(key);
        } else {
            probe.long = [&hash.to_le_bytes(), key].concat();
        }
        probe
    }

    pub(crate) fn hash(&self) -> u64 {
        hash_in(self)
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self[8..]
    }
}

impl std::ops::Deref for Probe {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        if self.long.is_empty() { &self.short[..self.len] } else { &self.long }
    }
}

/// A key's word in the index, and its record's bytes if it was read from the tier.
pub(crate) type Word = (Option<u64>, Option<(u64, Vec<u8>)>);

/// An address that had no record, and the open block in which it had none.
///
/// Once is no damage: the record may have been replaced, and dropped. But the index names no
/// address that is dead. So if it names it again, and the same block has it not, that is damage.
#[derive(Default)]
struct Missed(Option<(Option<u64>, u64)>);

impl Missed {
    /// Notes it, and returns whether it is the same as before.
    fn is_again(&mut self, opened: Option<u64>, address: u64) -> bool {
        self.0.replace((opened, address)) == Some((opened, address))
    }
}

impl Tiered {
    #[inline]
    pub(crate) fn probe(&self, key: &[u8]) -> Probe {
        Probe::of(xxh3_64_with_seed(key, self.id()), key)
    }

    /// The record at an address on the tier; `None` if it is dead, and was dropped.
    pub(crate) fn read_cold(&self, map: Map, address: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let Some(block) = self.block(map.block_of(address)) else { return Ok(None) };
        self.counters.cold_reads.fetch_add(1, Relaxed);
        block.find(map.offset_of(address))
    }

    /// What the index has for a probe. Reads the cold records that may be the key's. Of a damaged
    /// one, the entries of its block tell the key.
    pub(crate) fn look_up(&self, here: &Here<'_>, probe: &[u8]) -> Result<Word, ReadError> {
        let (mut read, mut missed) = (None, Missed::default());
        for looks in 0..LOOKS_MAX {
            let word = here.index().get(&here.guard, probe);
            if here.memory.has_failed.load(Relaxed) {
                // It was cleared while its index grew: nothing names that any more.
                if !self.is_present(here) {
                    return Ok((None, None));
                }
                let what = "a record was unreadable when the index grew; open the store again";
                return Err(ReadError::Corrupt { place: Place::Pool(0), what });
            }
            let Some(met) = here.search.take_met() else {
                return Ok((word, read.filter(|(address, _)| Some(*address) == word)));
            };
            let map = here.map();
            match self.read_cold(map, met) {
                Ok(Some(bytes)) => {
                    here.search.note(met, Record::read(&bytes).expect("read just now").probe);
                    read = Some((met, bytes));
                }
                // It was replaced meanwhile, or moved to DRAM.
                Ok(None) if !missed.is_again(self.opened(map, met), met) => relax(looks),
                // It was cleared: nothing names this index any more.
                Ok(None) if !self.is_present(here) => return Ok((None, None)),
                Ok(None) => self.note_damaged(here, probe, met, self.missing(map, met))?,
                Err(error @ DiskError::Corrupt { .. }) => self.note_damaged(here, probe, met, error)?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(ReadError::Corrupt { place: Place::Pool(0), what: "the index changes without end" })
    }

    /// Tells a search whether the damaged record at an address is the one that it looks for.
    ///
    /// # Errors
    /// The damage, if the entries do not tell.
    fn note_damaged(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        met: u64,
        damage: DiskError,
    ) -> Result<(), ReadError> {
        let second = here.search.second_in(probe);
        let map = here.map();
        // Another hash than the probe's: another key.
        let mention = match self.block(map.block_of(met)) {
            Some(block) => block.mention_of(hash_in(probe), map.offset_of(met))?,
            None => return Err(damage.into()),
        };
        match mention {
            Some(mention) if mention.second == second => here.search.note_as(met, probe),
            _ => here.search.note_as(met, &[]),
        }
        Ok(())
    }

    /// A number of the open block of an address, which another file does not have.
    fn opened(&self, map: Map, address: u64) -> Option<u64> {
        Some(self.block(map.block_of(address))?.opened())
    }

    /// Whether the store has still this memory.
    fn is_present(&self, here: &Here<'_>) -> bool {
        std::ptr::eq(here.memory, &**self.memory())
    }

    /// The damage that there is no record at an address which the index names.
    pub(crate) fn missing(&self, map: Map, address: u64) -> DiskError {
        let block = self.block(map.block_of(address));
        let what = "a block is missing that the index names";
        block.map_or(DiskError::corrupt(self.path(), 0, what), |block| block.missing(map.offset_of(address)))
    }

    /// The present version of a key, a tombstone as well.
    pub(crate) fn find(&self, probe: &[u8]) -> Result<Option<Copied>, ReadError> {
        let memory = self.memory();
        let here = Here::enter(&memory)?;
        let stripe = self.stripes.of(hash_in(probe));
        let mut missed = Missed::default();
        for looks in 0..LOOKS_MAX {
            let (found, read) = self.look_up(&here, probe)?;
            let word = stripe.before(probe).unwrap_or(found);
            let Some(address) = word else { return Ok(None) };
            if let Some(record) = here.record(address) {
                if record.is_copy() {
                    record.touch(&here.guard);
                    self.division.count(Side::Copies);
                } else {
                    self.division.count(Side::Writes);
                }
                if let Some(copied) = record.read(&here.guard) {
                    return Ok(Some(copied));
                }
            } else if let Some(bytes) = self.cold_bytes(&here, address, read)?
                // After a clear, a block of another time may have the number.
                && Record::read(&bytes).is_some_and(|record| record.probe == probe)
            {
                self.division.count(Side::Cold);
                self.copy_in(&here, address, &bytes);
                return Ok(Some(Copied::of(&Record::read(&bytes).expect("read just now"))));
            } else if missed.is_again(self.opened(here.map(), address), address) {
                match self.is_present(&here) {
                    true => return Err(self.missing(here.map(), address).into()),
                    false => return Ok(None),
                }
            }
            relax(looks);
        }
        Err(ReadError::Corrupt { place: Place::Pool(0), what: "a record is written without end" })
    }

    /// The record at an address, wherever it is. `None` if it has changed meanwhile.
    pub(crate) fn copy(
        &self,
        here: &Here<'_>,
        address: u64,
        read: Option<(u64, Vec<u8>)>,
    ) -> Result<Option<Copied>, ReadError> {
        if let Some(record) = here.record(address) {
            return Ok(record.read(&here.guard));
        }
        let bytes = self.cold_bytes(here, address, read)?;
        Ok(bytes.map(|bytes| Copied::of(&Record::read(&bytes).expect("read just now"))))
    }

    /// The bytes of a record on the tier, which may have been read.
    fn cold_bytes(
        &self,
        here: &Here<'_>,
        address: u64,
        read: Option<(u64, Vec<u8>)>,
    ) -> Result<Option<Vec<u8>>, ReadError> {
        match read.filter(|(of, _)| *of == address) {
            Some((_, bytes)) => Ok(Some(bytes)),
            None => Ok(self.read_cold(here.map(), address)?),
        }
    }

    /// The entry that a version is, if it is one. `None` if its large value was removed meanwhile.
    pub(crate) fn live(&self, copied: Copied) -> Result<Option<Option<Live>>, ReadError> {
        let Copied { shape, seq, expires_at, inline } = copied;
        if shape.kind == Kind::Tombstone || self.has_expired(expires_at) {
            return Ok(Some(None));
        }
        let value = match shape.kind {
            Kind::Large => {
                let large = LargeValue::read(&inline).expect("as long as a reference");
                let Some(value) = self.read_large(large, shape.value_len)? else { return Ok(None) };
                value
            }
            _ => inline,
        };
        Ok(Some(Some(Live { seq, value, expires_at })))
    }

    /// The present entry of a key.
    pub(crate) fn find_live(&self, probe: &[u8]) -> Result<Option<Live>, ReadError> {
        let mut seen = None;
        for looks in 0..LOOKS_MAX {
            let Some(copied) = self.find(probe)? else { return Ok(None) };
            let (seq, damage) = (copied.seq, self.missing_large(&copied.inline));
            let is_tombstone = copied.shape.kind == Kind::Tombstone;
            let live = self.live(copied)?;
            if is_tombstone || matches!(live, Some(Some(_))) {
                return Ok(live.flatten());
            }
            // Its file goes when the version does. One that has expired may have been replaced
            // after the search and before the clock was read.
            if seen.replace(seq) == Some(seq) {
                return live.ok_or_else(|| damage.into());
            }
            relax(looks);
        }
        Err(ReadError::Corrupt { place: Place::Pool(0), what: "a key changes without end" })
    }

    /// The damage that the file is not there which stands in the place of a value.
    pub(crate) fn missing_large(&self, inline: &[u8]) -> DiskError {
        let number = LargeValue::read(inline).map_or(0, |large| large.number);
        let path = crate::tier::large::path_of(self.path(), number);
        DiskError::corrupt(&path, 0, "the file of a large value is missing")
    }

    pub(crate) fn get_value(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.standing.check_process()?;
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(None);
        }
        Ok(self.find_live(&self.probe(key))?.map(Live::into_value))
    }

    /// The values of some keys, whose cold reads are made at once.
    pub(crate) fn get_together(&self, keys: &[&[u8]]) -> Vec<Result<Option<Value<'_>>, ReadError>> {
        let mut cold = ColdReads::default();
        let mut values: Vec<_> = cold.run(|| keys.iter().map(|key| self.get_value(key)).collect());
        if cold.is_stuck() {
            cold.make();
            // One that was moved meanwhile, or is large, is read by itself.
            for (key, value) in keys.iter().zip(&mut values) {
                if value.as_ref().is_err_and(ReadError::is_put_off) {
                    *value = cold.run(|| self.get_value(key));
                }
                if value.as_ref().is_err_and(ReadError::is_put_off) {
                    *value = self.get_value(key);
                }
            }
        }
        values
    }

    /// The state of a key. `removals` is the count from before it was looked up.
    pub(crate) fn version_of(&self, removals: u64, found: Option<Copied>) -> Version {
        let found = found.filter(|copied| copied.shape.kind != Kind::Tombstone);
        let present = found.map(|copied| (copied.seq.into(), self.has_expired(copied.expires_at)));
        Version::seen(removals, present)
    }

    pub(crate) fn present_version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.standing.check_process()?;
        let removals = self.removals.of(key);
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(self.version_of(removals, None));
        }
        Ok(self.version_of(removals, self.find(&self.probe(key))?))
    }
}

/// Waits for a thread that is about to end what it does. A writer may have to wait for a file.
pub(crate) fn relax(looks: u32) {
    match looks {
        0..SPINS => std::hint::spin_loop(),
        SPINS..YIELDS => std::thread::yield_now(),
        _ => std::thread::park_timeout(NAP),
    }
}
