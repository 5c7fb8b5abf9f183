//! The section Stats.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::fields::{Figures, fields};
use terrace::LAYER_FIGURES;

use crate::{command::Context, state::stats::Tally};

/// Counters since the start or CONFIG RESETSTAT.
pub(super) fn stats(out: &mut String, cx: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let tally = cx.shared.clients.tally();
    traffic(out, cx, tally)?;
    keys(out, cx, figures, tally)?;
    // What Terrace has not.
    fields(
        out,
        &[
            ("pubsub_channels", &0),
            ("pubsub_patterns", &0),
            ("pubsubshard_channels", &0),
            ("latest_fork_usec", &0),
            ("total_forks", &0),
            ("migrate_cached_sockets", &0),
            ("slave_expires_tracked_keys", &0),
            ("active_defrag_hits", &0),
            ("active_defrag_misses", &0),
            ("active_defrag_key_hits", &0),
            ("active_defrag_key_misses", &0),
            ("total_active_defrag_time", &0),
            ("current_active_defrag_time", &0),
            ("tracking_total_keys", &0),
            ("tracking_total_items", &0),
            ("tracking_total_prefixes", &0),
            ("unexpected_error_replies", &0),
        ],
    )?;
    replies(out, cx, figures, tally)
}

fn traffic(out: &mut String, cx: &Context<'_>, tally: Tally) -> std::fmt::Result {
    let stats = &cx.shared.stats;
    // ORDER: Relaxed: a statistic.
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let rates = stats.rates.per_second();
    let kilobytes = |bytes: f64| format!("{:.2}", bytes / 1024.0);
    fields(
        out,
        &[
            ("total_connections_received", &read(&stats.connections)),
            ("total_commands_processed", &tally.commands),
            ("instantaneous_ops_per_sec", &rates.commands),
            ("total_net_input_bytes", &read(&stats.bytes_in)),
            ("total_net_output_bytes", &read(&stats.bytes_out)),
            ("total_net_repl_input_bytes", &0),
            ("total_net_repl_output_bytes", &0),
            ("instantaneous_input_kbps", &kilobytes(rates.bytes_in)),
            ("instantaneous_output_kbps", &kilobytes(rates.bytes_out)),
            ("instantaneous_input_repl_kbps", &kilobytes(0.0)),
            ("instantaneous_output_repl_kbps", &kilobytes(0.0)),
            ("rejected_connections", &read(&stats.connections_rejected)),
            ("sync_full", &0),
            ("sync_partial_ok", &0),
            ("sync_partial_err", &0),
        ],
    )
}

fn keys(out: &mut String, cx: &Context<'_>, figures: &Figures, tally: Tally) -> std::fmt::Result {
    let stats = &cx.shared.stats;
    let [expired, ..] = stats.store.since(&figures.store);
    fields(
        out,
        &[
            ("expired_keys", &expired),
            ("expired_time_cap_reached_count", &0),
            ("evicted_keys", &stats.store.evicted_since(cx.shared.store.evictor().evicted())),
            ("evicted_clients", &0),
            ("total_eviction_exceeded_time", &0),
            ("current_eviction_exceeded_time", &0),
            ("keyspace_hits", &tally.hits),
            ("keyspace_misses", &tally.misses),
        ],
    )
}

fn replies(out: &mut String, cx: &Context<'_>, figures: &Figures, tally: Tally) -> std::fmt::Result {
    let [_, cache_hits, cache_misses] = cx.shared.stats.store.since(&figures.store);
    fields(
        out,
        &[
            ("total_error_replies", &tally.errors),
            ("dump_payload_sanitizations", &0),
            ("damaged_records_skipped", &figures.store.damaged_records_skipped),
            // 0: the index has no cache.
            (
                "index_cache_bytes",
                &figures.store.index.and_then(|index| index.cache).unwrap_or_default().bytes,
            ),
            ("index_cache_hits", &cache_hits),
            ("index_cache_misses", &cache_misses),
        ],
    )?;
    layers(out, cx, figures)
}

/// The layers in DRAM of an index that can have such.
fn layers(out: &mut String, cx: &Context<'_>, figures: &Figures) -> std::fmt::Result {
    let Some(layers) = figures.store.index.and_then(|index| index.layers) else { return Ok(()) };
    fields(out, &[("index_served_by", &layers)])?;
    let stats = cx.shared.stats.store.layers_since(&layers);
    LAYER_FIGURES.iter().try_for_each(|figure| {
        fields(out, &[(&*format!("index_layers_{}", figure.name), &(figure.get)(&stats))])
    })
}
