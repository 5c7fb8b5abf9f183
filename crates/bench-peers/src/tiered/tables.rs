//! The report's tables, in the order in which their first rows come.

use crate::plan::say;
use std::fmt::Display;
use terrace_bench::{Bound, Row, Section};

/// A table: its title, its unit, and the headings of our figure and of the others.
#[derive(Clone, Copy)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) unit: &'static str,
    pub(super) ours: &'static str,
    pub(super) others: &'static [&'static str],
}

impl Table {
    /// A table whose figures have one other at most.
    pub(super) const fn beside(
        title: &'static str,
        unit: &'static str,
        others: &'static [&'static str],
    ) -> Self {
        Self { title, unit, ours: "ours", others }
    }
}

#[derive(Default)]
pub(super) struct Tables {
    pub(super) sections: Vec<Section>,
}

const FAILED: Table = Table::beside("Could not be measured", "", &["other"]);

impl Tables {
    pub(super) fn add(&mut self, table: Table, row: Row) {
        let place = self.sections.iter().position(|section| section.title == table.title);
        let place = place.unwrap_or_else(|| {
            self.sections.push(Section::new(table.title, table.unit, table.others).ours_named(table.ours));
            self.sections.len() - 1
        });
        self.sections[place].rows.push(row);
    }

    /// Notes a part that failed, as a target that is missed: the other parts' figures count.
    pub(super) fn note<E: Display>(&mut self, part: &str, outcome: Result<(), E>) {
        if let Err(error) = outcome {
            say(&format!("{part} failed: {error}"));
            self.add(FAILED, Row::new(part).noting(error.to_string()).judged(Bound::AtLeast(1.0)));
        }
    }
}
