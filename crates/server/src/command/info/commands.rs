//! The sections Commandstats, Errorstats and Latencystats.

use std::fmt::Write;

use super::fields::Figures;
use crate::{
    command::{Context, table},
    state::{config::Key, stats::Sum},
};

/// Calls of each command and their time. A command that no client sent has no line.
pub(super) fn calls(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let was_sent = |sum: &Sum| sum.calls + sum.failed + sum.rejected > 0;
    let sums = cx.shared.stats.commands.read().commands;
    table::names().zip(sums).filter(|(_, sum)| was_sent(sum)).try_for_each(|(name, sum)| {
        write!(
            out,
            "cmdstat_{name}:calls={},usec={},usec_per_call={:.2},rejected_calls={},failed_calls={}\r\n",
            sum.calls,
            sum.usec(),
            sum.usec_per_call(),
            sum.rejected,
            sum.failed,
        )
    })
}

/// Error replies by code.
pub(super) fn errors(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    let errors = cx.shared.stats.commands.read().errors;
    let mut seen = errors.iter().filter(|(_, count)| **count > 0);
    seen.try_for_each(|(code, count)| {
        write!(out, "errorstat_{}:count={count}\r\n", String::from_utf8_lossy(code))
    })
}

/// Latencies of calls, by percentile.
pub(super) fn latencies(out: &mut String, cx: &Context<'_>, _: &Figures) -> std::fmt::Result {
    if !cx.shared.config.is_on(Key::LatencyTracking) {
        return Ok(());
    }
    let sums = cx.shared.stats.commands.read().commands;
    table::names().zip(sums).try_for_each(|(name, sum)| {
        let [Some(p50), Some(p99), Some(p999)] =
            [50.0, 99.0, 99.9].map(|percent| sum.percentile_usec(percent))
        else {
            return Ok(());
        };
        write!(out, "latency_percentiles_usec_{name}:p50={p50:.3},p99={p99:.3},p99.9={p999:.3}\r\n")
    })
}
