//! The report's tables. Each row has one peer, which its name says.

use crate::files::Plot;
use crate::plan::{Plan, say};
use std::fmt::Display;
use terrace_bench::{Bound, Row, Section};

pub(super) struct Tables {
    pub(super) rates: Section,
    pub(super) reads: Section,
    pub(super) written: Section,
    pub(super) counts: Section,
    pub(super) space: Section,
    pub(super) latencies: Section,
    pub(super) opens: Section,
    pub(super) server: Section,
    pub(super) answers: Section,
    pub(super) failed: Section,
    /// For the page.
    pub(super) plots: Vec<Plot>,
}

const PEER: &[&str] = &["other"];

impl Tables {
    pub(super) fn new(plan: &Plan) -> Self {
        let records = super::records(plan);
        let sides = format!(
            "{records} records of 16 + 100 random bytes; 96 MiB for blocks and write buffers on each side, two background threads, tables past the page cache (fjall: through it, it has no \
             direct I/O), no compression (ours tries LZ4, to no avail)"
        );
        let section = |title: &str, unit: &str| Section::new(title, unit, PEER);
        Self {
            rates: section(
                &format!(
                    "Writes. {sides}. One store works at a time, for a sixteenth of the load; `settled` counts the time until its threads rest"
                ),
                "thousand/s",
            ),
            reads: section("Reads and mixes of the loaded stores; caches are warm", "thousand/s"),
            written: section(
                "Bytes written for each byte put, in the loads above; fjall's are the kernel's count, its log included",
                "bytes",
            ),
            counts: section("Blocks read from tables, one operation", "blocks"),
            space: section("Bytes of tables for each byte of live keys and values", "bytes"),
            latencies: section("Latencies", "µs"),
            opens: section("Opening a store", "unit in the row"),
            server: section(
                "Server: redis-benchmark, SET, 50 clients, pipeline 16, 64-byte values; every answered write survives a loss of power on both sides",
                "requests/s",
            ),
            answers: section(
                "Answers compared: puts, deletes, batches, gets of present and absent keys, ranges both ways, reads at one instant, reopens; 4 MiB of memory",
                "",
            ),
            failed: section("Could not be measured", ""),
            plots: Vec::new(),
        }
    }

    /// Notes a part that failed, as a target that is missed: the other parts' figures count.
    pub(super) fn note<E: Display>(&mut self, part: &str, outcome: Result<(), E>) {
        if let Err(error) = outcome {
            say(&format!("{part} failed: {error}"));
            let row = Row::new(part).noting(error.to_string()).judged(Bound::AtLeast(1.0));
            self.failed.rows.push(row);
        }
    }

    /// The tables that have rows.
    pub(super) fn sections(self) -> Vec<Section> {
        let all = [
            self.rates,
            self.reads,
            self.written,
            self.counts,
            self.space,
            self.latencies,
            self.opens,
            self.server,
            self.answers,
            self.failed,
        ];
        all.into_iter().filter(|section| !section.rows.is_empty()).collect()
    }
}
