//! Entries that have expired are removed, though nobody asks for them.

use crate::space::memory::Here;
use crate::space::record::Record;
use crate::tier::read::Held;
use crate::write::{New, Writes};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use terrace_disk::Need;
use terrace_engine::Draft;
use terrace_engine::{Rest, WriteError};
use terrace_index::Place;

/// Words of the index that a step of the sweep looks at.
const SWEPT: usize = 1024;
/// A block is swept again when so large a part of the time has passed that its records have left.
const LOOKS: u64 = 8;

/// The sweep for expired entries. It owns the place that it has come to; writes stand below.
#[derive(Default)]
pub(crate) struct Sweep {
    swept: Mutex<Place>,
}

impl Sweep {
    /// Removes some entries that have expired: those in DRAM as the sweep goes through the index,
    /// those of a block when some of it are due.
    pub(crate) fn step(&self, writes: &Writes) -> Result<Rest, WriteError> {
        if writes.records().counters.expiring.load(Relaxed) == 0 {
            return Ok(Rest::Idle);
        }
        let now = writes.journal().settings.clock.now_ms();
        if let Some(block) =
            writes.records().all_blocks().find(|block| block.next_expiry.load(Relaxed) <= now)
        {
            return sweep_block(writes, &block, now);
        }
        let mut removed = 0;
        for probe in self.expired_in_memory(writes)? {
            removed += u64::from(remove_expired(writes, &probe)?);
        }
        Ok(if removed > SWEPT as u64 / 4 { Rest::More } else { Rest::Idle })
    }

    /// The probes of some records in DRAM that have expired.
    fn expired_in_memory(&self, writes: &Writes) -> Result<Vec<Vec<u8>>, WriteError> {
        let memory = writes.records().memory();
        let here = Here::enter(&memory)?;
        let mut swept = self.swept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut expired = Vec::new();
        let next = here.index().scan(&here.guard, &swept, SWEPT, &mut |word| {
            let Some(record) = here.record(word) else { return };
            let is_due = record
                .read_head(&here.guard)
                .is_some_and(|expires_at| writes.records().has_expired(expires_at));
            if is_due {
                expired.extend(record.probe(&here.guard).map(<[u8]>::to_vec));
            }
        });
        *swept = if next.is_end() { Place::Start } else { next };
        Ok(expired)
    }
}

fn sweep_block(writes: &Writes, block: &Held, now: u64) -> Result<Rest, WriteError> {
    let (mut expired, mut next) = (Vec::new(), u64::MAX);
    let read = block.for_each(&mut |_, bytes| {
        let Some(record) = bytes.ok().and_then(Record::read) else { return };
        match record.expires_at {
            Some(at) if at <= now => expired.push(record.probe.to_vec()),
            Some(at) => next = next.min(at),
            None => {}
        }
    });
    // Damage is found by reads and checks.
    let _ = read;
    for probe in expired {
        remove_expired(writes, &probe)?;
    }
    // Each look reads all of the block. So some of what expires waits for others, and the looks
    // are few, however its records expire.
    let left = block.foot.last_expiry.saturating_sub(now);
    block.next_expiry.store(next.max(now.saturating_add(left / LOOKS)), Relaxed);
    Ok(Rest::More)
}

/// Removes the entry of a key if it has expired.
fn remove_expired(writes: &Writes, probe: &[u8]) -> Result<bool, WriteError> {
    let probe = writes.records().probe(&probe[8..]);
    writes.upkeep.with_room(Need::Reserve, || {
        let _stripe = writes.records().stripes.lock(probe.hash());
        let memory = writes.records().memory();
        let here = Here::enter(&memory)?;
        let old = writes
            .records()
            .old(&here, &probe)?
            .filter(|old| writes.records().has_expired(old.copied.expires_at));
        let Some(old) = old else { return Ok(false) };
        let new = New::small(Draft::removal(probe.key()));
        writes.write_locked(&here, &probe, Some(&old), &new)?;
        writes.records().counters.expired.fetch_add(1, Relaxed);
        Ok(true)
    })
}
