//! Layers in DRAM of the index of a pool.

use std::io;

use serde_json::{Value, json};
use terrace::{LAYER_FIGURES, LayerStats, Layers};
use terrace_server::config::format_size;

use crate::text::{counted, thousands};

/// What serves the searches of an index that can have layers in DRAM, and what these did.
#[derive(Clone, Debug)]
pub(super) struct OfLayers {
    served_by: String,
    /// `None` if there are no layers.
    stats: Option<LayerStats>,
}

impl OfLayers {
    pub(super) fn of_pool(layers: &Layers) -> OfLayers {
        let stats = match layers {
            Layers::InDram(stats) => Some(*stats),
            Layers::PoolAlone(_) => None,
        };
        OfLayers { served_by: layers.to_string(), stats }
    }

    /// Of a server's metrics, which say so if the index can have layers.
    pub(super) fn of_server(
        served_by: Option<String>,
        count: impl Fn(&str) -> Option<u64>,
    ) -> Option<OfLayers> {
        let mut stats = LayerStats::default();
        for figure in LAYER_FIGURES {
            let total = if figure.is_counter { "_total" } else { "" };
            (figure.set)(&mut stats, count(&format!("index_layers_{}{total}", figure.name))?);
        }
        let has_layers = stats.budget > 0;
        Some(OfLayers { served_by: served_by?, stats: has_layers.then_some(stats) })
    }

    pub(super) fn write(&self, row: &mut dyn FnMut(&str, String) -> io::Result<()>) -> io::Result<()> {
        let Some(stats) = &self.stats else { return row("index served by", self.served_by.clone()) };
        let (bytes, budget) = (format_size(stats.bytes), format_size(stats.budget));
        let [all, known] = stats.nodes.map(thousands);
        row("index served by", format!("{}, {bytes} of {budget}, {known} of {all} nodes", self.served_by))?;
        let buffers = counted(stats.buffers, "node", "nodes");
        let keys = counted(stats.buffered, "key", "keys");
        row("write buffers", format!("{buffers} with {keys}, {} of log", format_size(stats.log_bytes)))?;
        row(
            "filters",
            format!(
                "{} absent keys answered, {} let pass; {} searches left to the pool",
                thousands(stats.filtered),
                thousands(stats.false_positives),
                thousands(stats.passed)
            ),
        )
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        field("index_served_by", json!(self.served_by));
        let stats = self.stats.unwrap_or_default();
        for figure in LAYER_FIGURES {
            field(&format!("index_layers_{}", figure.name), json!((figure.get)(&stats)));
        }
    }
}
