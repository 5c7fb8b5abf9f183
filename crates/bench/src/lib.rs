//! Shared parts of measurements: workloads, the machine's limits, a runner that alternates between
//! the sides it compares, and reports.
//!
//! Machines like this change their speed by a factor of two or three from one minute to the next.
//! So no figure is compared with one of another run. [`Runner::row`] alternates the sides of a row,
//! takes medians, and runs a fixed loop before and after; if the loop's time moved, it measures the
//! row again. [`Limits`] are measured in the same run.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "to measure is to read the clock and to start threads")]

mod baselines;
mod choice;
mod drive;
pub mod instructions;
mod keys;
mod limits;
mod machine;
mod pace;
mod report;
mod runner;
mod shape;
mod steady;
mod table;
mod workers;
mod workload;
mod zipfian;

pub use baselines::{
    Baseline, Bch, Cceh, Change, Converted, FastFair, IntegerKeys, KeyForm, Merge, OrderedBaseline,
    PathHashing, Pfht, Removing, SkipList, Space, SpaceFull, Spot, SpotCceh, SpotFastFair, SpotSizes,
    SpotVariant, Spotted, StringKeys, Tips, TipsSizes, Woart,
};
pub use choice::Choice;
pub use drive::{Drive, Seen, Subject, drive};
pub use keys::{Random, ScrambledZipfian, Sequence, spread, ycsb_key};
pub use limits::{Limits, LimitsSize, Probe};
pub use machine::{
    Machine, page_faults, process_cpu_seconds, process_private_bytes, process_resident_bytes, touch,
};
pub use pace::Pace;
pub use report::{Bound, Report, Row, Section, Target};
pub use runner::{Measure, Measured, Runner, median};
pub use shape::{KeyShape, Shape};
pub use steady::fixed_loop_ns;
pub use workers::{pin_this_thread, processor, rate, run_on};
pub use workload::{Kind, Mix, Operation, Operations, Workload};
pub use zipfian::{Zipfian, zeta};
