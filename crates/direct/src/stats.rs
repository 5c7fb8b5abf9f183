//! Figures of a store.

use crate::open::is_slow;
use crate::read::get::Reads;
use crate::record::key::Kind;
use crate::record::records::Records;
use std::sync::atomic::Ordering::Relaxed;
use terrace_engine::{Costs, IndexFigures, Layers, NoLayers, PoolStats, Stats};
use terrace_index::PointIndex;
use terrace_index::ordered::SpTree;
use terrace_medium::MappedMedium;
use terrace_pool::{Pool, Space};

/// The figures of a store. `batch_finished` says how the batch that a crash had interrupted ended.
pub(crate) fn stats_of<M: MappedMedium>(reads: &Reads<M>, batch_finished: Option<bool>) -> Stats {
    let (records, pool) = (reads.records(), reads.pool());
    let guard = pool.pin();
    let (space, index, tally) = (pool.space(), records.index.stats(&guard), records.root.tally(&guard));
    let used = space.used_by_blocks + space.slab_free + space.metadata;
    let costs =
        if M::VOLATILE_CACHE { Costs::power(records.index.fences_per_insert()) } else { Costs::PROCESS };
    Stats {
        records: index.keys,
        expiring: tally.expiring,
        data_bytes: tally.data_bytes,
        overhead_bytes: used.saturating_sub(tally.data_bytes),
        expired: records.root.expired(&guard),
        damaged_records_skipped: reads.skipped.load(Relaxed),
        costs,
        pool: Some(pool_stats(pool, &space, batch_finished)),
        index: Some(IndexFigures {
            name: records.index.name(),
            bytes: index.bytes,
            slots: index.slots,
            nodes: index.nodes,
            resizes: index.resizes,
            resizing: index.resizing,
            cache: records.index.cache(),
            layers: layers_of(records),
        }),
        disk: None,
        tier: None,
    }
}

/// What serves the searches of the index, if it can have layers in DRAM.
fn layers_of<M: MappedMedium>(records: &Records<M>) -> Option<Layers> {
    let why_none = || match records.settings.index_dram {
        _ if records.pool().is_shared() => NoLayers::Shared,
        Some(0) => NoLayers::NotAsked,
        None if !is_slow::<M>() => NoLayers::FastMedium,
        _ => NoLayers::NotMade,
    };
    let can_have = records.index.name() == SpTree::<M, Kind>::NAME;
    let none = || can_have.then(|| Layers::PoolAlone(why_none()));
    records.index.layers().map(Layers::InDram).or_else(none)
}

fn pool_stats<M: MappedMedium>(pool: &Pool<M>, space: &Space, batch_finished: Option<bool>) -> PoolStats {
    PoolStats {
        size_bytes: space.size,
        reserved_bytes: pool.medium().mapping().reserved() as u64,
        free_bytes: space.free,
        largest_free_bytes: space.largest_free_extent,
        waiting_bytes: space.waiting_bytes,
        // Without the caller's own guard.
        readers: space.readers.saturating_sub(1),
        blocking_readers: space.blocking_readers,
        lost_bytes: space.lost,
        damaged_bytes: space.damaged,
        participants: pool.layout().geometry.participants,
        generation: pool.generation(),
        found: pool.found(),
        batch_finished,
    }
}
