//! Reads cold records for an index that moves them.

use super::read::{Blocks, Held};
use crate::space::addresses::Map;
use crate::space::memory::Memory;
use crate::space::probe::ReadCold;
use crate::space::record::Record;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use terrace_disk::cold;

/// The reader of a memory of a store.
struct Reader {
    blocks: Arc<Blocks>,
    /// Records that the readers of the store have read.
    reads: Arc<AtomicU64>,
    /// Whether a record could not be read: of the memory.
    has_failed: Arc<AtomicBool>,
}

/// Has the index of a memory read cold records in `blocks`, and count them in `reads`.
pub(crate) fn read_from(memory: &Memory, blocks: &Arc<Blocks>, reads: &Arc<AtomicU64>) {
    let (blocks, reads) = (Arc::clone(blocks), Arc::clone(reads));
    memory.read_with(Arc::new(Reader { blocks, reads, has_failed: Arc::clone(&memory.has_failed) }));
}

impl ReadCold for Reader {
    fn probe_at(&self, map: Map, address: u64) -> Option<Box<[u8]>> {
        self.reads.fetch_add(1, Relaxed);
        let block = self.blocks.get(map.block_of(address) as usize).and_then(|block| block.load_full());
        // The index has changed already, so that the write cannot be put off any more.
        let find = |block: Held| cold::waiting(|| block.find(map.offset_of(address)).ok().flatten());
        let bytes = block.and_then(find);
        let probe = bytes.as_deref().and_then(Record::read).map(|record| record.probe.into());
        if probe.is_none() {
            self.has_failed.store(true, Relaxed);
        }
        probe
    }
}
