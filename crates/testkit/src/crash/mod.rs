//! Crash testing: every state that a crash may leave at any point of a run, whether a store
//! recovers from it, and a report of each failure.
//!
//! Reading order: [`Profile`] and [`Rules`] (which stores a crash may lose), [`Target`] and
//! [`Subject`] (the store under test), [`Lab`] (one run), [`Explorer`] (the crash states of a
//! trace), [`Oracles`] (the conditions a recovered store must meet), [`FindingReport`] (the report
//! of a finding). `docs/testing.md` explains what these tests prove and what they do not.

mod dice;
mod ends;
mod expectation;
mod explore;
mod faults;
mod focus;
mod line;
mod marks;
pub(crate) mod memory;
mod oracles;
mod rules;
mod run;
mod seen;
mod story;
mod subject;
mod whose;

pub use crate::observer::Violation;
pub use crate::trace::place;
pub use dice::RandomSource;
pub use expectation::Expectation;
pub use explore::{Explored, Explorer, Judge, Limits, LineFate, ViolatingState};
pub use faults::{Fault, Kind};
pub(crate) use marks::{mark_begin, mark_end};
pub use memory::Memory;
pub(crate) use memory::hash;
pub(crate) use oracles::{CheckMode, apply_checked, catch_panic, check_memory, check_scan, read};
pub use oracles::{Oracles, Step};
pub use rules::{Profile, Rules};
pub use run::{Finding, History, Lab, Outcome, record};
pub use seen::Seen;
pub use story::FindingReport;
pub(crate) use story::{ReportedTrace, describe_lines};
pub use subject::{Effect, Key, Mix, Op, Plan, Reply, Subject, Target, Version, scratch};
