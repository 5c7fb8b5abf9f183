//! What a memory node is at, in numbers for operators.

use super::node::Node;
use super::stats::Stats;
use std::sync::{Arc, Weak};
use terrace_fabric::Fabric;
use terrace_server::routing::Figure;

/// Reads the figures of a node, and none once it was stopped.
pub(super) fn reader<F>(node: &Arc<Node<F>>) -> impl Fn() -> Vec<Figure> + Send + Sync + use<F>
where
    F: Fabric<Endpoint: Send + 'static> + Send + Sync + 'static,
{
    let node: Weak<Node<F>> = Arc::downgrade(node);
    move || {
        node.upgrade()
            .map(|node| figures(&node.stats(), &node.base.data.engine.stats(), node.room()))
            .unwrap_or_default()
    }
}

fn figures(stats: &Stats, of_store: &terrace_engine::Stats, room: u64) -> Vec<Figure> {
    let (total, now) = (Figure::total, Figure::now);
    let pool = of_store.pool.unwrap_or_default();
    vec![
        now("sessions", "Sessions of serving nodes, also those that end", stats.sessions as u64),
        now("sessions_serving", "Sessions of nodes that may answer", stats.serving as u64),
        now("segments_free", "Segments of the log area that nobody has", stats.segments_free),
        now(
            "segments_granted",
            "Segments of the log area that serving nodes write to",
            stats.segments_granted,
        ),
        now("segments_unmerged", "Those of them that are not merged to their ends", stats.segments_unmerged),
        total("merged_entries", "Log entries that were merged", stats.merged_entries),
        total("merged_bytes", "Bytes of log entries that were merged", stats.merged_bytes),
        total(
            "refused_changes",
            "Changes that were not made: of slots that were not their writer's, or that no store takes",
            stats.refused_changes,
        ),
        total("requests", "Requests of serving nodes that were answered", stats.requests),
        now("requests_waiting", "Requests of serving nodes that wait", stats.requests_waiting as u64),
        now("pins", "Pins that readers elsewhere rely on", stats.pins as u64),
        now("index_resizing", "Whether the index is growing", stats.is_resizing.into()),
        now("records", "Keys, including expired ones that are not removed yet", of_store.records),
        now("data_bytes", "Bytes of keys and values", of_store.data_bytes),
        now("overhead_bytes", "Used bytes beyond keys and values", of_store.overhead_bytes),
        now("waiting_bytes", "Retired bytes that a reader may still see", pool.waiting_bytes),
        now("free_bytes", "Free bytes of the pool", pool.free_bytes),
        now("room_bytes", "Bytes that keys may still take before puts are refused", room),
        now("pool_bytes", "Size of the pool", pool.size_bytes),
    ]
}
