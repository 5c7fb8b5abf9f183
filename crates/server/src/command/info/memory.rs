//! The section Memory.

use std::sync::atomic::Ordering::Relaxed;

use super::{
    fields::{Figures, fields, human},
    system,
};
use crate::{
    command::{Context, eval},
    state::{config::Key, stats},
};

/// What the store, scripts and the process use.
pub(super) fn memory(out: &mut String, cx: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let store = &figures.store;
    let limit = cx.shared.config.number(Key::MaxMemory);
    let in_pool = stats::used_memory(&cx.shared.stats, store);
    // What the limit is about: without free blocks between records.
    let used = cx.shared.store.evictor().used_bytes().filter(|_| limit != 0).unwrap_or(in_pool);
    let limit = if limit == 0 { store.pool.unwrap_or_default().size_bytes } else { limit };
    let resident = system::resident_bytes();
    in_use(out, cx, figures, [used, resident])?;
    of_scripts(out, cx)?;
    limits(out, cx, figures, [used, resident, limit])
}

fn in_use(
    out: &mut String,
    cx: &Context<'_>,
    figures: &Figures,
    [used, resident]: [u64; 2],
) -> std::fmt::Result {
    let store = &figures.store;
    // ORDER: Relaxed: a statistic.
    let peak = cx.shared.stats.memory_peak.load(Relaxed);
    let system = system::memory_bytes();
    let percent = |part: u64, whole: u64| format!("{:.2}%", 100.0 * part as f64 / whole.max(1) as f64);
    fields(
        out,
        &[
            ("used_memory", &used),
            ("used_memory_human", &human(used)),
            ("used_memory_rss", &resident),
            ("used_memory_rss_human", &human(resident)),
            ("used_memory_peak", &peak),
            ("used_memory_peak_human", &human(peak)),
            ("used_memory_peak_perc", &percent(used, peak)),
            ("used_memory_overhead", &store.overhead_bytes),
            ("used_memory_dataset", &store.data_bytes),
            ("used_memory_dataset_perc", &percent(store.data_bytes, used)),
            ("total_system_memory", &system),
            ("total_system_memory_human", &human(system)),
        ],
    )
}

fn of_scripts(out: &mut String, cx: &Context<'_>) -> std::fmt::Result {
    let (scripts, scripts_bytes) = cx.shared.scripts.size();
    let (scripts_bytes, lua) = (scripts_bytes as u64, eval::lua_bytes());
    fields(
        out,
        &[
            ("used_memory_lua", &lua),
            ("used_memory_vm_eval", &lua),
            ("used_memory_lua_human", &human(lua)),
            ("used_memory_scripts_eval", &scripts_bytes),
            ("number_of_cached_scripts", &scripts),
            ("number_of_functions", &0),
            ("number_of_libraries", &0),
            ("used_memory_vm_functions", &0),
            ("used_memory_vm_total", &lua),
            ("used_memory_vm_total_human", &human(lua)),
            ("used_memory_functions", &0),
            ("used_memory_scripts", &scripts_bytes),
            ("used_memory_scripts_human", &human(scripts_bytes)),
        ],
    )
}

fn limits(
    out: &mut String,
    cx: &Context<'_>,
    figures: &Figures,
    [used, resident, limit]: [u64; 3],
) -> std::fmt::Result {
    let pool = figures.store.pool.unwrap_or_default();
    fields(
        out,
        &[
            ("maxmemory", &limit),
            ("maxmemory_human", &human(limit)),
            ("maxmemory_policy", &cx.shared.config.text(Key::MaxMemoryPolicy)),
            ("mem_fragmentation_ratio", &format!("{:.2}", resident as f64 / used.max(1) as f64)),
            ("mem_fragmentation_bytes", &(i128::from(resident) - i128::from(used))),
            ("mem_not_counted_for_evict", &0),
            ("mem_replication_backlog", &0),
            ("mem_total_replication_buffers", &0),
            ("mem_clients_slaves", &0),
            ("mem_cluster_links", &0),
            ("mem_aof_buffer", &0),
            ("mem_allocator", &"terrace"),
            ("active_defrag_running", &0),
            ("lazyfree_pending_objects", &0),
            ("lazyfreed_objects", &0),
            ("pool_free_bytes", &pool.free_bytes),
            ("pool_waiting_bytes", &pool.waiting_bytes),
        ],
    )
}
