//! The results of a suite, in the form in which they are printed and saved.

use crate::{Limits, Machine, Measured};
use serde_json::{Value, json};

/// The bound that a figure must meet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Bound {
    fn holds(self, figure: f64) -> bool {
        match self {
            Self::AtLeast(bound) => figure >= bound,
            Self::AtMost(bound) => figure <= bound,
        }
    }
}

/// A bound, and the figure that it applies to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Target {
    /// On our figure divided by the peer's.
    Ratio(Bound),
    /// On our figure.
    Figure(Bound),
}

/// One line of a table.
#[derive(Clone, Debug)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// Our figure; `None` if it could not be measured.
    pub ours: Option<f64>,
    /// The peers' figures, in the section's order; `None` where a peer has none.
    pub peers: Vec<Option<f64>>,
    /// Our figure divided by that of the peer it is judged against.
    pub ratio: Option<f64>,
    /// The bound that must hold.
    pub target: Option<Target>,
    /// A remark, for instance that the machine's speed changed.
    pub note: Option<String>,
    /// How the figures were measured.
    pub measured: Option<Measured>,
}

impl Row {
    /// A row without figures yet.
    pub fn new(name: impl Into<String>) -> Self {
        let name = name.into();
        Self { name, ours: None, peers: Vec::new(), ratio: None, target: None, note: None, measured: None }
    }

    /// A row of a runner's measurements, ours first.
    pub fn from_measured(name: impl Into<String>, measured: Measured) -> Self {
        let note = (!measured.steady).then(|| {
            let per_cent = measured.moved * 100.0;
            format!(
                "the fixed loop moved by {per_cent:.0}%, also in the runs after the first: not to be believed"
            )
        });
        let again = (measured.repeated > 0 && measured.steady)
            .then(|| format!("measured {} times, since the fixed loop moved", measured.repeated + 1));
        Self {
            ours: measured.medians.first().copied(),
            peers: measured.medians.iter().skip(1).map(|median| Some(*median)).collect(),
            note: note.or(again),
            measured: Some(measured),
            ..Self::new(name)
        }
    }

    /// The row with one more remark, before the others.
    pub fn noting(mut self, remark: String) -> Self {
        self.note = Some(self.note.map_or(remark.clone(), |note| format!("{remark}; {note}")));
        self
    }

    /// Judges our figure against the highest of the peers'.
    pub fn against_highest(mut self, bound: Bound) -> Self {
        let highest = self.peers.iter().flatten().copied().reduce(f64::max);
        self.ratio = self.ours.zip(highest).map(|(ours, peer)| ours / peer);
        self.target = Some(Target::Ratio(bound));
        self
    }

    /// Judges our figure against that of the peer with this index.
    pub fn against(mut self, peer: usize, bound: Bound) -> Self {
        let peer = self.peers.get(peer).copied().flatten();
        self.ratio = self.ours.zip(peer).map(|(ours, peer)| ours / peer);
        self.target = Some(Target::Ratio(bound));
        self
    }

    /// Judges our figure itself.
    pub fn judged(mut self, bound: Bound) -> Self {
        self.target = Some(Target::Figure(bound));
        self
    }

    /// Whether the target is met; `None` without a target. A figure that could not be measured
    /// misses it.
    pub fn holds(&self) -> Option<bool> {
        let (figure, bound) = match self.target? {
            Target::Ratio(bound) => (self.ratio, bound),
            Target::Figure(bound) => (self.ours, bound),
        };
        Some(figure.is_some_and(|figure| bound.holds(figure)))
    }

    fn to_json(&self, peers: &[String]) -> Value {
        let peers: serde_json::Map<String, Value> =
            peers.iter().cloned().zip(self.peers.iter().map(|figure| json!(figure))).collect();
        let target = self.target.map(|target| match target {
            Target::Ratio(Bound::AtLeast(bound)) => json!({ "ratio_at_least": bound }),
            Target::Ratio(Bound::AtMost(bound)) => json!({ "ratio_at_most": bound }),
            Target::Figure(Bound::AtLeast(bound)) => json!({ "at_least": bound }),
            Target::Figure(Bound::AtMost(bound)) => json!({ "at_most": bound }),
        });
        let measured = self.measured.as_ref();
        json!({
            "name": self.name, "ours": self.ours, "peers": peers, "ratio": self.ratio, "target": target, "holds": self.holds(),
            "note": self.note, "figures": measured.map(|m| &m.figures), "fixed_loop_moved": measured.map(|m| m.moved),
            "runs": measured.map(|m| m.repeated + 1),
        })
    }
}

/// Rows with the same unit and the same peers.
#[derive(Clone, Debug)]
pub struct Section {
    /// What they are about, and everything that makes the comparison fair.
    pub title: String,
    /// The unit of the figures.
    pub unit: String,
    /// The heading of our figures.
    pub ours: String,
    /// The headings of the peers.
    pub peers: Vec<String>,
    /// The lines.
    pub rows: Vec<Row>,
}

impl Section {
    /// A section without rows.
    pub fn new(title: &str, unit: &str, peers: &[&str]) -> Self {
        let peers = peers.iter().map(|peer| (*peer).to_owned()).collect();
        Self { title: title.to_owned(), unit: unit.to_owned(), ours: "ours".into(), peers, rows: Vec::new() }
    }

    /// Gives our figures another heading, for tables in which all columns are ours.
    pub fn ours_named(self, ours: &str) -> Self {
        Self { ours: ours.to_owned(), ..self }
    }
}

/// All results of one run.
#[derive(Clone, Debug)]
pub struct Report {
    /// The suite's name.
    pub suite: String,
    /// The machine that it ran on.
    pub machine: Machine,
    /// The limits of that machine, measured in the same run.
    pub limits: Limits,
    /// The results.
    pub sections: Vec<Section>,
    /// The command that repeats the run.
    pub repeat: String,
    /// Why the figures are not reliable, such as a small size.
    pub warning: Option<String>,
}

impl Report {
    /// Number of rows that miss their target.
    pub fn missed(&self) -> usize {
        self.sections
            .iter()
            .flat_map(|section| &section.rows)
            .filter(|row| row.holds() == Some(false))
            .count()
    }

    /// The report for programs.
    pub fn to_json(&self) -> Value {
        let machine = &self.machine;
        let limits: serde_json::Map<String, Value> = self
            .limits
            .figures()
            .into_iter()
            .map(|(name, figure)| (name.to_owned(), json!(figure)))
            .collect();
        let section = |s: &Section| {
            let rows: Vec<Value> = s.rows.iter().map(|row| row.to_json(&s.peers)).collect();
            json!({ "title": s.title, "unit": s.unit, "ours": s.ours, "columns": s.peers, "rows": rows })
        };
        json!({
            "suite": self.suite, "warning": self.warning, "repeat": self.repeat, "missed": self.missed(),
            "machine": { "processor": machine.processor, "processors": machine.processors, "memory_bytes": machine.memory_bytes,
                         "kernel": machine.kernel, "huge_pages": machine.huge_pages },
            "limits": limits,
            "sections": self.sections.iter().map(section).collect::<Vec<_>>(),
        })
    }
}
