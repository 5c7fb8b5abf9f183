//! The records of a store: where the present version of a key lies, and what it is.
//!
//! An index in DRAM names records by addresses. Those in DRAM are read at once; others lie in a
//! block on the tier.
//!
//! # Locks
//! In this order: that of the thread that reorganises, that of the one that flushes, the
//! manifest's, stripes in the order of their places, a seat's, the residents', that of unsynced
//! large values. The log has its own below all. The manifest's is held for the sync of an edit.
//! Nobody waits for room, or for the disk, with a stripe locked, but to read a cold record that
//! came into the way.

use crate::journal::Journal;
use crate::space::addresses::Map;
use crate::space::key::Probe;
use crate::space::memory::{Here, Memory};
use crate::space::record::{Copied, Kind, LargeValue, Record, hash_in};
use crate::space::stripes::Stripes;
use crate::tier::files::Tier;
use crate::tier::large;
use crate::tier::read::Held;
use arc_swap::ArcSwap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use terrace_disk::DiskError;
use terrace_engine::Live;
use terrace_engine::Removals;
use terrace_engine::{Place, ReadError, TierStats, Version};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Looks at a key that changes all the time, after which a thread lets others work first.
const SPINS: u32 = 64;
/// Looks after which it gives its processor up for a while.
const YIELDS: u32 = 1024;
const NAP: Duration = Duration::from_micros(100);
/// Looks after which what changes must be damage.
pub(crate) const LOOKS_MAX: u32 = 1 << 20;

/// The records of a store. It owns the index and the pages in DRAM, the locks of keys and the
/// counters; the journal and, below it, the tier stand below.
pub(crate) struct Records {
    pub(crate) journal: Journal,
    pub(crate) memory: ArcSwap<Memory>,
    pub(crate) stripes: Stripes,
    pub(crate) removals: Removals,
    pub(crate) counters: Counters,
    /// Records that indexes have read when they grew.
    pub(crate) index_reads: Arc<AtomicU64>,
}

/// Numbers since the store was opened, in lines that have nothing which each operation reads.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    /// Bytes of keys and values that were written by users.
    pub(crate) written: AtomicU64,
    /// Bytes of keys and values that live records have, about.
    pub(crate) data: AtomicU64,
    /// Live records with an expiry, about.
    pub(crate) expiring: AtomicU64,
    pub(crate) expired: AtomicU64,
    /// Reads of the tier.
    pub(crate) cold_reads: AtomicU64,
    /// Writes in place and to new places.
    pub(crate) in_place: AtomicU64,
    pub(crate) appended: AtomicU64,
    /// Bytes that flushes and rewrites wrote to the tier.
    pub(crate) flushed_bytes: AtomicU64,
    pub(crate) rewritten_bytes: AtomicU64,
    pub(crate) flushes: AtomicU64,
    pub(crate) rewrites: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) stalled_ms: AtomicU64,
    pub(crate) skipped: AtomicU64,
}

/// A key's word in the index, and its record's bytes if it was read from the tier.
pub(crate) type Word = (Option<u64>, Option<(u64, Vec<u8>)>);

/// An address that had no record, and the open block in which it had none.
///
/// Once is no damage: the record may have been replaced, and dropped. But the index names no
/// address that is dead. So if it names it again, and the same block has it not, that is damage.
#[derive(Default)]
pub(crate) struct Missed(Option<(Option<u64>, u64)>);

impl Missed {
    /// Notes it, and returns whether it is the same as before.
    pub(crate) fn is_again(&mut self, opened: Option<u64>, address: u64) -> bool {
        self.0.replace((opened, address)) == Some((opened, address))
    }
}

impl Counters {
    /// Adds the counts of the tier to its figures.
    pub(crate) fn add_to(&self, tier: &mut TierStats) {
        let counter = |counter: &AtomicU64| counter.load(Relaxed);
        tier.written_bytes = counter(&self.written);
        tier.flushed_bytes = counter(&self.flushed_bytes);
        tier.rewritten_bytes = counter(&self.rewritten_bytes);
        tier.flushes = counter(&self.flushes);
        tier.rewrites = counter(&self.rewrites);
        tier.cold_reads += counter(&self.cold_reads);
        tier.in_place = counter(&self.in_place);
        tier.appended = counter(&self.appended);
        tier.stalls = counter(&self.stalls);
        tier.stalled_ms = counter(&self.stalled_ms);
    }
}

