//! The lab: explores crash states and thread schedules of Terrace's parts. Its command is
//! `cargo lab`.
#![forbid(unsafe_code)]

mod schedules;
mod seed;
mod suite;
pub mod targets;

pub use schedules::{
    CrashKind, FaultProfile, Monitor, RunResult, SCHEDULE_TARGETS, ScheduleSeed, ScheduleTarget,
    WeakRunResult, schedule_target,
};
pub use seed::RunSeed;
pub use suite::{SUITES, Suite, suite};
