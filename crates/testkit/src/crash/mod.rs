//! Crash testing: every state that a crash may leave at any point of a run, whether a store
//! recovers from it, and a report of each failure.
//!
//! Reading order: [`Profile`] and [`Rules`] (which stores a crash may lose), [`Target`] and
//! [`Subject`] (the store under test), [`Lab`] (one run), [`Explorer`] (the crash states of a
//! trace), [`Oracles`] (the conditions a recovered store must meet), [`FindingReport`] (the report
//! of a finding). `docs/testing.md` explains what these tests prove and what they do not.

mod dice;
mod ends;
mod explore;
mod faults;
mod focus;
mod line;
mod memory;
mod oracles;
mod rules;
mod run;
mod seen;
mod story;
mod subject;
mod whose;

pub use dice::RandomSource;
pub use explore::{Explored, Explorer, Judge, Limits, LineFate, ViolatingState, Violation};
pub use faults::{Fault, Kind};
pub use memory::Memory;
pub(crate) use memory::hash;
pub(crate) use oracles::{
    CheckMode, apply_checked, catch_panic, check_memory, check_scan, mark_begin, mark_end, read,
};
pub use oracles::{Expectation, Oracles, Step};
pub use rules::{Profile, Rules};
pub use run::{Finding, History, Lab, Outcome, record};
pub use seen::Seen;
pub use story::{FindingReport, place};
pub(crate) use story::{ReportedTrace, describe_lines};
pub use subject::{Effect, Key, Mix, Op, Plan, Reply, Subject, Target, Version, scratch};
