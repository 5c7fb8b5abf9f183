//! The newest records of all blocks come into the index.

use crate::error::TieredError;
use crate::space::memory::Here;
use crate::space::record::{Kind, Shape};
use crate::tier::entries::{Entries, Found};
use crate::write::Writes;
use std::sync::atomic::Ordering::Relaxed;
use terrace_disk::Need;
use terrace_engine::WriteError;
use terrace_index::Swapped;

/// Records that are looked up together.
const GROUP: usize = 64;

/// The probe of a key of which the hashes are known.
fn probe_of(found: &Found) -> [u8; 16] {
    let mut probe = [0; 16];
    probe[..8].copy_from_slice(&found.hash.to_le_bytes());
    probe[8..].copy_from_slice(&found.second.to_le_bytes());
    probe
}

/// Puts the newest records of all blocks into the index. Returns the numbers of large values.
pub(crate) fn take_entries(writes: &Writes, mut entries: Entries) -> Result<Vec<u64>, TieredError> {
    let memory = writes.records().memory.load_full();
    let of_blocks = writes
        .records()
        .all_blocks()
        .filter(|block| block.foot.last_seq >= writes.journal().cleared_at.load(Relaxed));
    // At most: dead ones count, too.
    writes.records().counters.expiring.fetch_add(of_blocks.map(|block| block.foot.expiring).sum(), Relaxed);
    while let Some(part) = entries.next_part()? {
        for group in part.chunks(GROUP) {
            // The records of the log may have all DRAM. What has been taken is taken as it is.
            writes.upkeep.with_room(Need::Room, || {
                let here = Here::enter_by_hashes(&memory)?;
                Ok(take_group(writes, &here, group)?)
            })?;
        }
    }
    for (&number, &bytes) in &entries.dead {
        memory.dead(number).fetch_add(bytes, Relaxed);
    }
    Ok(entries.finish()?)
}

/// Takes some keys, whose places in the index are asked for together. Few are there already.
fn take_group(writes: &Writes, here: &Here<'_>, group: &[Found]) -> Result<(), WriteError> {
    let probes: Vec<[u8; 16]> = group.iter().map(probe_of).collect();
    let keys: Vec<&[u8]> = probes.iter().map(|probe| &probe[..]).collect();
    let mut is_there = [false; GROUP];
    here.search.forget();
    here.index().get_many(&here.guard, &keys, &mut |nth, word| is_there[nth] = word.is_some());
    let is_sure = here.search.take_met().is_none();
    let map = here.map();
    debug_assert!(group.len() <= GROUP, "a place for each");
    for ((found, probe), is_there) in group.iter().zip(&probes).zip(is_there) {
        if is_sure && !is_there {
            if found.is_tombstone {
                continue;
            }
            let to = map.address(found.block.into(), found.offset.into());
            let swapped = here.index().compare_and_swap(&here.guard, probe, None, Some(to))?;
            // What it has met is another key's: it came with this group.
            here.search.take_met();
            if swapped == Swapped::Done {
                writes.records().counters.data.fetch_add(found.bytes(), Relaxed);
                continue;
            }
        }
        here.search.forget();
        take_newest(writes, here, found)?;
    }
    Ok(())
}

/// Takes the newest version of a key among those of the blocks, unless DRAM has a newer one.
fn take_newest(writes: &Writes, here: &Here<'_>, newest: &Found) -> Result<(), WriteError> {
    let probe = probe_of(newest);
    let own = here.map().address(newest.block.into(), newest.offset.into());
    let dead = here.memory.dead(newest.block.into());
    let to = (!newest.is_tombstone).then_some(own);
    let (word, read) = writes.records().look_up(here, &probe)?;
    let Some(address) = word else {
        if to.is_some() {
            writes.records().swap(here, &probe, (None, to))?;
            writes.records().counters.data.fetch_add(newest.bytes(), Relaxed);
        }
        return Ok(());
    };
    if address == own {
        return Ok(());
    }
    let (shape, seq, bytes) = known_at(writes, here, (address, read))?;
    if seq > newest.seq {
        dead.fetch_add(newest.bytes(), Relaxed);
    } else {
        // The same write, or an older one.
        writes.records().swap(here, &probe, (Some(address), to))?;
        here.dead_of(address).fetch_add(bytes as u64, Relaxed);
        if to.is_none() {
            writes.records().uncount(shape);
        }
    }
    Ok(())
}

/// The shape, the number and the bytes of the record at an address that the index names.
fn known_at(
    writes: &Writes,
    here: &Here<'_>,
    (address, read): (u64, Option<(u64, Vec<u8>)>),
) -> Result<(Shape, u64, usize), WriteError> {
    if let Some(record) = here.record(address) {
        let (shape, seq) = record.head(&here.guard);
        return Ok((shape, seq, record.room(&here.guard)));
    }
    // It was sealed while the log was replayed.
    let read = writes.records().copy(here, address, read)?;
    let copied = read.ok_or_else(|| writes.tier().missing(here.map(), address))?;
    Ok((copied.shape, copied.seq, copied.shape.size()))
}

/// Takes the tombstones of removed keys out of the index.
pub(crate) fn drop_tombstones(writes: &Writes, removed: Vec<Vec<u8>>) -> Result<(), WriteError> {
    let memory = writes.records().memory.load_full();
    for key in removed {
        let here = Here::enter(&memory)?;
        let probe = writes.records().probe(&key);
        if let Some(old) = writes.records().old_to_replace(&here, &probe)?
            && old.copied.shape.kind == Kind::Tombstone
        {
            writes.records().swap(&here, &probe, (Some(old.address), None))?;
        }
    }
    Ok(())
}
