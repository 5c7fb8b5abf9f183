//! The lab: what Terrace is made of, put through crashes and schedules. `cargo lab` is its command.
#![forbid(unsafe_code)]

mod schedules;
mod seed;
mod suite;
pub mod targets;

pub use schedules::{Accident, Deaths, Done, MEETINGS, Meeting, Met, ScheduleSeed, Watch, meeting};
pub use seed::RunSeed;
pub use suite::{SUITES, Suite, suite};
