//! Reads of single keys.

use crate::cache::{Cache, Side};
use crate::records::{LOOKS_MAX, Missed, Records, relax};
use crate::space::memory::Here;
use crate::space::record::{Copied, Kind, LargeValue, Record, hash_in};
use crate::tier::files::Tier;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::cold::ColdReads;
use terrace_engine::Live;
use terrace_engine::{Place, ReadError, Value, Version};

/// Reads, with copies of what is read often. It owns the cache; records stand below, and writes
/// above.
pub(crate) struct Reads {
    pub(crate) records: Records,
    pub(crate) cache: Cache,
    /// Gives numbers that nobody can guess.
    chance: AtomicU64,
}

impl Reads {
    pub(crate) fn new(records: Records, chance: u64) -> Self {
        Self { records, cache: Cache::default(), chance: AtomicU64::new(chance) }
    }

    #[inline(always)]
    pub(crate) fn tier(&self) -> &Tier {
        &self.records.journal.tier
    }

    /// A number that nobody can guess.
    pub(crate) fn draw(&self) -> u64 {
        terrace_engine::mix(self.chance.fetch_add(0x9e37_79b9_7f4a_7c15, Relaxed))
    }

    /// The present version of a key, a tombstone as well.
    pub(crate) fn find(&self, probe: &[u8]) -> Result<Option<Copied>, ReadError> {
        let memory = self.records.memory();
        let here = Here::enter(&memory)?;
        let stripe = self.records.stripes.of(hash_in(probe));
        let mut missed = Missed::default();
        for looks in 0..LOOKS_MAX {
            let (found, read) = self.records.look_up(&here, probe)?;
            let word = stripe.before(probe).unwrap_or(found);
            let Some(address) = word else { return Ok(None) };
            if let Some(record) = here.record(address) {
                self.cache.count_hit(&here, record);
                if let Some(copied) = record.read(&here.guard) {
                    return Ok(Some(copied));
                }
            } else if let Some(bytes) = self.records.cold_bytes(&here, address, read)?
                // After a clear, a block of another time may have the number.
                && Record::read(&bytes).is_some_and(|record| record.probe == probe)
            {
                self.cache.division.count(Side::Cold);
                self.cache.copy_in(&self.records, &here, address, &bytes);
                return Ok(Some(Copied::of(&Record::read(&bytes).expect("read just now"))));
            } else if missed.is_again(self.tier().opened(here.map(), address), address) {
                match self.records.is_present(&here) {
                    true => return Err(self.tier().missing(here.map(), address).into()),
                    false => return Ok(None),
                }
            }
            relax(looks);
        }
        Err(ReadError::Corrupt { place: Place::Pool(0), what: "a record is written without end" })
    }

    /// The present entry of a key.
    pub(crate) fn find_live(&self, probe: &[u8]) -> Result<Option<Live>, ReadError> {
        let mut seen = None;
        for looks in 0..LOOKS_MAX {
            let Some(copied) = self.find(probe)? else { return Ok(None) };
            let (seq, large) = (copied.seq, LargeValue::read(&copied.inline));
            let is_tombstone = copied.shape.kind == Kind::Tombstone;
            let live = self.records.live(copied)?;
            if is_tombstone || matches!(live, Some(Some(_))) {
                return Ok(live.flatten());
            }
            // Its file goes when the version does. One that has expired may have been replaced
            // after the search and before the clock was read.
            if seen.replace(seq) == Some(seq) {
                return live.ok_or_else(|| self.records.missing_large(large).into());
            }
            relax(looks);
        }
        Err(ReadError::Corrupt { place: Place::Pool(0), what: "a key changes without end" })
    }

    pub(crate) fn get_value(&self, key: &[u8]) -> Result<Option<Value<'_>>, ReadError> {
        self.tier().standing.check_process()?;
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(None);
        }
        Ok(self.find_live(&self.records.probe(key))?.map(Live::into_value))
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

    pub(crate) fn present_version(&self, key: &[u8]) -> Result<Version, ReadError> {
        self.tier().standing.check_process()?;
        let removals = self.records.removals.of(key);
        if key.len() > terrace_engine::KEY_MAX {
            return Ok(self.records.version_of(removals, None));
        }
        Ok(self.records.version_of(removals, self.find(&self.records.probe(key))?))
    }
}
