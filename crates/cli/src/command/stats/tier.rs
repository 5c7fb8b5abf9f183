//! Figures of a store over DRAM and a slower tier.

use std::{io, time::Duration};

use serde_json::{Value, json};
use terrace::TierStats;
use terrace_server::config::format_size;

use crate::text::{duration, thousands};

/// What a store has in DRAM and on its tier, and what it has written and read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tier(pub(super) TierStats);

impl Tier {
    /// Of a server's metrics; `None` if its store has no tiers.
    pub(super) fn of_server(count: impl Fn(&str) -> Option<u64>) -> Option<Tier> {
        let mut stats = TierStats::default();
        for figure in TierStats::FIGURES {
            let total = if figure.is_counter { "_total" } else { "" };
            (figure.set)(&mut stats, count(&format!("tier_{}{total}", figure.name))?);
        }
        Some(Tier(stats))
    }

    pub(super) fn write(&self, row: &mut dyn FnMut(&str, String) -> io::Result<()>) -> io::Result<()> {
        let tier = &self.0;
        let size = format_size;
        let (used, all) = (size(tier.used_bytes()), size(tier.dram_bytes));
        row("dram", format!("{used} of {all}: {} index", size(tier.index_bytes)))?;
        let (open, sealed, copies) = (tier.open_bytes, tier.sealed_bytes, tier.cache_bytes);
        row(
            "",
            format!(
                "{} recent writes, {} of them on the tier, {} copies",
                size(open + sealed),
                size(sealed),
                size(copies)
            ),
        )?;
        let (blocks, bytes, dead) = (thousands(tier.blocks), size(tier.block_bytes), size(tier.dead_bytes));
        row("tier", format!("{bytes} in {blocks} blocks, {dead} of it dead"))?;
        row("log", size(tier.log_bytes))?;
        let looks = tier.hits + tier.cold_reads;
        if looks > 0 {
            let percent = |part: u64| 100.0 * part as f64 / looks as f64;
            let (hits, copies) = (percent(tier.hits), percent(tier.copy_hits));
            row("hits in dram", format!("{hits:.1}% of {}, {copies:.1}% in copies", thousands(looks)))?;
        }
        let writes = tier.in_place + tier.appended;
        if writes > 0 {
            let percent = 100.0 * tier.in_place as f64 / writes as f64;
            row("writes", format!("{}, {percent:.1}% in place", thousands(writes)))?;
        }
        if tier.written_bytes > 0 {
            let each = |bytes: u64| bytes as f64 / tier.written_bytes as f64;
            let to_tier = each(tier.flushed_bytes + tier.rewritten_bytes);
            let all = to_tier + each(tier.log_bytes_written);
            row("written", format!("{to_tier:.2} bytes to blocks a byte put, {all:.2} with the log"))?;
        }
        row("work", format!("{} flushes, {} rewrites", thousands(tier.flushes), thousands(tier.rewrites)))?;
        let stalled = duration(Duration::from_millis(tier.stalled_ms));
        row("stalls", format!("{} writes waited, {stalled} in all", thousands(tier.stalls)))
    }

    pub(super) fn json(&self, field: &mut dyn FnMut(&str, Value)) {
        for figure in TierStats::FIGURES {
            field(&format!("tier_{}", figure.name), json!((figure.get)(&self.0)));
        }
    }
}