impl Records {
    #[inline(always)]
    pub(crate) fn tier(&self) -> &Tier {
        &self.journal.tier
    }

    /// The memory that the store has now. Writers ask for it with their stripes locked.
    #[inline(always)]
    pub(crate) fn memory(&self) -> arc_swap::Guard<Arc<Memory>> {
        self.memory.load()
    }

    pub(crate) fn has_expired(&self, expires_at: Option<u64>) -> bool {
        expires_at.is_some_and(|at| self.journal.settings.clock.has_come(at))
    }

    /// All blocks on the tier.
    pub(crate) fn all_blocks(&self) -> impl Iterator<Item = Held> + '_ {
        let end = self.memory().pages.numbers.end();
        self.tier().blocks_below(end)
    }

    #[inline]
    pub(crate) fn probe(&self, key: &[u8]) -> Probe {
        Probe::of(xxh3_64_with_seed(key, self.tier().id()), key)
    }

    /// The record at an address on the tier; `None` if it is dead, and was dropped.
    pub(crate) fn read_cold(&self, map: Map, address: u64) -> Result<Option<Vec<u8>>, DiskError> {
        let Some(block) = self.tier().block(map.block_of(address)) else { return Ok(None) };
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
                Ok(None) if !missed.is_again(self.tier().opened(map, met), met) => relax(looks),
                // It was cleared: nothing names this index any more.
                Ok(None) if !self.is_present(here) => return Ok((None, None)),
                Ok(None) => self.note_damaged(here, probe, met, self.tier().missing(map, met))?,
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
        let mention = match self.tier().block(map.block_of(met)) {
            Some(block) => block.mention_of(hash_in(probe), map.offset_of(met))?,
            None => return Err(damage.into()),
        };
        match mention {
            Some(mention) if mention.second == second => here.search.note_as(met, probe),
            _ => here.search.note_as(met, &[]),
        }
        Ok(())
    }

    /// Whether the store has still this memory.
    pub(crate) fn is_present(&self, here: &Here<'_>) -> bool {
        std::ptr::eq(here.memory, &**self.memory())
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
    pub(crate) fn cold_bytes(
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

    /// The state of a key. `removals` is the count from before it was looked up.
    pub(crate) fn version_of(&self, removals: u64, found: Option<Copied>) -> Version {
        let found = found.filter(|copied| copied.shape.kind != Kind::Tombstone);
        let present = found.map(|copied| (copied.seq.into(), self.has_expired(copied.expires_at)));
        Version::seen(removals, present)
    }

    /// Whether the index's word of a key is one of these. A writer that has changed it, and takes
    /// that back, does not count.
    pub(crate) fn names(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        is_one: impl Fn(u64) -> bool,
    ) -> Result<bool, ReadError> {
        self.settled(here, probe, |word| word.is_some_and(&is_one), |is_named| *is_named)
    }

    /// What the index's word of a key tells: at once if it `is_enough`, or when no writer is about
    /// to change it, or to take that back.
    pub(crate) fn settled<T>(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        tell: impl Fn(Option<u64>) -> T,
        is_enough: impl Fn(&T) -> bool,
    ) -> Result<T, ReadError> {
        let hash = crate::space::record::hash_in(probe);
        let before = self.stripes.of(hash).changes();
        let look = || Ok::<_, ReadError>(tell(self.look_up(here, probe)?.0));
        let told = look()?;
        if is_enough(&told) || before.is_some() && self.stripes.of(hash).changes() == before {
            return Ok(told);
        }
        let _stripe = self.stripes.lock(hash);
        look()
    }

    /// Bytes from which on a value is large.
    pub(crate) fn large_from(&self) -> usize {
        (self.memory().pages.page_bytes() / 4).min(256 << 10)
    }

    /// A large value of so many bytes; `None` if its file is gone.
    pub(crate) fn read_large(&self, value: LargeValue, len: usize) -> Result<Option<Vec<u8>>, ReadError> {
        Ok(large::read(&self.tier().files, self.tier().path(), value, len)?)
    }

    /// The damage that the file is not there which stands in the place of a value.
    pub(crate) fn missing_large(&self, large: Option<LargeValue>) -> DiskError {
        large::missing(self.tier().path(), large)
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
