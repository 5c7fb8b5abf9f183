//! How the present version of a key is replaced, under the lock of its stripe.

use crate::records::Records;
use crate::space::addresses::{RecordAt, Room};
use crate::space::memory::Here;
use crate::space::pages::NoRoom;
use crate::space::record::{Copied, Kind, LargeValue, Record, Shape, hash_in};
use crate::space::stripes::Locked;
use crate::tier::edit::Edit;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::{Manifest, cold};
use terrace_engine::Live;
use terrace_engine::{ReadError, WriteError};
use terrace_index::Swapped;

/// Why a write did not happen.
pub(crate) enum Stuck {
    /// There is no room now. The bytes that it needs.
    NoRoom(NoRoom, usize),
    Failed(WriteError),
}

impl<E: Into<WriteError>> From<E> for Stuck {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// What a key had.
pub(crate) struct Old {
    pub(crate) address: u64,
    pub(crate) record: Option<RecordAt>,
    pub(crate) copied: Copied,
    /// Whether it cannot be read: then `copied` has its size and number only.
    pub(crate) is_damaged: bool,
}

impl Records {
    /// What a key has, under the lock of its stripe.
    pub(crate) fn old(&self, here: &Here<'_>, probe: &[u8]) -> Result<Option<Old>, ReadError> {
        let (word, read) = self.look_up(here, probe)?;
        let Some(address) = word else { return Ok(None) };
        let record = here.record(address);
        let copied = self.copy(here, address, read)?;
        let copied = copied.ok_or_else(|| self.tier().missing(here.map(), address))?;
        Ok(Some(Old { address, record, copied, is_damaged: false }))
    }

    /// The same for a write that needs no value of it: a damaged record is replaced like any other.
    pub(crate) fn old_to_replace(&self, here: &Here<'_>, probe: &[u8]) -> Result<Option<Old>, ReadError> {
        let damage = match self.old(here, probe) {
            Err(damage @ ReadError::Corrupt { .. }) => damage,
            old => return old,
        };
        let map = here.map();
        let Some(address) = self.look_up(here, probe)?.0 else { return Err(damage) };
        let Some(block) = self.tier().block(map.block_of(address)) else { return Err(damage) };
        let mention = block.mention_of(hash_in(probe), map.offset_of(address))?;
        let mention = mention.ok_or(damage)?;
        let shape = Shape { key_len: probe.len() - 8, value_len: 0, expires: false, kind: Kind::Value };
        let value_len = (8 * mention.words as usize).saturating_sub(shape.size());
        let shape = Shape { value_len, ..shape };
        let copied = Copied { shape, seq: mention.seq, expires_at: None, inline: Vec::new() };
        Ok(Some(Old { address, record: None, copied, is_damaged: true }))
    }

    /// The entry that a key had.
    pub(crate) fn live_of(&self, old: Option<&Old>) -> Result<Option<Live>, ReadError> {
        let Some(old) = old else { return Ok(None) };
        let live = self.live(old.copied.clone())?;
        live.ok_or_else(|| self.missing_large(LargeValue::read(&old.copied.inline)).into())
    }

    /// Changes the index's word of a key, under the lock of its stripe.
    pub(crate) fn swap(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        (from, to): (Option<u64>, Option<u64>),
    ) -> Result<(), WriteError> {
        loop {
            let swapped = here.index().compare_and_swap(&here.guard, probe, from, to)?;
            let met = here.search.take_met();
            match (swapped, met) {
                (Swapped::Done, _) => return Ok(()),
                // Its page was freed just now.
                (Swapped::Found(_), Some(met)) => {
                    // Something may have changed already.
                    if let Some(bytes) = cold::waiting(|| self.read_cold(here.map(), met))? {
                        here.search.note(met, Record::read(&bytes).expect("read just now").probe);
                    }
                }
                (Swapped::Found(_), None) => {
                    let what = "the index has changed a key that was locked";
                    return Err(WriteError::Corrupt { place: terrace_engine::Place::Pool(0), what });
                }
            }
        }
    }

    /// Gives up a record that nobody has seen. A flush leaves it out.
    pub(crate) fn waste(&self, here: &Here<'_>, room: &Room) {
        // It stays locked, so that it is no tombstone either.
        let bytes = room.record.room(&here.guard) as u64;
        here.dead_of(room.address).fetch_add(bytes, Relaxed);
    }

    /// Counts a record as dead.
    pub(crate) fn bury(&self, here: &Here<'_>, old: &Old) {
        let mut address = old.address;
        if let Some(record) = old.record.filter(|record| record.is_copy()) {
            address = record.original(&here.guard);
        }
        let bytes = old.copied.shape.size() as u64;
        here.dead_of(address).fetch_add(bytes, Relaxed);
    }

    /// Counts a live record in, and out.
    pub(crate) fn count_in(&self, shape: Shape) {
        if shape.kind != Kind::Tombstone {
            self.counters.data.fetch_add((shape.key_len + shape.value_len) as u64, Relaxed);
            self.counters.expiring.fetch_add(u64::from(shape.expires), Relaxed);
        }
    }

    /// See [`Records::count_in`].
    pub(crate) fn uncount(&self, shape: Shape) {
        if shape.kind != Kind::Tombstone {
            // After an open, these are estimates.
            let less = |counter: &AtomicU64, by: u64| {
                _ = counter.fetch_update(Relaxed, Relaxed, |count| Some(count.saturating_sub(by)));
            };
            less(&self.counters.data, (shape.key_len + shape.value_len) as u64);
            less(&self.counters.expiring, shape.expires.into());
        }
    }

    /// Dooms the large value of a dead record, unless the present version of its key is the same
    /// write: an open that sealed what the log had leaves two records of one. `all`: the caller has
    /// locked all stripes.
    pub(crate) fn doom(
        &self,
        here: &Here<'_>,
        probe: &[u8],
        (large, seq): (LargeValue, u64),
        all: Option<&Locked<'_>>,
    ) -> Result<(), ReadError> {
        let _stripe = all.is_none().then(|| self.stripes.lock(hash_in(probe)));
        here.search.forget();
        let present = self.old_to_replace(here, probe)?;
        if present.is_none_or(|present| present.copied.seq != seq) {
            // Twice does no harm. Its bytes were counted when it was replaced.
            self.journal.large.doom(large, seq, 0);
        }
        Ok(())
    }

    /// An edit that makes the present blocks out of nothing. Called under the manifest's lock.
    pub(crate) fn whole(&self) -> Edit {
        Edit {
            cleared: Some(self.journal.cleared_at.load(Relaxed)),
            added: self.all_blocks().map(|block| block.summed()).collect(),
            removed: Vec::new(),
            block_shift: self.memory().pages.block_bytes().ilog2(),
        }
    }

    /// See [`Journal::write_edit`](crate::journal::Journal::write_edit).
    pub(crate) fn write_edit(&self, manifest: &mut Option<Manifest>, edit: &Edit) -> Result<(), WriteError> {
        self.journal.write_edit(manifest, edit, || self.whole())
    }

    /// See [`Journal::release_log`](crate::journal::Journal::release_log).
    pub(crate) fn release_log(&self, bound: u64) -> Result<(), WriteError> {
        self.journal.release_log(bound, || self.memory().open.first_unsealed_seq())
    }
}
