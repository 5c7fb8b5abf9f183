//! The report's tables, in the order in which their first rows come.

use crate::plan::say;
use std::fmt::Display;
use terrace_bench::{Bound, Row, Section};

/// A table: its title, its unit, and the heading of the other side.
pub(super) type Table = (&'static str, &'static str, &'static str);

#[derive(Default)]
pub(super) struct Tables {
    pub(super) sections: Vec<Section>,
}

const FAILED: Table = ("Could not be measured", "", "other");

impl Tables {
    pub(super) fn add(&mut self, (title, unit, peer): Table, row: Row) {
        let place = self.sections.iter().position(|section| section.title == title);
        let place = place.unwrap_or_else(|| {
            self.sections.push(Section::new(title, unit, &[peer]));
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
